"""Answers that grow: readers that stop, leave or only wait, and failures on the way."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any

import httpx2
import pytest

from fucina.engine.service import Ticket
from fucina.server import inbox

CONTEXT = 8192
QUESTION: dict[str, Any] = {
    "model": "scripted",
    "messages": [{"role": "user", "content": "hi"}],
    "ignore_eos": True,
    "temperature": 0,
}
#: Chunks of two kilobytes, of which no socket holds thousands.
HUGE: dict[str, Any] = {**QUESTION, "stream": True, "logprobs": True, "top_logprobs": 20}


def letters(prefix: Sequence[int]) -> int:
    return 97 + len(prefix) % 26


def slow_letters(prefix: Sequence[int]) -> int:
    sleep(0.02)
    return letters(prefix)


def silent_reader(address: str, body: dict[str, Any]) -> socket.socket:
    """Ask, and read nothing."""
    host, port = address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    client.sendall(head.encode() + f"content-length: {len(data)}\r\n\r\n".encode() + data)
    return client


def eventually(holds: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Whether it comes true in time."""
    end = monotonic() + seconds
    while not (now := holds()) and monotonic() < end:
        sleep(0.01)
    return now


def test_a_stopped_reader_holds_his_answer_and_nobody_elses(served: Callable[..., Any]) -> None:
    server = served(letters, context=CONTEXT)
    model = server.state.loaded.model
    with silent_reader(server.address, HUGE):
        seen = [-1]

        def stands_still() -> bool:
            before, seen[0] = seen[0], model.counters.tokens
            sleep(0.3)
            return before == seen[0] > 0

        assert eventually(stands_still)
        assert model.counters.tokens < CONTEXT - 100
        other = httpx2.post(f"{server.address}/v1/chat/completions", json=QUESTION | {"max_tokens": 300}, timeout=300)
        assert other.json()["usage"]["completion_tokens"] == 300
    assert eventually(lambda: server.state.n_live == 0)
    assert eventually(lambda: model.counters.finished["cancelled"] == 1)
    model.forget_prefixes()
    assert server.scripted.kv_pool.n_free == server.scripted.kv_pool.capacity


def test_a_reader_who_reads_again_gets_everything(served: Callable[..., Any]) -> None:
    server = served(letters, context=CONTEXT)
    with httpx2.stream("POST", f"{server.address}/v1/chat/completions", json=HUGE, timeout=300) as reply:
        text, n_chunks = "", 0
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                text += choice["delta"].get("content", "")
                n_chunks += 1
                if n_chunks == 10:
                    sleep(1)
    wanted = httpx2.post(f"{server.address}/v1/chat/completions", json=QUESTION, timeout=300).json()
    assert text == wanted["choices"][0]["message"]["content"]
    assert len(text) > 7000


def test_who_does_not_read_for_long_is_given_up(served: Callable[..., Any]) -> None:
    server = served(letters, context=CONTEXT, stall_s=0.5)
    with silent_reader(server.address, HUGE):
        assert eventually(lambda: server.state.loaded.model.counters.tokens > 0)
        assert eventually(lambda: server.state.n_live == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_cancels(served: Callable[..., Any], stream: bool) -> None:
    server = served(slow_letters)
    counters = lambda: server.state.loaded.model.counters  # noqa: E731
    client = silent_reader(server.address, QUESTION | {"stream": stream})
    assert eventually(lambda: counters().tokens > 1)
    client.close()
    assert eventually(lambda: counters().finished["cancelled"] == 1)
    assert counters().tokens < 400
    assert eventually(lambda: server.state.n_live == 0)


def test_a_long_silence_is_filled_with_comments(serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "SILENCE_S", 0.1)

    def late(prefix: Sequence[int]) -> int:
        sleep(0.5)
        return letters(prefix)

    body = QUESTION | {"stream": True, "max_tokens": 2}
    text = httpx2.post(f"{serve(late)}/v1/chat/completions", json=body, timeout=300).text
    assert text.count(": still at it") >= 2
    assert text.endswith("data: [DONE]\n\n")
    assert [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_a_failure_on_the_way_is_the_last_event(served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    server = served(slow_letters)
    forward, passes = server.scripted.forward, []

    def fails(batch: Any) -> Any:
        passes.append(batch)
        if len(passes) > 5:
            raise RuntimeError("a secret of the machine")
        return forward(batch)

    monkeypatch.setattr(server.scripted, "forward", fails)
    url = f"{server.address}/v1/chat/completions"
    text = httpx2.post(url, json=QUESTION | {"stream": True}, timeout=300).text
    *_, failure, done = [line for line in text.splitlines() if line.startswith("data: ")]
    assert json.loads(failure[6:])["error"]["type"] == "server_error"
    assert done == "data: [DONE]"
    assert "secret" not in text
    monkeypatch.setattr(server.scripted, "forward", forward)
    assert httpx2.post(url, json=QUESTION | {"max_tokens": 3}, timeout=300).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_deadline_cuts_an_answer_off(served: Callable[..., Any], stream: bool) -> None:
    server = served(slow_letters, deadline_s=1.0)
    reply = httpx2.post(f"{server.address}/v1/chat/completions", json=QUESTION | {"stream": stream}, timeout=300)
    # a stream that is cut off before its first token has not begun: it is told as a plain failure
    assert reply.status_code in ((200, 504) if stream else (504,))
    assert "deadline_exceeded" in reply.text


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_gives_back_within_a_step(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    server = served(slow_letters, context=CONTEXT)
    service, pool = server.state.loaded.service, server.scripted.kv_pool
    seen: list[int] = []
    cancel = Ticket.cancel

    def noted(ticket: Ticket) -> None:
        if not seen:
            seen.append(server.scripted.n_forwards)
            cancel(ticket)
            service.order(lambda: seen.append(server.scripted.n_forwards))

    monkeypatch.setattr(Ticket, "cancel", noted)
    client = silent_reader(server.address, QUESTION | {"stream": stream})
    assert eventually(lambda: server.scripted.n_forwards > 3)
    client.close()
    assert eventually(lambda: len(seen) == 2)
    assert seen[1] - seen[0] <= 1  # the pass that ran just then
    assert eventually(lambda: server.state.n_live == 0)
    assert server.scripted.n_forwards == seen[1]
    server.state.loaded.model.forget_prefixes()
    assert pool.n_free == pool.capacity
