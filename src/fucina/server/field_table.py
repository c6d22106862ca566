"""What becomes of each field of a request, as rows for the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

from fucina.server.wire.fields import Policy, WirePart, policies

#: What becomes of a field, in words.
WORDS = {"honored": "honoured", "bookkeeping": "bookkeeping", "refused": "refused"}


class FieldRow(NamedTuple):
    """A field: its name as it is sent, its type in words, what becomes of it, and why or how."""

    name: str
    type: str
    what: str
    note: str
    is_required: bool


def rows(part: type[BaseModel]) -> list[FieldRow]:
    """A row for each field of a request or of a part of one: first what must be given, last what is refused."""
    schema = part.model_json_schema()
    if "properties" not in schema:  # no value of such a part is valid
        return [_refused_part(part, schema)]
    found = [_row(part, schema, name, policy) for name, policy in policies(part)]
    order = list(WORDS.values())
    return sorted(found, key=lambda row: (not row.is_required, order.index(row.what)))


def parts(request: type[BaseModel]) -> list[type[BaseModel]]:
    """The parts that a request is made of, in the order they are met, without itself."""
    found: dict[type[BaseModel], None] = {}
    _collect(request, found)
    found.pop(request, None)
    return list(found)


def _collect(part: type[BaseModel], found: dict[type[BaseModel], None]) -> None:
    if part in found:
        return
    found[part] = None
    for field in part.model_fields.values():
        for inner in _parts_in(field.annotation):
            _collect(inner, found)


def _parts_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, WirePart):
        yield annotation
    for inner in get_args(annotation):
        yield from _parts_in(inner)


def _refused_part(part: type[BaseModel], schema: dict[str, Any]) -> FieldRow:
    kinds = get_args(part.model_fields["type"].annotation)
    note = str(schema.get("description", "")).removeprefix("Refused: ").removesuffix(".")
    return FieldRow("type", " or ".join(map(_shown, kinds)) or "all others", WORDS["refused"], note, True)


def _row(part: type[BaseModel], schema: dict[str, Any], name: str, policy: Policy) -> FieldRow:
    field = part.model_fields[name]
    sent = field.alias or name
    note = policy.note
    if policy.kind == "refused":
        values = [value for value in policy.neutral if value is not None]
        taken = ", ".join(_shown(value) for value in values)
        note += f"; {taken} is taken" if taken else ""
    elif policy.kind == "bookkeeping":
        note = ""
    kind = "" if policy.kind == "refused" else _type(schema["properties"][sent])
    return FieldRow(sent, kind, WORDS[policy.kind], note, field.is_required())


def _type(schema: dict[str, Any]) -> str:
    """A type in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            words = [_type(one) for one in schema[union] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(words))
    if "const" in schema:
        return _shown(schema["const"])
    if "enum" in schema:
        return " or ".join(_shown(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") in ("integer", "number"):
        return _number(schema)
    return {"string": "text", "boolean": "true or false", "object": "object"}.get(str(schema.get("type")), "anything")


def _number(schema: dict[str, Any]) -> str:
    word = "whole number" if schema["type"] == "integer" else "number"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and "exclusiveMinimum" in schema:
        word, low = f"{word} above {schema['exclusiveMinimum']:g}", None
        return f"{word} to {high:g}" if high is not None else word
    if high is not None and abs(high) < 2**31 - 1:
        return f"{word} from {low:g} to {high:g}"
    return f"{word} from {low:g}" if low is not None and abs(low) < 2**31 else word


def _shown(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
