"""POST /v1/completions, by OpenAI's own client where it can say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isclose
from typing import Any

import httpx2
import numpy as np
import openai
import pytest

from fucina import SamplingParams
from fucina.engine.model import Model
from fucina.server.state import ServerState
from fucina.server.wire.completions import CompletionReply

PROMPT = "The capital of France is"
GREEDY: dict[str, Any] = {"model": "smollm2", "temperature": 0, "max_tokens": 12}


@pytest.fixture
def client(smollm2_server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{smollm2_server}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def model(smollm2_state: ServerState) -> Model:
    assert smollm2_state.loaded is not None
    return smollm2_state.loaded.model


def post(address: str, body: dict[str, Any]) -> httpx2.Response:
    return httpx2.post(f"{address}/v1/completions", json=body, timeout=300)


def test_the_reply_is_the_librarys_whole_or_streamed(client: openai.OpenAI, model: Model) -> None:
    wanted = model.generate(PROMPT, SamplingParams(max_tokens=12))
    reply = client.completions.create(**GREEDY, prompt=PROMPT)
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == (wanted.text, wanted.finish_reason)
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(wanted.prompt_ids), len(wanted.ids))
    streamed = list(
        client.completions.create(**GREEDY, prompt=PROMPT, stream=True, stream_options={"include_usage": True})
    )
    assert "".join(chunk.choices[0].text for chunk in streamed if chunk.choices) == wanted.text
    assert streamed[-1].usage is not None and streamed[-1].choices == []
    assert streamed[-1].usage.completion_tokens == len(wanted.ids)


def test_a_prompt_is_text_or_tokens_or_many_of_them(client: openai.OpenAI, model: Model) -> None:
    texts = [PROMPT, "One, two,"]
    ids = [model.speech.prompt_ids(text) for text in texts]
    wanted = [model.generate(text, SamplingParams(max_tokens=12)).text for text in texts]
    assert client.completions.create(**GREEDY, prompt=ids[0]).choices[0].text == wanted[0]
    for prompt in (texts, ids):
        reply = client.completions.create(**GREEDY, prompt=prompt, n=2)  # type: ignore[arg-type]
        assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
        assert [choice.text for choice in reply.choices] == [wanted[0], wanted[0], wanted[1], wanted[1]]
        assert reply.usage is not None and reply.usage.prompt_tokens == sum(map(len, ids))
        streamed = [""] * 4
        for chunk in client.completions.create(**GREEDY, prompt=prompt, n=2, stream=True):  # type: ignore[arg-type]
            streamed[chunk.choices[0].index] += chunk.choices[0].text
        assert streamed == [choice.text for choice in reply.choices]


def test_sixteen_tokens_are_given_where_none_is_said(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="smollm2", prompt=PROMPT, temperature=0, extra_body={"ignore_eos": True})
    assert reply.usage is not None and reply.usage.completion_tokens == 16


def test_an_echoed_prompt_has_the_models_own_log_probabilities(client: openai.OpenAI, model: Model) -> None:
    reply = client.completions.create(**GREEDY, prompt=PROMPT, echo=True, logprobs=2)
    choice, ids = reply.choices[0], model.speech.prompt_ids(PROMPT)
    assert choice.text.startswith(PROMPT)
    logprobs = choice.logprobs
    assert logprobs is not None and logprobs.tokens is not None and logprobs.text_offset is not None
    assert logprobs.token_logprobs is not None and logprobs.top_logprobs is not None
    assert "".join(logprobs.tokens) == choice.text
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        assert choice.text.startswith(token, offset)
    assert (logprobs.token_logprobs[0], logprobs.top_logprobs[0]) == (None, None)
    logits = model.logits(ids).astype(np.float64)
    for i, token in enumerate(ids[1:]):
        row = logits[i] - logits[i].max()
        # numpy sums in another order
        assert isclose(logprobs.token_logprobs[i + 1], row[token] - np.log(np.exp(row).sum()), abs_tol=1e-9)
    assert all(top is None or 2 <= len(top) <= 3 for top in logprobs.top_logprobs)
    streamed = list(client.completions.create(**GREEDY, prompt=PROMPT, echo=True, logprobs=2, stream=True))
    assert "".join(chunk.choices[0].text for chunk in streamed) == choice.text
    offsets = [
        at for chunk in streamed if chunk.choices[0].logprobs for at in chunk.choices[0].logprobs.text_offset or ()
    ]
    assert offsets == logprobs.text_offset


def test_tokens_that_are_no_characters_are_shown_as_bytes(serve: Callable[..., str]) -> None:
    said = "aé€".encode()
    address = serve(lambda prefix: said[len(prefix) - 2] if len(prefix) < 2 + len(said) else 257)
    body = {"model": "scripted", "prompt": "x", "temperature": 0, "logprobs": 0}
    choice = post(address, body).json()["choices"][0]
    assert choice["text"] == "aé€"
    assert choice["logprobs"]["tokens"] == ["a", *(f"bytes:\\x{byte:02x}" for byte in said[1:])]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2, 2, 2]
    assert [set(top) for top in choice["logprobs"]["top_logprobs"]] == [{name} for name in choice["logprobs"]["tokens"]]


def test_replies_are_of_the_type_that_the_document_tells(serve: Callable[..., str]) -> None:
    address = serve(lambda prefix: 97 + len(prefix) % 26)
    for more in ({}, {"echo": True, "logprobs": 3}, {"n": 2, "stop": "d"}):
        reply = post(address, {"model": "scripted", "prompt": ["ab", "c"]} | more)
        CompletionReply.model_validate_json(reply.content)


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"suffix": "x"}, 501, "suffix"),
    ({"best_of": 2}, 501, "best_of"),
    ({"best_of": True}, 501, "best_of"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"logprobs": True}, 400, "logprobs"),
    ({"n": 100}, 400, "n"),
    ({"grammar": ""}, 400, "grammar"),
    ({"messages": []}, 400, "messages"),
    ({"prompt": "x" * 600}, 400, "prompt"),
    ({"model": "gpt-9"}, 404, "model"),
]


@pytest.mark.parametrize(("fields", "status", "param"), BAD, ids=[str(i) for i in range(len(BAD))])
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_is_refused_by_name(
    serve: Callable[..., str], fields: dict[str, Any], status: int, param: str, stream: bool
) -> None:
    address = serve(letters)
    reply = post(address, {"model": "scripted", "prompt": "x", "stream": stream} | fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text


def letters(prefix: Sequence[int]) -> int:
    return 97 + len(prefix) % 26


@pytest.mark.parametrize("prompt", [[], [[]], ["a", 1], [1, [2]], [-1], None, {}])
def test_what_is_no_prompt_is_refused(serve: Callable[..., str], prompt: Any) -> None:
    reply = post(serve(letters), {"model": "scripted", "prompt": prompt})
    assert reply.status_code == 400 and reply.json()["error"]["param"].startswith("prompt"), reply.text
