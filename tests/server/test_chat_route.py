"""POST /v1/chat/completions, by OpenAI's own client where it can say it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from fucina import SamplingParams
from fucina.server.state import ServerState

QUESTION = [{"role": "user", "content": "Name three primary colors."}]
GREEDY: dict[str, Any] = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 24}


@pytest.fixture
def client(smollm2_server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{smollm2_server}/v1", api_key="none", max_retries=0) as client:
        yield client


def post(address: str, body: dict[str, Any], **headers: str) -> httpx2.Response:
    return httpx2.post(f"{address}/v1/chat/completions", json=body, headers=headers, timeout=300)


def test_the_reply_is_the_librarys(client: openai.OpenAI, smollm2_state: ServerState) -> None:
    assert smollm2_state.loaded is not None
    wanted = smollm2_state.loaded.model.chat(QUESTION, SamplingParams(max_tokens=24))
    reply = client.chat.completions.create(**GREEDY)
    assert reply.choices[0].message.content == wanted.text
    assert reply.choices[0].finish_reason == wanted.finish_reason
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(wanted.prompt_ids), len(wanted.ids))
    streamed = list(client.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices) == wanted.text
    assert [chunk.usage is None for chunk in streamed] == [True] * (len(streamed) - 1) + [False]
    assert streamed[-1].choices == []
    assert streamed[-1].usage is not None
    assert streamed[-1].usage.completion_tokens == len(wanted.ids)


def test_choices_share_the_prompt_and_differ(client: openai.OpenAI) -> None:
    options = {**GREEDY, "temperature": 1.0, "seed": 5, "n": 3}
    reply = client.chat.completions.create(**options)
    texts = [choice.message.content for choice in reply.choices]
    assert len(set(texts)) == 3
    assert reply.usage is not None and reply.usage.completion_tokens <= 72
    again = client.chat.completions.create(**options)
    assert [choice.message.content for choice in again.choices] == texts
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(**options, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts


def test_logprobs_have_openais_shape(client: openai.OpenAI, smollm2_state: ServerState) -> None:
    assert smollm2_state.loaded is not None
    wanted = smollm2_state.loaded.model.chat(QUESTION, SamplingParams(max_tokens=24, logprobs=2))
    assert wanted.logprobs is not None
    for options in ({}, {"top_logprobs": 2}):
        logprobs = client.chat.completions.create(**GREEDY, logprobs=True, **options).choices[0].logprobs
        assert logprobs is not None and logprobs.content is not None
        said = [entry for entry in wanted.logprobs if entry.token != wanted.stop]
        assert [entry.logprob for entry in logprobs.content] == [entry.logprob for entry in said]
        assert {len(entry.top_logprobs) for entry in logprobs.content} == {options.get("top_logprobs", 0)}
        assert b"".join(bytes(entry.bytes or ()) for entry in logprobs.content).decode() == wanted.text


class Color(BaseModel):
    name: str
    is_warm: bool


def test_parse_gives_an_instance(client: openai.OpenAI) -> None:
    reply = client.chat.completions.parse(
        model="smollm2", messages=[{"role": "user", "content": "Describe red."}], response_format=Color, max_tokens=100
    )
    assert isinstance(reply.choices[0].message.parsed, Color)


@pytest.mark.parametrize(
    ("form", "reads"),
    [
        ({"response_format": {"type": "json_object"}}, json.loads),
        ({"regex": "[ab]{3}"}, lambda text: {"aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb"} & {text}),
        ({"structured_outputs": {"choice": ["yes.", "no|"]}}, lambda text: text in ("yes.", "no|")),
        (
            {"structured_outputs": {"json": {"type": "integer", "minimum": 3, "maximum": 5}}},
            lambda text: int(text) >= 3,
        ),
        ({"grammar": 'root ::= ("x" | "y") "z"'}, lambda text: text in ("xz", "yz")),
        (
            {"grammar": {"type": "lark", "value": 'start: "q" /[0-9]/'}},
            lambda text: text[0] == "q" and int(text[1]) >= 0,
        ),
        ({"lark": 'start: "only"'}, lambda text: text == "only"),
    ],
)
def test_forms_in_every_spelling(smollm2_server: str, form: dict[str, Any], reads: Callable[[str], Any]) -> None:
    reply = post(smollm2_server, GREEDY | {"max_tokens": 200} | form)
    assert reply.status_code == 200, reply.text
    content = reply.json()["choices"][0]["message"]["content"]
    assert reads(content) not in (False, set())


IMAGE = {"type": "image_url", "image_url": {"url": "x"}}
BOGUS = {"name": "x", "schema": {"type": "bogus"}}
BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"temperature": "hot"}, 400, "temperature"),
    ({"temperature": -1}, 400, "temperature"),
    ({"n": 0}, 400, "n"),
    ({"messages": []}, 400, "messages"),
    ({"messages": [{"role": "user"}]}, 400, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        501,
        "messages[0].content[0].image_url",
    ),
    ({"modalities": ["audio"]}, 501, "modalities"),
    ({"functions": []}, 501, "functions"),
    ({"chat_template": "{{ 1 }}"}, 501, "chat_template"),
    ({"temprature": 1}, 400, "temprature"),
    ({"model": "gpt-9"}, 404, "model"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "bogus"}}}},
        400,
        "response_format",
    ),
    ({"regex": "("}, 400, "regex"),
    ({"grammar": "root ::= ("}, 400, "grammar"),
    ({"regex": "a", "lark": 'start: "a"'}, 400, "lark"),
    ({"logit_bias": {"one": 1}}, 400, "logit_bias.one"),
    ({"messages": [{"role": "user", "content": "word " * 9000}]}, 400, "messages"),
]


@pytest.mark.parametrize(("fields", "status", "param"), BAD, ids=[str(i) for i in range(len(BAD))])
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_name_the_field(
    smollm2_server: str, fields: dict[str, Any], status: int, param: str, stream: bool
) -> None:
    reply = post(smollm2_server, GREEDY | fields | {"stream": stream})
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["param"] == param, error
    assert error["message"]


def test_no_json_is_told_as_such(smollm2_server: str) -> None:
    url = f"{smollm2_server}/v1/chat/completions"
    for content in (b"", b"{", b"[" * 100_000, b"\xff", b'{"model": NaN}'):
        reply = httpx2.post(url, content=content, headers={"content-type": "application/json"})
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error"), content
    reply = httpx2.post(url, content=b"{}", headers={"content-type": "text/plain"})
    assert reply.status_code == 415


def test_the_context_error_tells_both_numbers(smollm2_server: str) -> None:
    reply = post(smollm2_server, GREEDY | {"messages": [{"role": "user", "content": "word " * 9000}]})
    error = reply.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "8192" in error["message"] and "90" in error["message"]


def endless(prefix: Sequence[int]) -> int:
    return 97 + len(prefix) % 26


def test_a_full_queue_says_when_to_come_back(serve: Callable[..., str]) -> None:
    address = serve(endless, parallel=1, queue=0)
    body = {"model": "scripted", "messages": QUESTION, "stream": True, "ignore_eos": True, "max_tokens": 400}
    with httpx2.stream("POST", f"{address}/v1/chat/completions", json=body) as running:
        lines = running.iter_lines()
        next(lines)
        reply = post(address, body | {"stream": False})
        if reply.status_code == 200:  # the first one was quicker
            return
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.json()["error"]["type"] == "rate_limit_error"
