"""Nothing that a request says comes into the logs, whatever becomes of it."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx2
import pytest

from fucina.cli.logs import log_formatter

SECRET = "xyzzy-4711-plugh"
MESSAGES = [{"role": "user", "content": f"my password is {SECRET}"}]
QUESTION: dict[str, Any] = {"model": "scripted", "messages": MESSAGES, "max_tokens": 3}


def letters(prefix: Sequence[int]) -> int:
    return 97 + len(prefix) % 26


@pytest.fixture(params=["text", "json"])
def logs(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    handler.setFormatter(log_formatter(request.param))
    handler.addFilter(lambda record: not record.name.startswith("http"))  # the client's own
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def fails(_: object) -> Any:
    raise RuntimeError(f"the prompt was {SECRET}")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"stream": True}, 200),
        ({SECRET: SECRET}, 400),
        ({"temperature": SECRET}, 400),
        ({"model": SECRET}, 404),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": SECRET}}}}, 400),
        ({"regex": f"({SECRET}"}, 400),
        ({"messages": [{"role": SECRET, "content": SECRET}]}, 400),
    ],
    ids=["asked", "streamed", "field", "value", "model", "schema", "pattern", "role"],
)
def test_no_request_is_quoted(
    serve: Callable[..., str], logs: io.StringIO, change: dict[str, Any], status: int
) -> None:
    address = serve(letters)
    reply = httpx2.post(f"{address}/v1/chat/completions?{SECRET}", json={**QUESTION, **change}, timeout=300)
    assert reply.status_code == status
    text = logs.getvalue()
    assert "/v1/chat/completions" in text
    assert SECRET not in text


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_is_logged_with_its_place_and_not_with_its_words(
    served: Callable[..., Any], logs: io.StringIO, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    server = served(letters)
    monkeypatch.setattr(server.scripted, "forward", fails)
    reply = httpx2.post(f"{server.address}/v1/chat/completions", json=QUESTION | {"stream": stream}, timeout=300)
    assert reply.status_code == (200 if stream else 500)  # a stream has begun, and ends with the error
    assert "internal_error" in reply.text
    assert SECRET not in reply.text
    text = logs.getvalue()
    assert f"request {reply.headers['x-request-id']} failed" in text
    assert "builtins.RuntimeError" in text
    assert "test_silence.py" in text
    assert SECRET not in text


def test_a_path_that_is_none_is_not_quoted(serve: Callable[..., str], logs: io.StringIO) -> None:
    assert httpx2.get(f"{serve(letters)}/{SECRET}").status_code == 404
    assert SECRET not in logs.getvalue()
