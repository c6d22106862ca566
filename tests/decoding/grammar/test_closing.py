"""Types name all their fields: nothing else may come, wherever in a type they stand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import jsonschema
import pydantic
import pytest

from fucina.decoding.grammar.closing import closed
from fucina.decoding.grammar.constraint import Constraint


class Inner(pydantic.BaseModel):
    properties: int
    items: list[str] = []


class Open(pydantic.BaseModel, extra="allow"):
    a: int


@dataclass
class Typed:
    t: int


class Outer(pydantic.BaseModel):
    one: Inner
    many: list[Inner]
    either: Inner | Typed
    by_name: dict[str, Inner]
    pair: tuple[Inner, int]
    anything: dict[str, Any]
    loose: Open


INNER: dict[str, Any] = {"properties": 1, "items": ["a"]}
GOOD: dict[str, Any] = {
    "one": INNER,
    "many": [INNER],
    "either": {"t": 1},
    "by_name": {"x": INNER},
    "pair": [INNER, 1],
    "anything": {"x": 1},
    "loose": {"a": 1, "b": 2},
}


def fits(value: object) -> bool:
    schema = json.loads(Constraint.json_schema(Outer).text)
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def test_what_fits_the_type_still_fits() -> None:
    assert fits(GOOD)
    Outer.model_validate(GOOD)


@pytest.mark.parametrize(
    "changed",
    [
        {"more": 1},
        {"one": {**INNER, "x": 1}},
        {"many": [{**INNER, "x": 1}]},
        {"either": {"t": 1, "x": 1}},
        {"by_name": {"x": {**INNER, "x": 1}}},
        {"pair": [{**INNER, "x": 1}, 1]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_field_that_the_type_has_not_does_not_fit(changed: dict[str, Any]) -> None:
    value = {**GOOD, **changed}
    assert jsonschema.Draft202012Validator(Outer.model_json_schema()).is_valid(value)
    assert not fits(value)


def test_a_field_may_be_called_like_a_keyword() -> None:
    schema = closed(Inner.model_json_schema())
    assert [*schema["properties"]] == ["properties", "items"]
    assert schema["properties"]["properties"] == Inner.model_json_schema()["properties"]["properties"]


def test_what_it_is_given_stays_as_it_is() -> None:
    given = Outer.model_json_schema()
    before = json.dumps(given)
    closed(given)
    assert json.dumps(given) == before
