"""Ollama's interface: what its documentation says of each path, and greedy answers equal to the library's."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import httpx2
import numpy as np
import pytest

from fucina import SamplingParams
from fucina.engine.model import Model
from fucina.server.state import ServerState
from fucina.server.wire import ollama_replies as replies

QUESTION = [{"role": "user", "content": "Name three primary colors."}]
GREEDY: dict[str, Any] = {"temperature": 0, "num_predict": 16}


@pytest.fixture
def model(smollm2_state: ServerState) -> Model:
    assert smollm2_state.loaded is not None
    return smollm2_state.loaded.model


def post(address: str, path: str, body: dict[str, Any]) -> httpx2.Response:
    return httpx2.post(address + path, json={"model": "smollm2"} | body, timeout=300)


def lines(reply: httpx2.Response) -> list[dict[str, Any]]:
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


def test_chat_is_the_librarys_whole_or_streamed(smollm2_server: str, model: Model) -> None:
    wanted = model.chat(QUESTION, SamplingParams(max_tokens=16))
    body = {"messages": QUESTION, "options": GREEDY}
    reply = post(smollm2_server, "/api/chat", body | {"stream": False})
    whole = replies.OllamaChatReply.model_validate_json(reply.content)
    assert (whole.message.content, whole.done_reason, whole.done) == (wanted.text, wanted.finish_reason, True)
    assert (whole.prompt_eval_count, whole.eval_count) == (len(wanted.prompt_ids), len(wanted.ids))
    assert whole.total_duration and whole.eval_duration and whole.total_duration >= whole.eval_duration
    datetime.fromisoformat(whole.created_at)
    pieces = lines(post(smollm2_server, "/api/chat", body))  # streams by itself
    for piece in pieces:
        replies.OllamaChatReply.model_validate(piece)
    assert "".join(piece["message"]["content"] for piece in pieces) == wanted.text
    assert [piece["done"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1]["eval_count"] == len(wanted.ids)


def test_generate_asks_by_the_template_or_raw(smollm2_server: str, model: Model) -> None:
    asked = {"prompt": "Why is the sky blue?", "options": GREEDY, "stream": False}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": asked["prompt"]}]
    wanted = model.chat(messages, SamplingParams(max_tokens=16))
    reply = post(smollm2_server, "/api/generate", asked | {"system": "Be brief."})
    assert replies.GenerateReply.model_validate_json(reply.content).response == wanted.text
    raw = model.generate("Why is the sky blue?", SamplingParams(max_tokens=16))
    assert post(smollm2_server, "/api/generate", asked | {"raw": True}).json()["response"] == raw.text
    pieces = lines(post(smollm2_server, "/api/generate", asked | {"raw": True, "stream": True}))
    assert "".join(piece["response"] for piece in pieces) == raw.text


def test_forms_are_kept(smollm2_server: str) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    for form in ("json", schema):
        body = {
            "messages": QUESTION,
            "format": form,
            "stream": False,
            "options": {"temperature": 0, "num_predict": 200},
        }
        reply = post(smollm2_server, "/api/chat", body).json()
        if reply["done_reason"] == "stop":
            assert isinstance(json.loads(reply["message"]["content"]), dict)
        else:  # some JSON object may go on for ever
            assert form == "json" and reply["message"]["content"].lstrip().startswith("{")


def test_options_choose_the_same_tokens_as_in_the_library(smollm2_server: str, model: Model) -> None:
    params = SamplingParams(
        temperature=0.9, top_k=30, top_p=0.8, min_p=0.02, seed=7, repeat_penalty=1.2, penalty_window=None, max_tokens=16
    )
    options = {
        "temperature": 0.9,
        "top_k": 30,
        "top_p": 0.8,
        "min_p": 0.02,
        "seed": 7,
        "repeat_penalty": 1.2,
        "repeat_last_n": -1,
        "num_predict": 16,
        "num_ctx": 2048,
        "num_thread": 3,
    }
    reply = post(smollm2_server, "/api/chat", {"messages": QUESTION, "options": options, "stream": False})
    assert reply.json()["message"]["content"] == model.chat(QUESTION, params).text


def test_logprobs_are_told(smollm2_server: str, model: Model) -> None:
    wanted = model.chat(QUESTION, SamplingParams(max_tokens=16, logprobs=2)).logprobs
    body = {"messages": QUESTION, "options": GREEDY, "logprobs": True, "top_logprobs": 2}
    whole = post(smollm2_server, "/api/chat", body | {"stream": False}).json()["logprobs"]
    pieces = lines(post(smollm2_server, "/api/chat", body))
    assert wanted is not None
    assert [one["logprob"] for one in whole] == [one.logprob for one in wanted]
    assert [one for piece in pieces for one in piece.get("logprobs", ())] == whole
    assert {len(one["top_logprobs"]) for one in whole} == {2}


def test_nothing_asked_tells_that_the_model_is_there(smollm2_server: str) -> None:
    for path, body in (("/api/chat", {"messages": []}), ("/api/chat", {}), ("/api/generate", {"keep_alive": "5m"})):
        reply = post(smollm2_server, path, body).json()
        assert (reply["done"], reply["done_reason"]) == (True, "load")


def test_vectors_are_the_librarys_and_long_texts_are_cut(smollm2_server: str, model: Model) -> None:
    texts = ["a red apple", "word " * 9000]
    reply = replies.EmbedReply.model_validate_json(post(smollm2_server, "/api/embed", {"input": texts[:1]}).content)
    assert np.array_equal(np.array(reply.embeddings, np.float32), model.embed(texts[:1]).vectors)
    refused = post(smollm2_server, "/api/embed", {"input": texts, "truncate": False})
    assert refused.status_code == 400 and "inputs[1]" in refused.json()["error"]


def test_long_texts_are_cut_where_they_are_embedded(serve: Callable[..., str]) -> None:
    address = serve(letters)
    reply = httpx2.post(f"{address}/api/embed", json={"model": "scripted", "input": "x" * 600}).json()
    assert reply["prompt_eval_count"] == 512


def test_the_model_is_told_of(smollm2_server: str, model: Model) -> None:
    def get(path: str) -> bytes:
        return httpx2.get(smollm2_server + path).content

    assert replies.VersionReply.model_validate_json(get("/api/version")).version
    (listed,) = replies.TagsReply.model_validate_json(get("/api/tags")).models
    (loaded,) = replies.PsReply.model_validate_json(get("/api/ps")).models
    assert listed.name == loaded.name == "smollm2:latest"
    assert (listed.details.family, listed.details.parameter_size) == ("llama", "134.52M")
    shown = replies.ShowReply.model_validate_json(post(smollm2_server, "/api/show", {"model": listed.name}).content)
    assert shown.model_info["llama.context_length"] == loaded.context_length == model.context
    assert "im_start" in shown.template


BAD: list[tuple[str, dict[str, Any], int, str]] = [
    ("/api/chat", {"model": "gpt-9", "messages": QUESTION}, 404, "gpt-9"),
    ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, 501, "images"),
    ("/api/chat", {"messages": QUESTION, "options": {"mirostat": 2}}, 501, "mirostat"),
    ("/api/chat", {"messages": QUESTION, "options": {"mirostat": False}}, 501, "mirostat"),
    ("/api/chat", {"messages": QUESTION, "options": {"num_ctx": 10**6}}, 400, "num_ctx"),
    ("/api/chat", {"messages": QUESTION, "options": {"temprature": 1}}, 400, "options.temprature"),
    ("/api/chat", {"messages": QUESTION, "format": {"type": "bogus"}}, 400, "type"),
    ("/api/generate", {"prompt": "x", "context": [1, 2]}, 501, "context"),
    ("/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, 501, "template"),
    ("/api/generate", {"prompt": "x", "suffix": "y"}, 501, "suffix"),
    ("/api/generate", {"prompt": "x", "raw": True, "system": "y"}, 400, "system"),
    ("/api/embed", {"input": "x", "dimensions": 64}, 501, "dimensions"),
    ("/api/show", {"model": None}, 400, "model"),
    ("/api/pull", {}, 404, "/api/pull"),
]


@pytest.mark.parametrize(("path", "body", "status", "told"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_refusals_are_ollamas(smollm2_server: str, path: str, body: dict[str, Any], status: int, told: str) -> None:
    reply = post(smollm2_server, path, body)
    assert reply.status_code == status, reply.text
    assert told in reply.json()["error"] and len(reply.json()) == 1


def letters(prefix: Sequence[int]) -> int:
    return 97 + len(prefix) % 26


CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2]}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def calling(prefix: Sequence[int]) -> int:
    said = len(prefix) - 1 - max(i for i, token in enumerate(prefix) if token == 260)
    return CALL.encode()[said] if said < len(CALL) else 257


def test_calls_come_whole_with_their_arguments_as_objects(serve: Callable[..., str]) -> None:
    address = serve(calling, context=2048)
    told = [
        *QUESTION,
        {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]},
        {"role": "tool", "tool_name": "add", "content": "3"},
    ]
    body = {"model": "scripted", "messages": told, "tools": TOOLS, "options": {"temperature": 0}}
    whole = post(address, "/api/chat", body | {"stream": False})
    message = replies.OllamaChatReply.model_validate_json(whole.content).message
    assert message.tool_calls is not None and message.content == ""
    assert [(one.function.name, one.function.arguments) for one in message.tool_calls] == [("add", {"a": 1, "b": [2]})]
    pieces = lines(post(address, "/api/chat", body))
    calls = [call for piece in pieces for call in piece["message"].get("tool_calls", ())]
    assert [call["function"] for call in calls] == [{"name": "add", "arguments": {"a": 1, "b": [2]}}]
    assert (pieces[-1]["done"], pieces[-1]["done_reason"]) == (True, "stop")


def test_a_model_that_cannot_think_is_not_told_to(serve: Callable[..., str]) -> None:
    address = serve(calling)
    body = {"model": "scripted", "messages": QUESTION, "stream": False, "options": {"num_predict": 3}}
    assert post(address, "/api/chat", body | {"think": False}).status_code == 200
    refused = post(address, "/api/chat", body | {"think": True})
    assert refused.status_code == 400 and "enable_thinking" in refused.json()["error"]
