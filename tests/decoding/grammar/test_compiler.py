"""Bad input ends in a typed error, soon and without much memory; what was compiled is kept and shared safely."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fucina.decoding.grammar.compiler import Compiler
from fucina.decoding.grammar.constraint import Constraint
from fucina.errors import BadGrammar, BadSchema, ConstraintError, ConstraintFailed, ConstraintTooLarge

_ABC = [f"d{i}" for i in range(6000)]
BAD: dict[str, tuple[Callable[[], Constraint], type[ConstraintError]]] = {
    "open group": (lambda: Constraint.regex("(a"), BadGrammar),
    "nothing to repeat": (lambda: Constraint.regex("*a"), BadGrammar),
    "look-around": (lambda: Constraint.regex("(?=a)a"), BadGrammar),
    "back-reference": (lambda: Constraint.regex(r"(a)\1"), BadGrammar),
    "not even UTF-8": (lambda: Constraint.regex(r"(?-u:\xff)"), BadGrammar),
    "60,000 groups": (lambda: Constraint.regex("(" * 60_000 + "a" + ")" * 60_000), ConstraintTooLarge),
    "7,000 groups": (lambda: Constraint.regex("(" * 7000 + "a" + ")" * 7000), BadGrammar),
    "a million times": (lambda: Constraint.regex("a{1000000}"), ConstraintTooLarge),
    "a?a?a?...": (lambda: Constraint.regex("a?" * 5000), ConstraintTooLarge),
    "bad Lark": (lambda: Constraint.lark("start: )"), BadGrammar),
    "no start": (lambda: Constraint.lark('foo: "a"'), BadGrammar),
    "no text at all": (lambda: Constraint.lark("start: start"), BadGrammar),
    "token by name": (lambda: Constraint.lark('start: "a" <|im_end|>'), BadGrammar),
    "token by number": (lambda: Constraint.lark('start: "a" <[2]>'), BadGrammar),
    "another grammar": (lambda: Constraint.lark("start: @other"), BadGrammar),
    "attributes": (lambda: Constraint.lark('start[temperature=2]: "a"'), BadGrammar),
    "complement": (lambda: Constraint.lark('start: A\nA: ~"b"'), BadGrammar),
    "nested Lark": (lambda: Constraint.lark("start: " + "(" * 9000 + '"a"' + ")" * 9000), ConstraintTooLarge),
    "Lark that doubles": (
        lambda: Constraint.lark("\n".join(f"R{i}: R{i + 1} R{i + 1}" for i in range(30)) + '\nR30: "b"\nstart: R0'),
        ConstraintTooLarge,
    ),
    "long chain of rules": (
        lambda: Constraint.lark(
            "start: r0\n" + "\n".join(f'r{i}: r{i + 1} | "a"' for i in range(1990)) + '\nr1990: "b"'
        ),
        ConstraintTooLarge,
    ),
    "%json with a bad keyword": (lambda: Constraint.lark('start: %json {"not": {}}'), BadSchema),
    "property is text": (lambda: Constraint.json_schema({"properties": {"a": "string"}}), BadSchema),
    "long chain of $ref": (
        lambda: Constraint.json_schema(
            {
                "$ref": "#/$defs/d0",
                "$defs": {a: {"$ref": f"#/$defs/{b}"} for a, b in pairwise(_ABC)} | {_ABC[-1]: {}},
            }
        ),
        ConstraintTooLarge,
    ),
    "10,000 properties": (
        lambda: Constraint.json_schema({"type": "object", "properties": {f"p{i}": {} for i in range(10_000)}}),
        ConstraintTooLarge,
    ),
    "multiples of many": (
        lambda: Constraint.json_schema({"allOf": [{"type": "integer", "multipleOf": m} for m in (9973, 9967, 9949)]}),
        ConstraintTooLarge,
    ),
    "product of alternatives": (
        lambda: Constraint.json_schema(
            {"allOf": [{"anyOf": [{"properties": {f"a{i}_{k}": {}}} for k in range(10)]} for i in range(8)]}
        ),
        ConstraintTooLarge,
    ),
    "required for ever": (
        lambda: Constraint.json_schema({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        ConstraintTooLarge,
    ),
    "repeated repetition": (
        lambda: Constraint.json_schema({"type": "string", "pattern": "(a{1,1000}){1,1000}", "minLength": 3000}),
        ConstraintTooLarge,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_a_typed_error_soon(name: str, byte_grammars: Any) -> None:
    make, expected = BAD[name]
    before, started = _rss_bytes(), time.process_time()
    with pytest.raises(ConstraintError) as caught:
        byte_grammars.compiler.matcher(make())
    assert type(caught.value) is expected, caught.value
    assert time.process_time() - started < 10  # some 0.2 s at most
    assert _rss_bytes() - before < 300 << 20
    assert len(str(caught.value)) < 1000
    assert (
        byte_grammars.walk(byte_grammars.compiler.matcher(Constraint.regex("ok")), np.random.default_rng(0))[1] == b"ok"
    )


WILD = {
    "doubled star": Constraint.regex("foo**"),
    "(a|aa)*": Constraint.regex("((a|aa)*){1,100}b"),
    "squared": Constraint.regex("(a{1,1000}){1,1000}"),
    ".*a.{500}": Constraint.regex("(.*a.{500}){2}"),
    "nested quantifiers": Constraint.regex("((((((a{0,30}){0,30}){0,30}){0,30}){0,30}){0,30})"),
    "Unicode": Constraint.regex(r"(\w|\s|\d){1,1000}x(\p{L}{3,90}){1,50}"),
    "alternatives": Constraint.regex("|".join(f"word{i}" for i in range(1500))),
    "empty alternatives": Constraint.regex("(|a|)*(||b)"),
    "ambiguous": Constraint.lark('start: e\ne: e e | "a" | e e e |'),
    "repeated rules": Constraint.lark('start: a{1,1000}\na: b{1,1000}\nb: c{1,1000}\nc: "x"'),
    "left recursion": Constraint.lark('start: a\na: a "x" | b\nb: a | "y"'),
    "pattern": Constraint.json_schema({"type": "string", "pattern": r"\w{1,500}.*a.{500}"}),
    "enum of 20,000": Constraint.json_schema({"enum": [f"value {i}" for i in range(20_000)]}),
    "items of items": Constraint.json_schema(
        {"type": "array", "maxItems": 1000, "items": {"type": "array", "maxItems": 1000, "items": {"type": "integer"}}}
    ),
}


@pytest.mark.parametrize("name", WILD)
def test_wild_grammars_stay_within_bounds_or_give_up(name: str, byte_grammars: Any) -> None:
    matcher = byte_grammars.compiler.matcher(WILD[name])
    rng, before = np.random.default_rng(1), _rss_bytes()
    try:
        for _ in range(200):
            started = time.process_time()
            ids = byte_grammars.allowed(matcher)
            matcher.consume(int(rng.choice(ids)))
            assert time.process_time() - started < 5  # some 0.1 s at most
    except ConstraintFailed as error:
        assert "cannot be followed" in str(error)
    assert _rss_bytes() - before < 300 << 20


def test_equal_constraints_are_compiled_once_and_copies_are_on_their_own(byte_grammars: Any, monkeypatch: Any) -> None:
    compiler = Compiler(byte_grammars.vocabulary, max_kept=2)
    compiled: list[Constraint] = []
    compile_one = compiler._compile
    monkeypatch.setattr(compiler, "_compile", lambda constraint: compiled.append(constraint) or compile_one(constraint))
    a, b, c = (Constraint.regex(pattern) for pattern in ("aa", "bb", "cc"))
    first, second = compiler.matcher(a), compiler.matcher(Constraint.regex("aa"))
    first.consume(ord("a"))
    first.consume(ord("a"))
    assert first.is_complete and not second.is_accepting and compiled == [a]
    for constraint in (b, a, c, a, b):  # b is the one not used for longest when c comes
        compiler.matcher(constraint)
    assert compiled == [a, b, c, b]


def test_long_texts_are_kept_only_up_to_a_limit(byte_grammars: Any) -> None:
    compiler = Compiler(byte_grammars.vocabulary, max_kept_text=100)
    for letter in "abc":
        compiler.matcher(Constraint.regex(letter * 60))
    assert [constraint.text[0] for constraint in compiler._kept] == ["c"]


def test_many_threads_may_compile(byte_grammars: Any) -> None:
    compiler = Compiler(byte_grammars.vocabulary)
    answers: list[bytes] = []

    def work(seed: int) -> None:
        for i in range(4):
            constraint = Constraint.regex(f"answer {i} [xy]{{2}}")
            answers.append(byte_grammars.walk(compiler.matcher(constraint), np.random.default_rng(seed))[1])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer[:8] for answer in answers) == sorted(
        f"answer {i}".encode() for i in range(4) for _ in range(4)
    )


def test_errors_hold_little_of_the_schema(byte_grammars: Any) -> None:
    with pytest.raises(BadSchema) as caught:
        byte_grammars.compiler.matcher(
            Constraint.json_schema(
                {"properties": {"a": {"type": "string", "pattern": "(", "description": "secret" * 999}}}
            )
        )
    assert "secret" not in str(caught.value) and len(str(caught.value)) < 500


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_lark_grammar_may_hold_schemas(byte_grammars: Any) -> None:
    """Checked like any other, and written like any other."""
    grammar = (
        '// %json {"not": 1} is a comment\nstart: "a<b@[~]::" %json {"type":"array","items":{"const":1}} /x[<~]?/ | "/"'
    )
    compiled = byte_grammars.compiler.matcher(Constraint.lark(grammar))
    for seed in range(5):
        text = byte_grammars.walk(compiled.copy(), np.random.default_rng(seed), n_free=20)[1].decode()
        if text != "/":
            middle = text.removeprefix("a<b@[~]::")
            value, end = json.JSONDecoder().raw_decode(middle)
            assert (
                set(value) <= {1}
                and middle[:end] == json.dumps(value)
                and middle[end:] in ("x[<~]", "x<", "x[", "x~", "x")
            )
