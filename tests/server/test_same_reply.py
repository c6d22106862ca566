"""Greedy replies over every interface, streamed or not, while others load the server: the library's, byte for byte."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx2
import pytest

from fucina import SamplingParams
from fucina.server.state import ServerState

QUESTIONS = ("Once upon a time, there was", "The color of the sky is", "A list of fruits: apples,")
N_TOKENS = 12

pytestmark = pytest.mark.model


class Interface(NamedTuple):
    """How one of them is asked a question (or to continue a text), and where its answer says its text."""

    path: str
    body: Callable[[str], dict[str, Any]]
    whole: Callable[[Any], str]
    piece: Callable[[Any], str]
    is_raw: bool = False


def messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


INTERFACES = {
    "chat": Interface(
        "/v1/chat/completions",
        lambda text: {"messages": messages(text), "temperature": 0, "max_tokens": N_TOKENS},
        lambda reply: reply["choices"][0]["message"]["content"],
        lambda event: "".join(choice["delta"].get("content") or "" for choice in event["choices"]),
    ),
    "completions": Interface(
        "/v1/completions",
        lambda text: {"prompt": text, "temperature": 0, "max_tokens": N_TOKENS},
        lambda reply: reply["choices"][0]["text"],
        lambda event: "".join(choice["text"] for choice in event["choices"]),
        is_raw=True,
    ),
    "responses": Interface(
        "/v1/responses",
        lambda text: {"input": text, "temperature": 0, "max_output_tokens": N_TOKENS},
        lambda reply: "".join(part["text"] for item in reply["output"] for part in item["content"]),
        lambda event: event["delta"] if event["type"] == "response.output_text.delta" else "",
    ),
    "messages": Interface(
        "/v1/messages",
        lambda text: {"messages": messages(text), "temperature": 0, "max_tokens": N_TOKENS},
        lambda reply: "".join(block["text"] for block in reply["content"]),
        lambda event: event["delta"].get("text", "") if event["type"] == "content_block_delta" else "",
    ),
    "ollama chat": Interface(
        "/api/chat",
        lambda text: {"messages": messages(text), "options": {"temperature": 0, "num_predict": N_TOKENS}},
        lambda reply: reply["message"]["content"],
        lambda event: event["message"]["content"],
    ),
    "ollama generate": Interface(
        "/api/generate",
        lambda text: {"prompt": text, "raw": True, "options": {"temperature": 0, "num_predict": N_TOKENS}},
        lambda reply: reply["response"],
        lambda event: event["response"],
        is_raw=True,
    ),
}


@pytest.fixture(scope="module")
def wanted(smollm2_state: ServerState) -> dict[tuple[str, bool], str]:
    """What the library says, by question and whether that is asked raw."""
    assert smollm2_state.loaded is not None
    model, params = smollm2_state.loaded.model, SamplingParams(max_tokens=N_TOKENS)
    chats = {(text, False): model.chat(messages(text), params).text for text in QUESTIONS}
    return chats | {(text, True): model.generate(text, params).text for text in QUESTIONS}


@pytest.fixture(scope="module")
def loaded_server(smollm2_server: str) -> Iterator[str]:
    """The server, while three others ask it all the time: sampled, in a form, and leaving in the middle."""
    over = threading.Event()
    url = f"{smollm2_server}/v1/chat/completions"
    body = {"model": "smollm2", "messages": messages("Tell me a long story."), "max_tokens": 24, "seed": 3}

    def ask(extra: dict[str, Any], n_lines: int) -> None:
        with httpx2.Client(timeout=300) as client:
            while not over.is_set():
                with client.stream("POST", url, json=body | extra | {"stream": True}) as reply:
                    for _, _line in zip(range(n_lines), reply.iter_lines(), strict=False):
                        pass

    with ThreadPoolExecutor(3) as others:
        asked = [others.submit(ask, *one) for one in (({}, 1000), ({"regex": "[a-z ]+"}, 1000), ({}, 10))]
        try:
            yield smollm2_server
        finally:
            over.set()
    for one in asked:
        one.result()


def streamed(reply: httpx2.Response) -> Iterator[Any]:
    """What a stream says, as events or as lines."""
    for line in reply.text.splitlines():
        data = line.removeprefix("data: ")
        if data.startswith("{"):
            yield json.loads(data)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", INTERFACES)
def test_a_reply_is_the_librarys_under_load(
    loaded_server: str, wanted: dict[tuple[str, bool], str], name: str, streams: bool
) -> None:
    one = INTERFACES[name]

    def ask(text: str) -> str:
        body = {"model": "smollm2", "stream": streams} | one.body(text)
        reply = httpx2.post(loaded_server + one.path, json=body, timeout=300)
        assert reply.status_code == 200, reply.text
        return "".join(map(one.piece, streamed(reply))) if streams else one.whole(reply.json())

    with ThreadPoolExecutor(len(QUESTIONS)) as clients:
        said = list(clients.map(ask, QUESTIONS))
    assert said == [wanted[text, one.is_raw] for text in QUESTIONS]
    assert all(said)
