"""Whether it runs is one question, whether it answers another; and where it listens is settled first."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import pytest

from fucina.errors import ConfigError
from fucina.server.listening import address_of, is_loopback, listen


def letters(prefix: Sequence[int]) -> int:
    return 97 + len(prefix) % 26


def statuses(address: str) -> tuple[int, int]:
    """Of readiness and of liveness."""
    return httpx2.get(f"{address}/health").status_code, httpx2.get(f"{address}/live").status_code


def test_ready_and_alive(served: Callable[..., Any]) -> None:
    server = served(letters)
    assert statuses(server.address) == (200, 200)
    loaded, server.state.loaded = server.state.loaded, None
    assert statuses(server.address) == (503, 200)
    loading = httpx2.get(f"{server.address}/health")
    assert (loading.json()["error"]["code"], "retry-after" in loading.headers) == ("loading", True)
    server.state.loaded, server.state.draining = loaded, True
    assert statuses(server.address) == (503, 200)
    assert httpx2.get(f"{server.address}/live").json()["draining"] is True
    body = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
    reply = httpx2.post(f"{server.address}/v1/chat/completions", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "shutting_down")
    server.state.draining = False


def test_a_free_port_is_taken_once() -> None:
    (listener,) = listen("127.0.0.1", 0)
    with listener:
        port = listener.getsockname()[1]
        assert address_of(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=f"port: got {port}, expected a free one"):
            listen("127.0.0.1", port)
    for again in listen("127.0.0.1", port):
        again.close()


def test_every_address_of_a_name_is_listened_at() -> None:
    listeners = listen("localhost", 0)
    try:
        wanted = {one[4][0] for one in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
        assert {one.getsockname()[0] for one in listeners} == wanted
        assert len({one.getsockname()[1] for one in listeners}) == 1
    finally:
        for one in listeners:
            one.close()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1", "a b", "." * 300])
def test_an_address_of_others_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="host"):
        listen(host, 0)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_who_can_reach_it(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
