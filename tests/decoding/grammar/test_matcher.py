"""The laws of a matcher: masks and tokens agree, looking ahead changes nothing, copies are on their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.contract import Matcher
from fucina.errors import ConstraintFailed, ShapeError

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "greenish"]}, "maxItems": 3},
        "born": {"type": "string", "format": "date"},
        "more": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
    },
    "required": ["name", "age", "tags"],
}
CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("schemas.json").read_text())
CONSTRAINTS = {
    "schema": Constraint.json_schema(PERSON),
    "any JSON": Constraint.any_json(),
    "few keys": Constraint.json_schema(
        {
            "type": "object",
            "patternProperties": {"^[ab]$": {}, "^[xy]{2}": {"type": "null"}},
            "additionalProperties": False,
        }
    ),
    "number": Constraint.json_schema({"type": ["number", "null"]}),
    "regex": Constraint.regex(r"(the |a )?[a-z]{2,}( [äöü日]+)*(, (yes|no|\w+))*[.!]"),
    "empty alternative": Constraint.regex(r"(|a|ab)c?"),
    "lark": Constraint.lark(
        'start: expr\nexpr: term (("+"|"-") term)*\nterm: NUMBER | "(" expr ")"\nNUMBER: /[0-9]+/\n%ignore / {1,2}/'
    ),
    "left recursion": Constraint.lark('start: start ", " word | word\nword: /[a-z]+/ | "end"'),
    "lark with a schema": Constraint.lark('start: "<tool>" %json {"type":"object","properties":{"a":true}} "</tool>"'),
}


def check_state(grammars: Any, matcher: Matcher, sample: np.ndarray[Any, Any] | None = None) -> None:
    """Compare the mask with what can be consumed, token by token."""
    allowed = set(grammars.allowed(matcher).tolist())
    assert allowed
    ends = set(grammars.vocabulary.end_ids)
    assert ends <= allowed or not ends & allowed
    assert bool(ends & allowed) == matcher.is_accepting
    assert not [token for token in allowed - ends if not grammars.texts[token]]
    if matcher.is_complete:
        assert allowed == ends
    forced = list(matcher.forced_tokens())
    if forced:
        assert allowed == {forced[0]}
    for token in range(grammars.vocabulary.vocab_size) if sample is None else sample.tolist():
        trial = matcher.copy()
        if token in allowed:
            trial.consume(token)
            continue
        with pytest.raises(ConstraintFailed):
            trial.consume(token)
        assert trial.valid_prefix_len([min(allowed)]) == 1  # a refusal does no harm


def random_states(grammars: Any, n_states: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    names = list(CONSTRAINTS)
    for i in range(n_states):
        matcher = grammars.compiler.matcher(CONSTRAINTS[names[i % len(names)]])
        text = b""
        for _ in range(rng.integers(0, 40)):
            ids = grammars.allowed(matcher)
            if len(ids) <= len(grammars.vocabulary.end_ids) and matcher.is_accepting:
                break
            token = grammars.choose(ids, text, rng, freely=rng.random() < 0.6)
            matcher.consume(token)
            text += grammars.texts[token]
        yield matcher


def test_masks_say_exactly_what_can_be_consumed(grammars: Any) -> None:
    for matcher in random_states(grammars, 200, seed=1):
        check_state(grammars, matcher)


@pytest.mark.model
def test_masks_say_exactly_what_can_be_consumed_with_a_real_vocabulary(model_grammars: Any) -> None:
    """Of the many tokens of a real vocabulary a sample, with all that are allowed where those are few.

    tests/decoding/grammar/sweep_masks.py tries all of them.
    """
    rng = np.random.default_rng(2)
    for matcher in random_states(model_grammars, 200, seed=2):
        allowed = model_grammars.allowed(matcher)
        sample = np.concatenate([rng.choice(allowed, min(40, len(allowed)), replace=False), _some(model_grammars, rng)])
        check_state(model_grammars, matcher, np.unique(sample))


def _some(grammars: Any, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    special = np.array([token for token, text in enumerate(grammars.texts) if not text])
    anything = rng.integers(0, grammars.vocabulary.vocab_size, 60)
    return np.concatenate([anything, rng.choice(special, min(10, len(special)), replace=False)])


def test_masks_along_drafts_are_those_of_single_steps(grammars: Any) -> None:
    rng = np.random.default_rng(3)
    for matcher in random_states(grammars, 100, seed=3):
        drafts: list[int] = []
        trial, steps = matcher.copy(), []
        for _ in range(6):
            steps.append(mask_of(trial))
            ids = grammars.allowed(trial)
            drafts.append(int(rng.choice(ids)))
            trial.consume(drafts[-1])
        steps.append(mask_of(trial))
        out = np.full((7, matcher.n_words), 0xDEADBEEF, np.uint32)
        before = mask_of(matcher)
        assert matcher.masks(drafts, out) == 7
        np.testing.assert_array_equal(out, np.concatenate(steps))
        np.testing.assert_array_equal(mask_of(matcher), before)
        assert matcher.valid_prefix_len(drafts) == 6


def test_masks_end_at_the_first_draft_that_is_not_allowed(byte_grammars: Any) -> None:
    matcher = byte_grammars.compiler.matcher(Constraint.regex("abc"))
    out = np.zeros((4, matcher.n_words), np.uint32)
    assert matcher.masks(list(b"axc"), out) == 2
    assert [mask_ids(row) for row in out[:2]] == [[ord("a")], [ord("b")]]
    for wrong in (-1, byte_grammars.vocabulary.vocab_size, 1 << 40):
        assert matcher.masks([wrong, 0, 0], out) == 1
        assert matcher.valid_prefix_len([wrong]) == 0
    assert matcher.valid_prefix_len(list(b"abx")) == 2


def test_masks_want_the_right_room(byte_grammars: Any) -> None:
    matcher = byte_grammars.compiler.matcher(Constraint.regex("abc"))
    words = matcher.n_words
    for bad in (
        np.zeros((2, words), np.uint32),
        np.zeros((1, words), np.int32),
        np.zeros((1, 2 * words), np.uint32)[:, ::2],
    ):
        with pytest.raises(ShapeError):
            matcher.masks((), bad)


def test_looking_ahead_changes_nothing(grammars: Any) -> None:
    rng = np.random.default_rng(4)
    for name, constraint in CONSTRAINTS.items():
        looked, plain = grammars.compiler.matcher(constraint), grammars.compiler.matcher(constraint)
        for _ in range(40):
            out = np.zeros((3, looked.n_words), np.uint32)
            ids = grammars.allowed(plain)
            for _ in range(rng.integers(0, 4)):
                looked.forced_tokens()
                looked.valid_prefix_len(rng.integers(0, grammars.vocabulary.vocab_size, 5).tolist())
                looked.masks([int(rng.choice(ids)), 0], out)
                looked.copy().consume(int(rng.choice(ids)))
            np.testing.assert_array_equal(mask_of(looked), mask_of(plain), err_msg=name)
            assert list(looked.forced_tokens()) == list(plain.forced_tokens())
            assert (looked.is_accepting, looked.is_complete) == (plain.is_accepting, plain.is_complete)
            token = int(rng.choice(ids))
            looked.consume(token)
            plain.consume(token)


def test_forced_tokens_are_the_only_ones_all_the_way(grammars: Any) -> None:
    rng, n_forced = np.random.default_rng(5), 0
    for case in CASES[::3]:
        matcher, text = grammars.compiler.matcher(Constraint.json_schema(case["schema"])), b""
        for _ in range(30):
            forced = list(matcher.forced_tokens())[:50]
            assert matcher.valid_prefix_len(forced) == len(forced)
            for i, token in enumerate(forced):
                assert grammars.allowed(matcher).tolist() == [token]
                assert list(matcher.forced_tokens())[: len(forced) - i] == forced[i:]
                matcher.consume(token)
                text += grammars.texts[token]
            n_forced += len(forced)
            if matcher.is_complete:
                break
            token = grammars.choose(grammars.allowed(matcher), text, rng, freely=rng.random() < 0.5)
            matcher.consume(token)
            text += grammars.texts[token]
    assert n_forced > 200


@pytest.mark.model
def test_forced_tokens_are_the_only_ones_with_a_real_vocabulary(model_grammars: Any) -> None:
    test_forced_tokens_are_the_only_ones_all_the_way(model_grammars)


def test_a_long_forced_text_comes_token_by_token(grammars: Any) -> None:
    """Copies go on from the middle of it; another token is refused there, and nothing else changes."""
    text = "a long text " * 400
    matcher, said = grammars.compiler.matcher(Constraint.json_schema({"const": text})), b""
    assert len(matcher.forced_tokens()) <= 256
    while not matcher.is_accepting:
        (token,) = grammars.allowed(matcher).tolist()
        assert not matcher.take(token + 1) and not matcher.take(grammars.vocabulary.end_ids[0])
        assert matcher.take(token)
        said += grammars.texts[token]
        if len(said) % 7 == 0:
            matcher = matcher.copy()
    assert said.decode() == json.dumps(text)


def test_an_end_is_allowed_where_the_grammar_accepts_and_is_all_that_follows(grammars: Any) -> None:
    matcher = grammars.compiler.matcher(Constraint.regex("ab?"))
    end = grammars.vocabulary.end_ids[0]
    with pytest.raises(ConstraintFailed):
        matcher.consume(end)
    for token in grammars.tokenizer.encode("ab", at_start=False):
        matcher.consume(token)
    assert matcher.is_complete
    assert grammars.allowed(matcher).tolist() == list(grammars.vocabulary.end_ids)
    out = np.zeros((2, matcher.n_words), np.uint32)
    assert matcher.masks([end], out) == 2
    matcher.consume(end)
    assert matcher.is_complete and matcher.is_accepting and list(matcher.forced_tokens()) == []
    assert grammars.allowed(matcher).tolist() == list(grammars.vocabulary.end_ids) == mask_ids(out[1])
    matcher.consume(end)
    with pytest.raises(ConstraintFailed):
        matcher.consume(ord("a"))


def test_text_of_a_control_token_is_only_text(grammars: Any) -> None:
    """Its characters may come, as other tokens; the token itself never does."""
    special = [token for token, text in enumerate(grammars.texts) if not text]
    for marker in ("<|im_end|>", "<end_of_turn>", "<eos>"):
        matcher = grammars.compiler.matcher(Constraint.json_schema({"const": f"x {marker} y"}))
        tokens, text = grammars.walk(matcher, np.random.default_rng(0))
        assert text.decode() == f'"x {marker} y"'
        assert not set(tokens) & set(special)


def test_a_grammar_that_gives_up_says_so(byte_grammars: Any) -> None:
    matcher = byte_grammars.compiler.matcher(Constraint.regex("(((a{1,10}){1,10}){1,10}){1,10}"))
    with pytest.raises(ConstraintFailed, match="cannot be followed"):
        for _ in range(1000):
            mask_of(matcher)
            matcher.consume(ord("a"))
    with pytest.raises(ConstraintFailed):
        matcher.forced_tokens()


def mask_of(matcher: Matcher) -> np.ndarray[Any, np.dtype[np.uint32]]:
    out = np.zeros((1, matcher.n_words), np.uint32)
    assert matcher.masks((), out) == 1
    return out


def mask_ids(mask: np.ndarray[Any, np.dtype[np.uint32]]) -> list[int]:
    found: list[int] = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
    return found
