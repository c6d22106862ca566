"""Answers as values: what a schema asks for, and what was said read back as that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_origin

from fucina.decoding.grammar.constraint import Constraint
from fucina.engine.completion import Completion
from fucina.engine.constraints import Constraints, remedy
from fucina.engine.events import FinishEvent
from fucina.errors import ConfigError, ConstraintError, IncompleteAnswer

T = TypeVar("T")

#: What may stand as a schema: a mapping or JSON text, which give JSON values, or a type, which gives its instances.
Schema = Mapping[str, Any] | str | type[T]


@dataclass(frozen=True, slots=True)
class Wanted(Generic[T]):
    """A value to be asked for."""

    constraint: Constraint
    validate: Callable[[str, Any], T]  # of the JSON text and the JSON value

    def read(self, completion: Completion, constraints: Constraints) -> T:
        """Read an answer strictly. Raises IncompleteAnswer where it was cut off, else ConstraintError."""
        if not completion.satisfied:
            raise incomplete(completion, self.constraint)
        text = constraints.answer_text(completion.prompt_ids, completion.ids, completion.text)
        try:
            value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refused)
        except (ValueError, RecursionError) as error:
            raise ConstraintError(f"the answer cannot be read as JSON: {error}") from error
        # without its end a number may lack digits; everything else says itself where it is whole
        if completion.finish_reason != "stop" and isinstance(value, int | float) and not isinstance(value, bool):
            raise incomplete(completion, self.constraint)
        return self.validate(text, value)


def wanted(schema: Schema[T], constraint: Constraint | None = None) -> Wanted[Any]:
    """What a schema asks for. Raises BadSchema, ConstraintTooLarge and ConfigError."""
    if constraint is not None:
        raise ConfigError("schema", got="a constraint beside it", expected="either of them; a schema is one already")
    if isinstance(schema, Mapping | str):
        return Wanted(Constraint.json_schema(schema), lambda _, value: value)
    if not isinstance(schema, type) and get_origin(schema) is None:  # neither a class nor a type such as list[int]
        raise ConfigError("schema", got=schema, expected="a mapping, JSON text, or a type such as a pydantic model")
    return Wanted(Constraint.json_schema(schema), validator(schema))


def validator(annotation: type[T]) -> Callable[[str, Any], T]:
    """A function that makes instances of a type from JSON text."""
    import pydantic  # that it is there was found out when its schema was asked for

    adapter = pydantic.TypeAdapter(annotation)

    def validate(text: str, value: Any) -> T:
        del value
        try:
            return adapter.validate_json(text)
        except pydantic.ValidationError as error:
            raise ConstraintError(f"the answer fits the schema, but its type refuses it: {error}") from error

    return validate


def incomplete(answer: Completion | FinishEvent, constraint: Constraint) -> IncompleteAnswer:
    """The error of an answer that was cut off, with its remedy."""
    n = answer.usage.completion_tokens
    reason = answer.reason if isinstance(answer, FinishEvent) else answer.finish_reason
    if reason == "length":
        what = f"the answer ran out of tokens after {n}, before it was whole: {remedy(constraint)}"
    elif isinstance(answer.stop, str):
        what = f"the stop string {answer.stop!r} cut the answer off: constrained answers end by themselves, so drop it"
    elif reason == "stop":
        what = f"the stop token {answer.stop} cut the answer off: constrained answers end by themselves, so drop it"
    else:
        what = f"the answer was {reason} after {n} tokens, before it was whole: ask again"
    return IncompleteAnswer(what, completion=answer)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return found


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
