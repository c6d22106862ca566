"""Objects whose keys no schema names: none comes twice, and what the masks say stays what can be consumed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fucina.decoding.grammar.checking import CheckedSchema
from fucina.decoding.grammar.compiler import Compiler
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.contract import Matcher
from fucina.decoding.grammar.keys_left import KeysLeftMatcher
from fucina.decoding.grammar.matcher import GrammarMatcher
from fucina.decoding.grammar.open_objects import has_other_keys
from fucina.decoding.grammar.unique_keys import UniqueKeysMatcher
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.errors import ConstraintFailed
from fucina.testing.byte_tokenizer import ByteTokenizer

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("schemas.json").read_text())
OPEN = [case for case in CASES if has_other_keys(CheckedSchema(Constraint.json_schema(case["schema"]).text))]
FEW = {"type": "object", "patternProperties": {"^[ab]{1,2}$": {"enum": [1, {}]}}, "additionalProperties": False}
ALL_OF_FEW = {"a", "b", "aa", "ab", "ba", "bb"}
#: Texts and whether an object in them would have a key twice, were a quote to follow.
BEGINNINGS = {
    '{"a': False,
    '{"a": 1, "a': True,
    '{"a": 1, "b': False,
    '{"a": {"a': False,
    '{"b": {"a": 1}, "a': False,
    '{"b": {"a": 1, "c": [], "a': True,
    '{"b": [{"a": 1}, {"a': False,
    '{"b": [{"a": 1}], "b': True,
    '{"x\\"y": 1, "x\\"y': True,
    '{"x\\"y": 1, "x\\\\': False,
    '{"é\\n": 1, "é\\n': True,
    '{"": 1, "': True,
    '{"a": "a", "b": "", "c": "{", "b': True,
    '{"a": "\\"b\\": ", "b': False,
}
BETWEEN = [
    "",
    "{",
    '{"a": 1',
    '{"a": 1,',
    '{"a": 1, ',
    '{"a": "x',
    '{"a": "\\',
    '{"a\\',
    '{"a\\"": 1, "a\\',
    '{"ab": 1, "a',
    '{"a": {}, "b": [',
]


#: Tokens that hold whole keys, ends and beginnings of them.
JOINTS = r"""
": |, "|{"|": 1, "|": 1, "a"|": {"a": 1, "a": 2}|{"a": 1}|{"a": 1, "a"|, "a"|"a"|a": 1|a"|b": |\"|"}|", "
", "a": |\|\\|ab|""|"|": {}, "b": {"|1, "
"""
JOINED_TEXTS = [joint for line in JOINTS.strip("\n").split("\n") for joint in line.split("|")]


class JoinedTokens(ByteTokenizer):
    """Bytes and these."""

    vocab_size = ByteTokenizer.vocab_size + len(JOINED_TEXTS)

    def text_bytes(self) -> list[bytes]:
        return [*ByteTokenizer().text_bytes(), *(text.encode() for text in JOINED_TEXTS)]


JOINED = SimpleNamespace(vocabulary=GrammarVocabulary(JoinedTokens()), texts=JoinedTokens().text_bytes())
JOINED.compiler = Compiler(JOINED.vocabulary)


def after(grammars: Any, schema: object, text: str) -> Matcher:
    """A matcher behind a text."""
    matcher: Matcher = grammars.compiler.matcher(Constraint.json_schema(schema))
    for token in grammars.tokenizer.encode(text, at_start=False) if text else ():
        matcher.consume(token)
    return matcher


def allowed(matcher: Matcher) -> list[int]:
    mask = np.zeros((1, matcher.n_words), np.uint32)
    assert matcher.masks((), mask) == 1
    found: list[int] = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
    return found


def takes(matcher: Matcher, token: int) -> bool:
    try:
        matcher.copy().consume(token)
    except ConstraintFailed:
        return False
    return True


def check(grammars: Any, matcher: Matcher) -> None:
    """Every token: allowed, taken and valid are the same."""
    found = allowed(matcher)
    every = range(grammars.vocabulary.vocab_size)
    assert [token for token in every if takes(matcher, token)] == found
    assert [token for token in every if matcher.valid_prefix_len([token]) == 1] == found
    assert allowed(matcher) == found  # nothing has changed


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_key_that_is_there_cannot_be_ended(grammars: Any, beginning: str) -> None:
    matcher = after(grammars, {"type": "object"}, beginning)
    plain = GrammarMatcher(engine_of(matcher), grammars.vocabulary)
    check(grammars, matcher)
    less = set(allowed(plain)) - set(allowed(matcher))
    assert bool(less) == BEGINNINGS[beginning]
    assert all(grammars.texts[token].startswith(b'"') for token in less)


@pytest.mark.model
def test_a_key_that_is_there_cannot_be_ended_with_a_real_vocabulary(model_grammars: Any) -> None:
    """Every token that is taken out, and some of those that are left and of all."""
    rng = np.random.default_rng(1)
    for beginning, is_there in BEGINNINGS.items():
        matcher = after(model_grammars, {"type": "object"}, beginning)
        found = allowed(matcher)
        out = set(allowed(GrammarMatcher(engine_of(matcher), model_grammars.vocabulary))) - set(found)
        assert bool(out) == is_there and all(model_grammars.texts[token].startswith(b'"') for token in out)
        assert not [token for token in out if takes(matcher, token) or matcher.valid_prefix_len([token])]
        may = set(found)
        sample = {*rng.choice(found, 30).tolist(), *rng.integers(0, model_grammars.vocabulary.vocab_size, 60).tolist()}
        assert [t for t in sample if takes(matcher, t)] == [t for t in sample if t in may]


@pytest.mark.parametrize("beginning", [*BEGINNINGS, *BETWEEN])
@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "patternProperties": {"": {}}}], ids=str)
def test_tokens_with_whole_keys_in_them(beginning: str, schema: object) -> None:
    matcher = joined(schema, beginning)
    check(JOINED, matcher)
    plain = GrammarMatcher(engine_of(matcher), JOINED.vocabulary)
    doubling = {token for token in allowed(plain) if doubled(beginning.encode() + JOINED.texts[token])}
    assert set(allowed(plain)) - set(allowed(matcher)) == doubling


def joined(schema: object, text: str) -> Matcher:
    matcher = JOINED.compiler.matcher(Constraint.json_schema(schema))
    for byte in text.encode():
        matcher.consume(byte)
    return matcher


def engine_of(matcher: Any) -> Any:
    return engine_of(matcher._matcher) if hasattr(matcher, "_matcher") else matcher._state


def doubled(beginning: bytes) -> bool:
    """Whether a text has a key twice, once something closes what is open."""
    for middle in ("", "0", ": 0", 'new"', 'new": 0', 'nnew"', 'nnew": 0'):
        for closers in ("", "}", "}}", "]}", "}]}", "]}}", "}}}", "}]}}"):
            try:
                json.loads(beginning.decode(errors="replace") + middle + closers, object_pairs_hook=unique)
            except Doubled:
                return True
            except ValueError:
                continue
    return False


class Doubled(Exception):
    """A key came twice."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise Doubled(pairs)
    return dict(pairs)


@pytest.mark.parametrize("case", OPEN, ids=lambda case: case["name"])
def test_no_walk_gives_a_key_twice(case: dict[str, Any], grammars: Any) -> None:
    compiled = grammars.compiler.matcher(Constraint.json_schema(case["schema"]))
    few = of_few_letters(grammars)
    for seed in range(8):
        json.loads(walk(grammars, compiled.copy(), few, seed), object_pairs_hook=unique)


@pytest.mark.model
def test_no_walk_gives_a_key_twice_with_a_real_vocabulary(model_grammars: Any) -> None:
    few = of_few_letters(model_grammars)
    for seed, case in enumerate(OPEN):
        matcher = model_grammars.compiler.matcher(Constraint.json_schema(case["schema"]))
        json.loads(walk(model_grammars, matcher, few, seed), object_pairs_hook=unique)


def of_few_letters(grammars: Any) -> dict[int, bytes]:
    """Tokens of which keys are made that come again."""
    return {i: text for i, text in enumerate(grammars.texts) if text and set(text) <= set(b'ab_xn-s"{}[],: 1')}


def walk(grammars: Any, matcher: Matcher, few: dict[int, bytes], seed: int) -> bytes:
    """The text of a walk whose keys want to come again."""
    rng, text = np.random.default_rng(seed), b""
    mask = np.zeros((1, matcher.n_words), np.uint32)
    for _ in range(80):
        matcher.masks((), mask)
        ids = [token for token in few if int(mask[0, token >> 5]) >> (token & 31) & 1]
        on = [token for token in ids if not set(few[token]) & set(b"}]_n-s")] or ids
        ends = [token for token in on if few[token].startswith(b'"')]
        if not on:
            break
        token = int(rng.choice(ends if ends and rng.random() < 0.5 else on))
        matcher.consume(token)
        text += few[token]
    whole: bytes = grammars.walk(matcher, rng, n_free=0, text=text)[1]
    return whole


def test_such_walks_would_give_keys_twice_without_it(byte_grammars: Any) -> None:
    n_doubled, few = 0, of_few_letters(byte_grammars)
    for seed in range(20):
        matcher = GrammarMatcher(engine_of(after(byte_grammars, {"type": "object"}, "")), byte_grammars.vocabulary)
        try:
            json.loads(walk(byte_grammars, matcher, few, seed), object_pairs_hook=unique)
        except Doubled:
            n_doubled += 1
    assert n_doubled > 2


def test_masks_along_drafts_are_those_of_single_steps(grammars: Any) -> None:
    n_cut = 0
    for schema in ({"type": "object"}, FEW):
        for seed in range(30):
            rng = np.random.default_rng(seed)
            matcher = after(grammars, schema, ['{"a": 1, ', '{"a": {}, "b": 1, "', '{"ab": 1, "a'][seed % 3])
            drafts, steps, trial = [], [], matcher.copy()
            for _ in range(8):
                ids = allowed(trial)
                steps.append(ids)
                plain = allowed(GrammarMatcher(engine_of(trial.copy()), grammars.vocabulary))
                few = [token for token in plain if set(grammars.texts[token]) <= set(b'ab": 1')]
                drafts.append(int(rng.choice(few or plain)))  # some are keys that are there
                if drafts[-1] not in ids:
                    n_cut += 1
                    break
                trial.consume(drafts[-1])
            else:
                steps.append(allowed(trial))
            out = np.full((len(drafts) + 1, matcher.n_words), 0xDEADBEEF, np.uint32)
            assert matcher.masks(drafts, out) == len(steps)
            for row, ids in zip(out, steps, strict=False):
                assert np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist() == ids
            assert matcher.valid_prefix_len(drafts) == len(steps) - 1
            assert allowed(matcher) == steps[0]
    assert n_cut > 5


def test_a_comma_may_follow_as_long_as_keys_are_left(grammars: Any) -> None:
    comma = grammars.tokenizer.encode(",", at_start=False)[0]
    for seed in range(5):
        rng, matcher, text = np.random.default_rng(seed), after(grammars, FEW, ""), b""
        while not matcher.is_accepting:
            ids = allowed(matcher)
            if b"}" in [grammars.texts[token] for token in ids]:
                used = json.loads(text + b"}" * (text.count(b"{") - text.count(b"}")))
                if text.count(b"{") - text.count(b"}") == 1 and not text.endswith((b"{", b" ")):
                    assert (comma in ids) == (set(used) != ALL_OF_FEW), text
            on = [token for token in ids if b"}" not in grammars.texts[token] and b"{" not in grammars.texts[token]]
            token = int(rng.choice(on or ids))
            matcher.consume(token)
            text += grammars.texts[token]
        assert set(json.loads(text, object_pairs_hook=unique)) == ALL_OF_FEW


def test_masks_where_few_keys_are_left(grammars: Any) -> None:
    for text in (
        '{"a": 1, "',
        '{"a": 1, "aa": 1, "ab": 1',
        '{"a": 1, "aa": 1, "ab": 1, "b": 1, "ba": 1, "',
        '{"aa": 1, "a',
    ):
        check(grammars, after(grammars, FEW, text))


def test_what_is_forced_repeats_nothing(grammars: Any) -> None:
    """One name is all that matches, so it is forced, once."""
    schema = {"type": "object", "patternProperties": {"^name$": {"const": 1}}, "additionalProperties": False}
    matcher = after(grammars, schema, '{"')
    forced = list(matcher.forced_tokens())
    assert b"".join(grammars.texts[token] for token in forced) == b'name": 1'
    for token in forced:
        assert allowed(matcher) == [token]
        matcher.consume(token)
    assert b"".join(grammars.texts[token] for token in matcher.forced_tokens()) in (b"}", b"")
    assert {grammars.texts[token] for token in allowed(matcher)} == {b"}"}


def test_where_no_key_is_left_it_says_so(byte_grammars: Any) -> None:
    """Without looking ahead."""
    looking = after(byte_grammars, {**FEW, "patternProperties": {"^(a|b)$": {"const": 1}}}, '{"a": 1')
    assert isinstance(looking, KeysLeftMatcher)
    matcher = looking._matcher.copy()
    for byte in b', "b": 1, "':
        matcher.consume(byte)
    matcher.consume(ord("a"))
    for fails in (lambda: allowed(matcher), matcher.forced_tokens):
        with pytest.raises(ConstraintFailed, match="every key that may come here"):
            fails()


def test_only_objects_with_other_keys_are_watched(byte_grammars: Any) -> None:
    for case in CASES:
        constraint = Constraint.json_schema(case["schema"])
        matcher = byte_grammars.compiler.matcher(constraint)
        assert isinstance(matcher, GrammarMatcher) == (case not in OPEN)
    for constraint in (Constraint.regex("a"), Constraint.lark('start: %json {"type": "object"}')):
        assert isinstance(byte_grammars.compiler.matcher(constraint), GrammarMatcher)
    assert isinstance(byte_grammars.compiler.matcher(Constraint.any_json()), UniqueKeysMatcher)
    assert isinstance(byte_grammars.compiler.matcher(Constraint.json_schema(FEW)), KeysLeftMatcher)


def test_keys_stay_unique_in_json_within_other_text() -> None:
    grammar = 'start: "<call>\\n" object ("; " object)? "\\n</call>"\nobject: %json {"type": "object"}'
    compiler = Compiler(GrammarVocabulary(ByteTokenizer()))
    text = b'<call>\n{"a": {"a": 1}, "b": 2}; {"a": [{"a": 1}], "a'
    watched, free = (compiler.matcher(make(grammar)) for make in (Constraint.json_lark, Constraint.lark))
    assert watched.valid_prefix_len(text + b'"') == len(text)
    assert free.valid_prefix_len(text + b'"') == len(text) + 1
    assert watched.valid_prefix_len(text + b'b": 1}\n</call>') == len(text) + 14
