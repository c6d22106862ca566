"""The OpenAPI 3.1 document of the server, made of its table of paths: https://spec.openapis.org/oas/v3.1.0."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import fucina
from fucina.server.endpoint import Endpoint

_REFS = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")

#: Why a request may get no answer: of any, of those with a body, and of those that wait for the model.
_ANY = {
    401: "No API key that is known",
    403: "A page of another origin",
    421: "A host name that is none of the server's",
    500: "A bug in the server",
}
_WITH_BODY = {
    400: "What the body asks cannot be, or it is no JSON",
    404: "There is no such model",
    408: "The body did not come in time",
    413: "The body is too large",
    415: "The body's type is not application/json",
    501: "A field that the server knows and does not support",
}
_OF_MODEL = {503: "The model is being loaded, or the server is about to end"}
_OF_ANSWER = {429: "Too many answers wait already", 504: "The answer took too long"}
_RETRIED = (429, 503)
#: A server-sent event; comments are none.
_EVENT = {
    "type": "object",
    "properties": {"data": {"type": "string"}, "event": {"type": "string"}},
    "required": ["data"],
}


def document(endpoints: Iterable[Endpoint], models: Collection[str] = ()) -> dict[str, Any]:
    """The document; with `models` a request's `model` is one of these names."""
    listed = list(endpoints)
    # what a reply may leave out is what a reader of it may miss, so that one mode does for both
    refs, definitions = models_json_schema([(one, "validation") for one in _types(listed)], ref_template=_REFS)
    schemas: _Schemas = {model: schema for (model, _), schema in refs.items()}
    paths: dict[str, Any] = {}
    for one in listed:
        path = _PARAMETER.sub(r"{\1}", one.path)
        paths.setdefault(path, {})[one.method.lower()] = _operation(one, schemas, models)
    components = definitions.get("$defs", {})
    if models:
        for one in listed:
            if one.body is not None:
                _name_models(components[_name_of(schemas[one.body])], models)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fucina",
            "version": fucina.__version__,
            "description": "A language model over HTTP, for the clients of OpenAI, Anthropic and Ollama.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


_Schemas = dict[Any, dict[str, Any]]  # by type


def _types(endpoints: Iterable[Endpoint]) -> list[type[BaseModel]]:
    listed = [(one.body, one.reply, one.dialect.model) for one in endpoints]
    return list(dict.fromkeys(model for models in listed for model in models if model is not None))


def _operation(one: Endpoint, schemas: _Schemas, models: Collection[str]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(one),
        "summary": one.summary,
        "tags": [one.dialect.name],
        "responses": {"200": _success(one, schemas), **_failures(one, schemas)},
        "security": [] if one.is_open else [{}, {"bearer": []}, {"key": []}],
    }
    if one.body is not None:
        content: dict[str, Any] = {"schema": schemas[one.body]}
        if one.example is not None:
            content["example"] = {**one.example} | ({"model": min(models)} if models and "model" in one.example else {})
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    named = _PARAMETER.findall(one.path)
    if named:
        kind: dict[str, Any] = {"type": "string", "minLength": 1}
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": kind} for name in named]
    return operation


def _success(one: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    schema = {"type": "string"} if one.reply is None else schemas[one.reply]
    content: dict[str, Any] = {one.media_type: {"schema": schema}}
    if one.stream is not None:
        content[one.stream] = {"schema": _EVENT if one.stream == "text/event-stream" else {"type": "string"}}
    return {"description": one.summary, "content": content}


def _failures(one: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    statuses = dict(_ANY)
    if one.needs_model:
        statuses |= _OF_MODEL
    if one.body is not None:
        statuses |= _WITH_BODY
    if "{" in one.path:
        statuses |= {404: _WITH_BODY[404]}
    if one.is_answer:
        statuses |= _OF_ANSWER
    schema = schemas[one.dialect.model]
    failures: dict[str, Any] = {}
    for status, description in sorted(statuses.items()):
        failure = {"description": description, "content": {"application/json": {"schema": schema}}}
        if status in _RETRIED:
            failure["headers"] = {"retry-after": {"schema": {"type": "integer", "minimum": 0}, "required": True}}
        failures[str(status)] = failure
    return failures


def _operation_id(one: Endpoint) -> str:
    words = re.findall(r"[a-z0-9]+", _PARAMETER.sub("one", one.path))
    return "_".join([one.method.lower(), *words])


def _name_of(ref: dict[str, Any]) -> str:
    return str(ref["$ref"]).rpartition("/")[2]


def _name_models(schema: dict[str, Any], models: Collection[str]) -> None:
    """Let a request's model be one of these."""
    field = schema["properties"].get("model")
    if field is not None:
        may_miss = "model" not in schema.get("required", ())
        schema["properties"]["model"] = {"enum": [*sorted(models), *([None] if may_miss else [])]}
