"""The interface's description: complete, tight, and true to the vendors' own clients."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin, get_type_hints

import httpx2
import jsonschema
import pytest
from pydantic import BaseModel

from fucina.server.field_table import parts, rows
from fucina.server.openapi import document
from fucina.server.paths import DESCRIBED
from fucina.server.wire.chat_replies import ChatReply
from fucina.server.wire.fields import WirePart, policies

DOCUMENT = document(DESCRIBED, ("model",))
BODIES = {one.path: one.body for one in DESCRIBED if one.body is not None}

#: Where the vendors' clients write down what each path takes.
CLIENTS = {
    "/v1/chat/completions": ("openai.types.chat.completion_create_params", "CompletionCreateParams"),
    "/v1/completions": ("openai.types.completion_create_params", "CompletionCreateParams"),
    "/v1/embeddings": ("openai.types.embedding_create_params", "EmbeddingCreateParams"),
    "/v1/responses": ("openai.types.responses.response_create_params", "ResponseCreateParams"),
    "/v1/messages": ("anthropic.types.message_create_params", "MessageCreateParams"),
    "/v1/messages/count_tokens": ("anthropic.types.message_count_tokens_params", "MessageCountTokensParams"),
}


def params_of(module: str, name: str) -> set[str]:
    """The fields of a TypedDict, or of several that are one type."""
    kind = getattr(importlib.import_module(module), name)
    kinds = get_args(kind) if get_origin(kind) is Union else (kind,)
    return {field for one in kinds for field in get_type_hints(one)}


@pytest.mark.parametrize("path", sorted(CLIENTS.keys() & BODIES.keys()))
def test_every_field_of_the_vendors_clients_is_known(path: str) -> None:
    fields = params_of(*CLIENTS[path])
    assert len(fields) >= 4, "the client's types have moved"
    assert fields - set(BODIES[path].model_fields) == set()


def every_part() -> set[type[BaseModel]]:
    return {part for body in BODIES.values() for part in (body, *parts(body))}


def test_every_field_has_a_row() -> None:
    for part in every_part():
        assert issubclass(part, WirePart)
        assert {row.name for row in rows(part)} == {part.model_fields[name].alias or name for name, _ in policies(part)}
        refusals = [policy for _, policy in policies(part) if policy.kind == "refused"]
        assert all(policy.note and None in policy.neutral for policy in refusals)


def test_every_path_tells_of_all_that_can_come() -> None:
    assert {re.sub(":path", "", one.path) for one in DESCRIBED} == set(DOCUMENT["paths"])
    for one in DESCRIBED:
        operation = DOCUMENT["paths"][re.sub(":path", "", one.path)][one.method.lower()]
        assert one.reply is not None or one.path in ("/metrics", "/docs", "/openapi.json")
        wanted = {"200", "401", "403", "421", "500"} | ({"400", "404", "413", "415", "501"} if one.body else set())
        assert wanted <= set(operation["responses"])
        if one.body is not None:
            assert one.example is not None
            one.body.model_validate_json(json.dumps(one.example))


def test_schemas_are_tight_and_sound() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        if schema.get("type") == "object" and not name.endswith(("Error", "Failure")):
            assert schema["additionalProperties"] is False, name
    refs = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))
    assert refs == set(schemas)
    assert schemas["CompletionRequest"]["properties"]["suffix"]["enum"] == [None, ""]
    assert schemas["CompletionRequest"]["properties"]["model"] == {"enum": ["model"]}


def test_a_live_server_describes_itself(serve: Callable[..., str]) -> None:
    address = serve(lambda _: 97)
    told = httpx2.get(f"{address}/openapi.json").json()
    assert told["components"]["schemas"]["ChatRequest"]["properties"]["model"] == {"enum": ["alias", "scripted"]}
    page = httpx2.get(f"{address}/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    for one in DESCRIBED:
        if one.body is not None:
            assert f"<code>{one.path}</code>" in page.text
            assert all(f"<code>{row.name}</code>" in page.text for row in rows(one.body))
    assert "http" not in re.sub(r"http://localhost:8080", "", page.text), "the page asks nobody else for anything"


def test_names_of_models_are_for_those_with_a_key(serve: Callable[..., str]) -> None:
    address = serve(lambda _: 97, api_keys=("a-long-secret",))
    reply = httpx2.get(f"{address}/openapi.json")
    assert reply.status_code == 200 and "scripted" not in reply.text
    assert httpx2.get(f"{address}/v1/models").status_code == 401


def test_other_methods_are_told_which_there_are(serve: Callable[..., str]) -> None:
    reply = httpx2.delete(f"{serve(lambda _: 97)}/v1/completions")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


def test_parts_refuse_too(serve: Callable[..., str]) -> None:
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": "x", "function_call": {"name": "f"}}]
    reply = httpx2.post(f"{serve(lambda _: 97)}/v1/chat/completions", json={"model": "scripted", "messages": messages})
    assert (reply.status_code, reply.json()["error"]["code"]) == (501, "unsupported")


def test_replies_are_what_the_document_tells(serve: Callable[..., str]) -> None:
    address = serve(lambda prefix: 97 + len(prefix) % 26)
    chat = {"model": "scripted", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
    for more in ({}, {"n": 2}, {"logprobs": True, "top_logprobs": 2, "token_details": True}):
        reply = httpx2.post(f"{address}/v1/chat/completions", json=chat | more)
        ChatReply.model_validate_json(reply.content)
    for one in DESCRIBED:
        if one.method == "GET" and one.reply is not None:
            reply = httpx2.get(address + one.path.replace("{model:path}", "alias"))
            assert reply.status_code == 200
            one.reply.model_validate_json(reply.content)
