"""The keywords of JSON schemas: what is honoured, what says nothing about a value, what is refused, and why.

Drafts 7 and 2020-12. docs/reference/constraints.md shows the same table to people; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fucina.decoding.grammar.formats import FORMATS

#: What the value of each honoured keyword must be; see `fault_of`.
HONOURED: Mapping[str, str] = {
    "type": "types",
    "enum": "values",
    "const": "value",
    "properties": "schemas",
    "patternProperties": "schemas",
    "additionalProperties": "schema",
    "required": "names",
    "minProperties": "count",
    "maxProperties": "count",
    "items": "schema or list",
    "prefixItems": "list",
    "additionalItems": "schema",
    "minItems": "count",
    "maxItems": "count",
    "minLength": "count",
    "maxLength": "count",
    "pattern": "pattern",
    "format": "format",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "step",
    "allOf": "list",
    "anyOf": "list",
    "oneOf": "list",
    "$ref": "reference",
    "$defs": "schemas",
    "definitions": "schemas",
}

#: What says nothing about a value. It is taken out, so that no wording can change a grammar.
ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"),
        *("$comment", "$schema", "$id", "$anchor", "discriminator", "externalDocs", "xml"),
        *("contentEncoding", "contentMediaType", "contentSchema"),
    }
)

_LATER = "what it asks for depends on what comes later in an answer, which no grammar can know"
#: Keywords of the drafts that cannot be enforced.
REFUSED: Mapping[str, str] = {
    "not": "a grammar says what may come, not what may not; say it with enum, pattern, minimum or maximum",
    "if": "conditions cannot be enforced; use anyOf with a const in each branch",
    "then": "conditions cannot be enforced; use anyOf with a const in each branch",
    "else": "conditions cannot be enforced; use anyOf with a const in each branch",
    "contains": _LATER,
    "minContains": _LATER,
    "maxContains": _LATER,
    "uniqueItems": _LATER,
    "dependencies": "dependencies cannot be enforced; use anyOf with a branch for each case",
    "dependentRequired": "dependencies cannot be enforced; use anyOf with a branch for each case",
    "dependentSchemas": "dependencies cannot be enforced; use anyOf with a branch for each case",
    "unevaluatedItems": "it cannot be enforced; use items",
    "unevaluatedProperties": "it cannot be enforced; use additionalProperties",
    "propertyNames": "it cannot be enforced; use patternProperties with additionalProperties false",
    "$dynamicRef": "only $ref is followed",
    "$dynamicAnchor": "only $ref and $anchor are followed",
    "$recursiveRef": "only $ref is followed",
    "$recursiveAnchor": "only $ref and $anchor are followed",
    "$vocabulary": "other vocabularies are not known",
    "nullable": 'JSON schemas say it with a list of types, such as ["string", "null"]',
    "id": "it is a keyword of draft 4 only; use $id",
    "x-guidance": "it would change how the grammar is made",
}

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

#: Whole numbers up to here are exact wherever JSON is read.
MAX_EXACT = (1 << 53) - 1
#: multipleOf costs memory with the digits of its argument, read without the decimal point.
MAX_STEP = 10_000
_MAX_COUNT = 1_000_000


def fault_of(keyword: str, value: object) -> str | None:
    """Say what is wrong with the value of an honoured keyword, or None."""
    return _FAULTS[HONOURED[keyword]](value)


def _expect(fits: bool, what: str) -> str | None:
    return None if fits else f"it must be {what}"


def is_schema(value: object) -> bool:
    """Whether it can be a schema at all: an object, true or false."""
    return isinstance(value, bool | dict)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _types(value: Any) -> str | None:
    listed = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(name, str) and name in TYPES for name in listed):
        return f"it must be one of {', '.join(TYPES)}, or a list of them"
    return None


def _count(value: Any) -> str | None:
    if not _is_number(value) or value != int(value) or value < 0:
        return "it must be a whole number, at least 0"
    return _expect(value <= _MAX_COUNT, f"at most {_MAX_COUNT}")


def _number(value: Any) -> str | None:
    if not _is_number(value):
        return "it must be a number"
    return _expect(abs(value) <= MAX_EXACT, f"at most {MAX_EXACT} either way: beyond that numbers are not exact")


def _step(value: Any) -> str | None:
    if not _is_number(value) or value <= 0:
        return "it must be a number above 0"
    digits = f"{value:.17g}" if isinstance(value, int) else repr(value)
    mantissa, _, exponent = digits.partition("e")
    significant = int(mantissa.replace(".", "").strip("0") or "0") if "." in mantissa else int(mantissa)
    if significant > MAX_STEP or abs(int(exponent or 0)) > 15:
        return f"its digits may amount to {MAX_STEP} at most, as in {MAX_STEP}, 0.01 or 2.5"
    return None


def _schemas(value: Any) -> str | None:
    return _expect(isinstance(value, dict), "an object whose values are schemas")


def _list(value: Any) -> str | None:
    return _expect(isinstance(value, list) and len(value) > 0, "a list of schemas, not empty")


def _names(value: Any) -> str | None:
    fits = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return _expect(fits and len(set(value)) == len(value), "a list of different names")


def _format(value: Any) -> str | None:
    if isinstance(value, str) and value in FORMATS:
        return None
    return f"the format {value!r} cannot be enforced; known are {', '.join(FORMATS)}"[:300]


_FAULTS: Mapping[str, Callable[[Any], str | None]] = {
    "types": _types,
    "values": lambda value: _expect(isinstance(value, list) and len(value) > 0, "a list of values, not empty"),
    "value": lambda _: None,
    "schemas": _schemas,
    "schema": lambda value: _expect(is_schema(value), "a schema: an object, true or false"),
    "schema or list": lambda value: _expect(is_schema(value) or isinstance(value, list), "a schema or a list of them"),
    "list": _list,
    "names": _names,
    "count": _count,
    "number": _number,
    "step": _step,
    "pattern": lambda value: _expect(isinstance(value, str), "a regular expression"),
    "format": _format,
    "reference": lambda value: _expect(isinstance(value, str), "text such as #/$defs/name"),
}
