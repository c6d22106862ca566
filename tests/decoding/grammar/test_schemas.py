"""Two hundred schemas: whatever their grammars allow is strict JSON, fits the schema, and has its keys in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.schema import checked_schema

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("schemas.json").read_text())


def strict(text: bytes) -> Any:
    """Parse JSON that every parser takes: UTF-8, no NaN, no control characters in strings, no key twice."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(text.decode("utf-8"), parse_constant=refuse, object_pairs_hook=unique)


def check_answer(case: dict[str, Any], text: bytes) -> None:
    schema, value = case["schema"], strict(text)
    if case.get("regex", True):  # else a pattern that Python's engine does not know
        validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        validator(schema, format_checker=validator.FORMAT_CHECKER).validate(value)
    if isinstance(schema, dict) and isinstance(value, dict) and "allOf" not in schema and "$ref" not in schema:
        declared = [name for name in schema.get("properties", {}) if name in value]
        assert [name for name in value if name in declared] == declared
    # one way of writing white space, outside of strings
    assert text == json.dumps(value, ensure_ascii=False).encode() or b"\\" in text or any(c in text for c in b"eE.-")


def test_there_are_two_hundred() -> None:
    assert len(CASES) >= 200
    assert len({case["name"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_every_answer_fits(case: dict[str, Any], byte_grammars: Any) -> None:
    compiled = byte_grammars.compiler.matcher(Constraint.json_schema(case["schema"]))
    for seed in range(3):
        _, text = byte_grammars.walk(compiled.copy(), np.random.default_rng(seed), n_free=20 + 40 * seed)
        check_answer(case, text)


@pytest.mark.model
def test_every_answer_fits_with_a_real_vocabulary(model_grammars: Any) -> None:
    for case in CASES:
        compiled = model_grammars.compiler.matcher(Constraint.json_schema(case["schema"]))
        _, text = model_grammars.walk(compiled, np.random.default_rng(1), n_free=25)
        check_answer(case, text)


@pytest.mark.parametrize("case", CASES[::7], ids=lambda case: case["name"])
def test_descriptions_never_change_the_grammar(case: dict[str, Any]) -> None:
    words = {
        "title": "T",
        "description": '"{[}] \\u0000 <|im_end|>',
        "$comment": "c",
        "examples": [[{}]],
        "default": None,
    }
    rng = np.random.default_rng(7)

    def described(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        new = {key: described_value(key, value) for key, value in node.items()}
        for word in rng.permutation(list(words))[: rng.integers(0, 5)]:
            new.setdefault(str(word), words[str(word)])
        return new

    def described_value(key: str, value: Any) -> Any:
        if key in ("properties", "patternProperties", "$defs", "definitions"):
            return {name: described(inner) for name, inner in value.items()}
        if key in ("allOf", "anyOf", "oneOf", "prefixItems") or (key == "items" and isinstance(value, list)):
            return [described(inner) for inner in value]
        return described(value) if key in ("items", "additionalProperties", "additionalItems") else value

    plain = checked_schema(Constraint.json_schema(case["schema"]).text).for_engine()
    for _ in range(5):
        worded = checked_schema(Constraint.json_schema(described(case["schema"])).text).for_engine()
        assert json.dumps(worded) == json.dumps(plain)
