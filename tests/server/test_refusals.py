"""Whatever is refused is named with its place, in every interface, however deep in a request it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import httpx2
import pytest
from pydantic import BaseModel

from fucina.server.paths import ENDPOINTS
from fucina.server.wire.contents import Unsupported
from fucina.server.wire.fields import policies

BODIES = {one.path: one.body for one in ENDPOINTS if one.body is not None}
#: A type of the vendor's where a part does not list them.
A_TYPE = "web_search_20250305"


def members(kind: Any) -> Iterator[Any]:
    """The types that an annotation allows."""
    if get_origin(kind) is Annotated:
        yield from members(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from members(member)
    elif kind is not type(None):
        yield kind


def least(kind: Any) -> Any:
    """Some value of a type."""
    first = next(members(kind))
    if get_origin(first) is Literal:
        return get_args(first)[0]
    if get_origin(first) is list:
        return [least(get_args(first)[0])]
    if isinstance(first, type) and issubclass(first, BaseModel):
        return least_part(first)
    return {str: "a", int: 1, float: 1.0, bool: True}.get(first, {})


def least_part(part: type[BaseModel]) -> dict[str, Any]:
    """What a part must have at least, and its type where it has one."""
    fields = part.model_fields.items()
    return {
        field.alias or name: least(field.annotation)
        for name, field in fields
        if field.is_required() or (name == "type" and get_origin(field.annotation) is Literal)
    }


def refused_in(part: type[BaseModel]) -> Iterator[tuple[dict[str, Any], str]]:
    """Values of a part that are refused, and the place in them."""
    if issubclass(part, Unsupported):
        for kind in get_args(part.model_fields["type"].annotation) or [A_TYPE]:
            yield {"type": kind}, ""
            yield {"type": kind, kind: {}}, f".{kind}"
        return
    for name, policy in policies(part):
        sent = part.model_fields[name].alias or name
        if policy.kind == "refused":
            yield least_part(part) | {sent: "something else"}, f".{sent}"
            continue
        for kind in members(part.model_fields[name].annotation):
            for value, place in refused_values(kind):
                yield least_part(part) | {sent: value}, f".{sent}{place}"


def refused_values(kind: Any) -> Iterator[tuple[Any, str]]:
    """Values of a type that are refused, and the place in them; in lists behind a sound one."""
    if get_origin(kind) is list:
        for one in members(get_args(kind)[0]):
            for value, place in refused_values(one):
                yield [least(get_args(kind)[0]), value], f"[1]{place}"
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from refused_in(kind)


@pytest.mark.parametrize("path", BODIES)
def test_whatever_is_refused_is_named_with_its_place(serve: Callable[..., str], path: str) -> None:
    cases = list(refused_in(BODIES[path]))
    with httpx2.Client(base_url=serve(lambda _: 97)) as client:
        for body, where in cases:
            place, reply = where.removeprefix("."), client.post(path, json=body)
            error = reply.json()["error"]
            told = error if isinstance(error, str) else error["message"]
            assert (reply.status_code, told.partition(":")[0]) == (501, place), (body, told)
            if "param" in error and isinstance(error, dict):
                assert error["param"] == place


def test_places_are_as_deep_as_the_interfaces_have_them() -> None:
    places = {place for body in BODIES.values() for _, place in refused_in(body)}
    assert {
        ".messages[1].content[1].image_url",  # chat
        ".messages[1].function_call",
        ".messages[1].content[1].content[1]",  # Anthropic: an image in what a tool gave back
        ".tools[1].input_examples",
        ".input[1].content[1]",  # responses
        ".input[1].async",
        ".text.verbosity",
        ".messages[1].images",  # Ollama
        ".options.mirostat",
        ".suffix",  # completions
    } <= places


TEXT = {"role": "user", "content": "x"}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    (
        "/v1/chat/completions",
        {"messages": [TEXT, {"role": "user", "content": [{"type": "text"}]}]},
        "messages[1].content[0].text",
    ),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x", "user": 1}]}, "messages[0].user"),
    (
        "/v1/chat/completions",
        {"messages": [TEXT], "tool_choice": {"type": "function", "function": {}}},
        "tool_choice.function.name",
    ),
    ("/v1/chat/completions", {"messages": [TEXT], "tool_choice": {"type": "nothing"}}, "tool_choice"),
    ("/v1/chat/completions", {"messages": [TEXT], "a b": 1}, "a b"),
    (
        "/v1/chat/completions",
        {"messages": [TEXT], "response_format": {"type": "json_schema", "json_schema": {}}},
        "response_format.json_schema.name",
    ),
    ("/v1/chat/completions", {"messages": [TEXT], "grammar": {"type": "nothing", "value": ""}}, "grammar.type"),
    ("/v1/completions", {"prompt": "x", "stop": 5}, "stop"),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    (
        "/v1/messages",
        {"messages": [{"role": "user", "content": [{"type": "text"}]}], "max_tokens": 1},
        "messages[0].content[0].text",
    ),
    ("/api/chat", {"messages": [{"role": "user", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
]


@pytest.mark.parametrize(("path", "body", "place"), WRONG, ids=[place for _, _, place in WRONG])
def test_what_is_wrong_is_named_without_the_words_of_its_types(
    serve: Callable[..., str], path: str, body: dict[str, Any], place: str
) -> None:
    reply = httpx2.post(f"{serve(lambda _: 97)}{path}", json={"model": "scripted", **body})
    error = reply.json()["error"]
    told = error if isinstance(error, str) else error["message"]
    assert reply.status_code == 400
    assert told.startswith(f"{place}: ") or f"'{place}'" in told, told
    assert isinstance(error, str) or error.get("param", place) == place
