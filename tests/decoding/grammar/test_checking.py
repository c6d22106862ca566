"""What of a schema is refused, and that the error says where and which keyword."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fucina.decoding.grammar.checking import CheckedSchema
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.keywords import ANNOTATIONS, HONOURED, REFUSED
from fucina.decoding.grammar.schema import canonical_schema, unbounded_paths
from fucina.errors import BadSchema, ConstraintError, ConstraintTooLarge

REFUSALS: list[tuple[Any, str, str | None]] = [
    ({"type": "object", "properties": {"name": "string"}}, "$.properties.name", None),
    ({"type": "object", "properties": {"a b": []}}, '$.properties["a b"]', None),
    (False, "$", None),
    ({"type": "text"}, "$", "type"),
    ({"type": []}, "$", "type"),
    ({"items": {"not": {}}}, "$.items", "not"),
    ({"anyOf": [{}, {"if": {}}]}, "$.anyOf[1]", "if"),
    ({"$defs": {"unused": {"contains": {}}}}, "$.$defs.unused", "contains"),
    ({"uniqueItems": True}, "$", "uniqueItems"),
    ({"type": "string", "nullable": True}, "$", "nullable"),
    ({"x-guidance": {"lenient": True}}, "$", "x-guidance"),
    ({"properties": {"a": {"required": True}}}, "$.properties.a", "required"),
    ({"required": ["a", "a"]}, "$", "required"),
    ({"tipe": "string"}, "$", "tipe"),
    ({"format": "color"}, "$", "format"),
    ({"minLength": -1}, "$", "minLength"),
    ({"maxItems": 1.5}, "$", "maxItems"),
    ({"maxItems": True}, "$", "maxItems"),
    ({"maxItems": 10**9}, "$", "maxItems"),
    ({"exclusiveMinimum": True}, "$", "exclusiveMinimum"),
    ({"minimum": 1e30}, "$", "minimum"),
    ({"multipleOf": 0}, "$", "multipleOf"),
    ({"multipleOf": 1000003}, "$", "multipleOf"),
    ({"const": 2**60}, "$", "const"),
    ({"enum": []}, "$", "enum"),
    ({"enum": ["a\x00b"]}, "$", "enum"),
    ({"properties": {"\x7f": {}}}, "$", "properties"),
    ({"allOf": []}, "$", "allOf"),
    ({"$ref": "https://example.org/other"}, "$", "$ref"),
    ({"$ref": "#/$defs/none"}, "$", "$ref"),
    ({"$ref": "#/examples/0", "examples": [{}]}, "$", "$ref"),
    ({"$defs": {"a": {"$id": "b"}}}, "$.$defs.a", "$id"),
    ({"prefixItems": [{}], "items": [{}]}, "$", "items"),
    ({"items": {}, "additionalItems": {}}, "$", "additionalItems"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "$", "oneOf"),
    ({"oneOf": [{"type": "object"}, {"type": "object", "required": ["a"]}]}, "$", "oneOf"),
    ({"type": "object", "minProperties": 2}, "$", "minProperties"),
    ({"pattern": "[a&&b]"}, "$", "pattern"),
    ({"pattern": "a" * 5000}, "$", "pattern"),
]
#: Refused by the engine, whose words name no place.
ENGINE_REFUSALS: list[tuple[Any, str, str | None]] = [
    ({"properties": {"a": {"type": "string", "pattern": "(?=a)b"}}}, "$.properties.a", "pattern"),
    ({"items": {"anyOf": [{"type": "null"}, {"pattern": r"(a)\1", "type": "string"}]}}, "$.items.anyOf[1]", "pattern"),
    ({"properties": {"a": {"type": "string", "pattern": "a**("}}}, "$.properties.a", "pattern"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "$", "minLength"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "$", "minimum"),
    ({"type": "string", "format": "date", "pattern": "^x"}, "$", "pattern"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "$.$defs.a", "$ref"),
]


@pytest.mark.parametrize(("schema", "path", "keyword"), REFUSALS, ids=lambda value: str(value)[:40])
def test_what_cannot_be_honoured_is_named(schema: Any, path: str, keyword: str | None) -> None:
    with pytest.raises(BadSchema) as caught:
        Constraint.json_schema(schema)
    assert (caught.value.path, caught.value.keyword) == (path, keyword)


@pytest.mark.parametrize(("schema", "path", "keyword"), ENGINE_REFUSALS, ids=lambda value: str(value)[:40])
def test_what_the_engine_refuses_is_named_too(schema: Any, path: str, keyword: str | None, byte_grammars: Any) -> None:
    with pytest.raises(BadSchema) as caught:
        byte_grammars.compiler.matcher(Constraint.json_schema(schema))
    assert (caught.value.path, caught.value.keyword) == (path, keyword)


@pytest.mark.parametrize("keyword", sorted(REFUSED))
def test_refused_keywords_say_why(keyword: str) -> None:
    with pytest.raises(BadSchema, match="cannot be honoured") as caught:
        Constraint.json_schema({"properties": {"a": {keyword: {}}}})
    assert (caught.value.path, caught.value.keyword) == ("$.properties.a", keyword)


def test_no_keyword_is_in_two_tables() -> None:
    assert not HONOURED.keys() & REFUSED.keys() and not ANNOTATIONS & (HONOURED.keys() | REFUSED.keys())


@pytest.mark.parametrize(
    "text",
    [
        '{"a"',
        '{"type":"string","type":"null"}',
        '{"const":NaN}',
        '{"const":1e999}',
        '{"const":-Infinity}',
        '{"a":01}',
        "",
    ],
)
def test_json_text_is_read_strictly(text: str) -> None:
    with pytest.raises(BadSchema):
        Constraint.json_schema(text)


def test_values_that_json_has_not_are_refused() -> None:
    for value in (
        {1: 2},
        {"const": {1, 2}},
        {"const": float("nan")},
        {"const": "\ud800"},
        {"const": 10**40},
        {"a": b""},
    ):
        with pytest.raises(BadSchema):
            Constraint.json_schema(value)


def test_what_is_too_large_is_refused_at_once() -> None:
    circle: dict[str, Any] = {}
    circle["items"] = circle
    deep: Any = {}
    for _ in range(1000):
        deep = {"items": deep}
    enormous = "x" * (100 << 20)
    cases = {
        "a huge text": f'{{"enum":["{enormous}"]}}',
        "a huge string": {"enum": [enormous]},
        "a huge list": {"enum": ["x" * 100] * 1_000_000},
        "deep": deep,
        "deep text": '{"items":' * 1000 + "{}" + "}" * 1000,
        "very deep text": "[" * 1_000_000,
        "itself": circle,
        "many small values": {"enum": [[]] * 200_000},
    }
    for name, schema in cases.items():
        started = time.process_time()
        with pytest.raises(ConstraintTooLarge):
            Constraint.json_schema(schema)
        assert time.process_time() - started < 2, name  # some 0.1 s at most


def test_equal_content_is_an_equal_constraint_and_order_is_kept() -> None:
    text = '{ "type" : "object",\n "properties": {"z": {}, "a": {"const": "é"}} }'
    assert Constraint.json_schema(text) == Constraint.json_schema(json.loads(text))
    assert hash(Constraint.json_schema(text)) == hash(Constraint.json_schema(json.loads(text)))
    assert canonical_schema(text) == '{"type":"object","properties":{"z":{},"a":{"const":"é"}}}'
    other_order = {"properties": {"a": {"const": "é"}, "z": {}}}
    assert Constraint.json_schema({"type": "object", **other_order}) != Constraint.json_schema(text)


_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
_KEYS = st.sampled_from([*HONOURED, *sorted(ANNOTATIONS), *REFUSED, "other"])
_ANYTHING = st.recursive(
    _SCALARS | st.sampled_from(["string", "object", "#", "#/$defs/a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150)
@given(st.dictionaries(_KEYS, _ANYTHING, max_size=5))
def test_whatever_comes_is_checked_or_refused(schema: dict[str, Any]) -> None:
    """Nothing but a typed error, for a mapping as for its text."""
    try:
        constraint = Constraint.json_schema(schema)
    except ConstraintError:
        return
    json.dumps(CheckedSchema(constraint.text).for_engine())
    assert all(path.startswith("$") for path in unbounded_paths(constraint))
    assert Constraint.json_schema(json.dumps(schema)) == constraint


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ({"type": "string"}, ["$"]),
        ({"type": "string", "maxLength": 5}, []),
        ({"type": "string", "format": "date"}, []),
        ({"type": "string", "format": "uri"}, ["$"]),
        ({"type": "string", "pattern": "^[a+]{1,3}$"}, []),
        ({"type": "string", "pattern": "^a+$"}, ["$"]),
        ({"type": "string", "pattern": "^a|b$"}, ["$"]),
        ({"type": "string", "pattern": "abc"}, ["$"]),
        ({"enum": ["a", "b"]}, []),
        ({"type": "integer"}, ["$"]),
        ({"type": "integer", "minimum": 0, "maximum": 9}, []),
        ({"type": "number", "minimum": 0, "maximum": 9}, ["$"]),
        ({"type": "number", "minimum": 0, "maximum": 9, "multipleOf": 0.5}, []),
        ({"type": "array", "items": {"type": "null"}}, ["$"]),
        ({"type": "array", "items": {"type": "null"}, "maxItems": 3}, []),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, ["$.prefixItems[0]"]),
        ({"type": "object", "properties": {"a": {"type": "null"}}}, ["$"]),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
            ["$.properties.a"],
        ),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, []),
        ({"anyOf": [{"type": "null"}, {"type": "string"}], "maxLength": 3}, []),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, ["$.anyOf[1]"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}, "b": {"type": "string"}}}, ["$"]),
        (
            {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
                "additionalProperties": False,
            },
            ["$"],
        ),
        (True, ["$"]),
    ],
    ids=str,
)
def test_values_without_end_are_found(schema: Any, paths: list[str]) -> None:
    assert list(unbounded_paths(Constraint.json_schema(schema))) == paths


def test_other_constraints_have_no_paths() -> None:
    assert unbounded_paths(Constraint.regex("a+")) == unbounded_paths(Constraint.lark('start: "a"')) == ()
