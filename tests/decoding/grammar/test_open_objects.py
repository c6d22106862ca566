"""Which schemas take objects with keys that they do not name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from fucina.decoding.grammar.checking import CheckedSchema
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.open_objects import has_other_keys

CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
TEXT = {"type": "string"}
NO_OTHER_KEYS: dict[str, Any] = {
    "scalar": {"type": ["string", "number", "null"]},
    "constants": {"enum": [{"a": {}}, [1]]},
    "one constant": {"const": {"a": [{}]}},
    "closed": CLOSED,
    "items": {"type": "array", "items": CLOSED},
    "tuple with an end": {"type": "array", "prefixItems": [TEXT, CLOSED], "maxItems": 2},
    "tuple with described rest": {"type": "array", "prefixItems": [TEXT], "items": False},
    "list of draft 7": {"type": "array", "items": [TEXT], "additionalItems": CLOSED},
    "branches": {"anyOf": [CLOSED, TEXT, {"type": "null"}]},
    "branches of a closed object": {**CLOSED, "anyOf": [{"required": ["a"]}, {"properties": {"a": {"const": 1}}}]},
    "closed beside a reference": {"$ref": "#/$defs/x", "$defs": {"x": CLOSED}},
    "closed by one of two": {"allOf": [CLOSED, {"type": "object", "required": ["a"]}]},
    "recursive": {**CLOSED, "properties": {"more": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}},
    "definition that nothing uses": {**CLOSED, "$defs": {"x": {"type": "object"}}},
}
OTHER_KEYS: dict[str, Any] = {
    "any value": True,
    "no keywords": {},
    "any object": {"type": "object"},
    "open": {"type": "object", "properties": {"a": TEXT}},
    "map": {"type": "object", "additionalProperties": TEXT},
    "patterns": {**CLOSED, "patternProperties": {"^x": TEXT}},
    "no type": {"minimum": 3},
    "in a property": {**CLOSED, "properties": {"a": {"type": "object"}}},
    "array of anything": {"type": "array"},
    "rest of a tuple": {"type": "array", "prefixItems": [TEXT]},
    "rest of a list of draft 7": {"type": "array", "items": [TEXT], "maxItems": 2},
    "in an item": {"type": "array", "items": {"type": "object"}},
    "in a branch": {"anyOf": [CLOSED, {"type": "object", "properties": {"b": TEXT}}]},
    "behind a reference": {"$ref": "#/$defs/x", "$defs": {"x": {"type": "object"}}},
    "closed here and open there": {
        **CLOSED,
        "properties": {
            "a": {"$ref": "#/$defs/x"},
            "b": {"allOf": [{"$ref": "#/$defs/x"}, {"additionalProperties": False}]},
        },
        "$defs": {"x": {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}},
    },
    "many parts": {"allOf": [{"$ref": "#/$defs/x"} for _ in range(100)], "$defs": {"x": CLOSED}},
}


def told(schema: object) -> bool:
    return has_other_keys(CheckedSchema(Constraint.json_schema(schema).text))


@pytest.mark.parametrize("name", NO_OTHER_KEYS)
def test_schemas_that_name_all_keys(name: str) -> None:
    assert not told(NO_OTHER_KEYS[name])


@pytest.mark.parametrize("name", OTHER_KEYS)
def test_schemas_that_do_not(name: str) -> None:
    assert told(OTHER_KEYS[name])


@dataclass
class Inner:
    texts: list[str]
    pair: tuple[int, str]


@dataclass
class Outer:
    inner: Inner
    more: list[Inner] | None


@dataclass
class Scores:
    scores: dict[str, int]


def test_a_type_names_all_its_fields() -> None:
    pytest.importorskip("pydantic")
    assert not told(Outer)
    assert told(Scores)


def test_it_takes_no_long_time() -> None:
    branches = {"anyOf": [{"properties": {f"p{i}": {"type": "object"}}} for i in range(200)]}
    text = json.dumps({"type": "array", "items": {"allOf": [branches] * 50}})
    assert has_other_keys(CheckedSchema(text))
