"""Constraints as values, and from types."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Annotated, Literal

import pydantic
import pytest

from fucina.decoding.grammar.constraint import Constraint
from fucina.errors import BadGrammar, BadSchema, ConfigError, ConstraintTooLarge


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, pydantic.Field(ge=0, le=9, description="Nine at most")]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str


class Home(pydantic.BaseModel):
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
    others: list[Dog] = []


@dataclasses.dataclass
class Point:
    y: int
    x: float = 0.0


def test_types_are_described_by_pydantic(byte_grammars: object) -> None:
    properties = json.loads(Constraint.json_schema(Home).text)["properties"]
    assert list(properties) == ["pet", "others"]
    assert list(json.loads(Constraint.json_schema(Point).text)["properties"]) == ["y", "x"]
    assert json.loads(Constraint.json_schema(list[int]).text) == {"items": {"type": "integer"}, "type": "array"}
    assert json.loads(Constraint.json_schema(Literal["a", "b"]).text)["enum"] == ["a", "b"]
    for constraint in (Constraint.json_schema(Home), Constraint.json_schema(Point)):
        byte_grammars.compiler.matcher(constraint)  # type: ignore[attr-defined]


def test_what_a_type_asks_for_and_cannot_get_is_named() -> None:
    with pytest.raises(BadSchema) as caught:
        Constraint.json_schema(set[int])
    assert caught.value.keyword == "uniqueItems"


def test_what_is_no_type_is_refused() -> None:
    for wrong in (3, object(), [1, 2]):
        with pytest.raises(ConfigError):
            Constraint.json_schema(wrong)


def test_types_need_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ConfigError, match="pip install pydantic"):
        Constraint.json_schema(Point)
    assert Constraint.json_schema({"type": "null"}).kind == "json_schema"


def test_constraints_are_values() -> None:
    constraint = Constraint.regex("a+")
    assert constraint == Constraint("regex", "a+") and {constraint: 1}[Constraint.regex("a+")] == 1
    assert Constraint.any_json() == Constraint.json_schema({"type": "object"})
    assert Constraint.regex("a") != Constraint.lark("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        constraint.text = "b"  # type: ignore[misc]


def test_texts_are_checked() -> None:
    for make in (Constraint.regex, Constraint.lark):
        with pytest.raises(ConstraintTooLarge):
            make("a" * 100_000)
        with pytest.raises(BadGrammar):
            make("")
        with pytest.raises(BadGrammar):
            make("\udc80")
        with pytest.raises(ConfigError):
            make(b"a")  # type: ignore[arg-type]
