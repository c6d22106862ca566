"""Who may ask: hosts, origins, keys and sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx2
import pytest

from fucina.decoding.speculation.costs import StepCosts
from fucina.errors import ConfigError
from fucina.server.options import ServerOptions

KEYS = ("first-secret", "second-secret")
QUESTION = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def letters(prefix: Sequence[int]) -> int:
    return 97 + len(prefix) % 26


@pytest.fixture
def address(serve: Callable[..., str]) -> str:
    return serve(letters, max_body=10_000)


@pytest.fixture
def locked(serve: Callable[..., str]) -> str:
    return serve(letters, api_keys=KEYS)


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:9", "[::1]:80", "10.1.2.3"])
def test_own_names_and_addresses_are_served(address: str, host: str) -> None:
    assert httpx2.get(f"{address}/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_foreign_name_that_points_here_is_refused(address: str, host: str) -> None:
    reply = httpx2.post(f"{address}/v1/chat/completions", headers={"host": host}, json=QUESTION)
    assert (reply.status_code, reply.json()["error"]["code"]) == (421, "unknown_host")


def test_pages_of_other_origins_are_refused(address: str) -> None:
    headers = {"origin": "https://evil.example"}
    assert httpx2.post(f"{address}/v1/chat/completions", headers=headers, json=QUESTION).status_code == 403
    preflight = httpx2.options(f"{address}/v1/chat/completions", headers=headers)
    assert "access-control-allow-origin" not in preflight.headers
    own = httpx2.post(f"{address}/v1/chat/completions", headers={"origin": address}, json=QUESTION)
    assert own.status_code == 200


def test_origins_that_were_asked_for_may_read(serve: Callable[..., str]) -> None:
    address = serve(letters, origins=("https://app.example",))
    headers = {"origin": "https://app.example"}
    reply = httpx2.post(f"{address}/v1/chat/completions", headers=headers, json=QUESTION)
    assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "https://app.example")
    preflight = httpx2.options(f"{address}/v1/chat/completions", headers=headers)
    assert preflight.status_code == 204
    assert "content-type" in preflight.headers["access-control-allow-headers"]


@pytest.mark.parametrize(
    "headers",
    [{"authorization": f"Bearer {KEYS[0]}"}, {"authorization": f"bearer {KEYS[1]}"}, {"x-api-key": KEYS[1]}],
)
def test_keys_open(locked: str, headers: dict[str, str]) -> None:
    assert httpx2.get(f"{locked}/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer nope"}, {"authorization": f"Basic {KEYS[0]}"}, {"x-api-key": KEYS[0][:-1]}],
)
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/nowhere", "/v1/chat/completions"])
def test_without_a_key_nothing_but_health_is_open(locked: str, headers: dict[str, str], path: str) -> None:
    reply = httpx2.get(f"{locked}{path}", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
    assert KEYS[0] not in reply.text
    assert httpx2.get(f"{locked}/health").status_code == 200


def test_what_is_cached_is_not_shared_between_keys(locked: str) -> None:
    def cached(key: str) -> int:
        long = {**QUESTION, "messages": [{"role": "user", "content": "x" * 200}]}
        reply = httpx2.post(f"{locked}/v1/chat/completions", headers={"x-api-key": key}, json=long)
        tokens: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return tokens

    assert cached(KEYS[0]) == 0
    assert cached(KEYS[0]) > 0
    assert cached(KEYS[1]) == 0


def test_what_is_drafted_is_not_shared_between_keys(
    serve: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for heard in ("record_plain", "record_verify"):  # the clock would change what a draft costs
        monkeypatch.setattr(StepCosts, heard, lambda *_: None)
    prices = tmp_path / "prices.json"
    prices.write_text('{"rows_and_costs": [[1, 1.0], [17, 1.5]]}')  # every draft pays
    address = serve(letters, api_keys=KEYS, prices=prices)

    def accepted(path: str, key: str, **body: object) -> int:
        question = {"model": "scripted", "ignore_eos": True, "temperature": 0, "max_tokens": 60, **body}
        reply = httpx2.post(f"{address}{path}", headers={"x-api-key": key}, json=question)
        tokens: int = reply.json()["usage"]["speculation"]["accepted"]
        return tokens

    for path, asked in (
        ("/v1/chat/completions", {"messages": QUESTION["messages"]}),
        ("/v1/completions", {"prompt": "a"}),
    ):
        first = accepted(path, KEYS[0], cache_salt=path, **asked)
        assert accepted(path, KEYS[0], cache_salt=path, **asked) > first
        assert accepted(path, KEYS[1], cache_salt=path, **asked) == first


def _endless() -> Iterator[bytes]:
    for _ in range(100):
        yield b"x" * 1000


def test_large_bodies_are_refused_whether_they_say_so_or_not(address: str) -> None:
    url, headers = f"{address}/v1/chat/completions", {"content-type": "application/json"}
    for content in (b"x" * 20_000, _endless()):
        reply = httpx2.post(url, content=content, headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "request_too_large")
    assert httpx2.get(f"{address}/health").status_code == 200


def test_errors_speak_the_dialect_of_their_path(address: str) -> None:
    assert httpx2.get(f"{address}/v1/messages/nothing").json()["type"] == "error"
    assert isinstance(httpx2.get(f"{address}/api/nothing").json()["error"], str)
    assert httpx2.get(f"{address}/nothing").json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize(
    "options",
    [{"port": -1}, {"queue": 1.5}, {"parallel": 0}, {"api_keys": ("short",)}, {"drain_s": 0}, {"max_body": 5}],
)
def test_options_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        ServerOptions(**options)  # type: ignore[arg-type]
