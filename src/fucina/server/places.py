"""Places in a request's body, as OpenAI's interface writes them: `messages[2].content[0].text`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel


def place(body: type[BaseModel], steps: Sequence[int | str], *, ends_in_field: bool = False) -> str:
    """The place that pydantic's steps into a body lead to; what it calls the members of unions is no part of it.

    `ends_in_field`: the last step is a field, also one that the body does not have.
    """
    path, kinds = "", [body]
    for i, step in enumerate(steps):
        inner = list(_inside(kinds, step))
        if isinstance(step, int):
            path += f"[{step}]"
        elif inner or (ends_in_field and i == len(steps) - 1):
            path = joined(path, step)
        else:
            continue  # a member of a union, inside of which it goes on
        kinds = inner
    return path


def joined(path: str, field: str) -> str:
    """The place of a field in the part at `path`."""
    return f"{path}.{field}" if path and field else path or field


def _inside(kinds: Sequence[Any], step: int | str) -> Iterator[Any]:
    """What may stand at a step into values of any of these types."""
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, field in kind.model_fields.items():
                if step == (field.alias or name):
                    yield from _members(field.annotation)
        elif get_origin(kind) is list and isinstance(step, int):
            yield from _members(get_args(kind)[0])
        elif get_origin(kind) is dict and isinstance(step, str):
            yield from _members(get_args(kind)[1])


def _members(kind: Any) -> Iterator[Any]:
    """The types that an annotation allows."""
    if get_origin(kind) is Annotated:
        yield from _members(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from _members(member)
    else:
        yield kind
