"""`fucina serve` as a process: its start, its end, and what it leaves behind."""

from __future__ import annotations

import json
import runpy
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx2
import pytest

from fucina.cli.exits import EXIT_CODES
from fucina.errors import TruncatedFile, UnknownModel
from fucina.testing.tiny_gguf import tiny_model

KILL_SERVER = Path(__file__).parents[2] / "scripts" / "nightly" / "kill_server.py"
QUESTION: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "iron and coal " * 30}],
    "ignore_eos": True,
    "temperature": 0,
    "max_tokens": 8,
}
#: Six megabytes, which no socket holds: who does not read keeps the answer from ending.
N_LONG = 3000
LONG = QUESTION | {"max_tokens": N_LONG, "stream": True, "logprobs": True, "top_logprobs": 20}
#: The command line, whose models never come.
ENDLESS_LOAD = """
import threading
import fucina
from fucina.cli.main import main

def load(path, *, progress, **options):
    progress("loading without end", 0, None)
    threading.Event().wait()

fucina.load = load
main()
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("served") / "tiny.gguf", "llama", context_length=4096)


def ask(address: str, body: dict[str, Any] = QUESTION) -> dict[str, Any]:
    reply: dict[str, Any] = httpx2.post(f"{address}/v1/chat/completions", json=body, timeout=300).json()
    return reply


def eventually(holds: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Whether it comes true in time."""
    end = monotonic() + seconds
    while not (now := holds()) and monotonic() < end:
        sleep(0.02)
    return now


class Reader:
    """Asks for a long answer, and reads on only when it is told to."""

    def __init__(self, address: str) -> None:
        host, port = address.removeprefix("http://").split(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(300)
        self._socket.connect((host, int(port)))
        body = json.dumps(LONG).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        self._socket.sendall(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)
        self._begin = self._socket.recv(4096)
        while b"data: {" not in self._begin:
            self._begin += self._socket.recv(4096)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def rest(self) -> list[str]:
        """The data of all events."""
        data = bytearray(self._begin)
        while piece := self._socket.recv(1 << 20):
            data += piece
        return [line[6:] for line in bytes(data).decode().splitlines() if line.startswith("data: ")]


def test_start_and_end(serve_process: Callable[..., Any], tiny: Path) -> None:
    server = serve_process(tiny, "--kv-memory", "8M", "--alias", "other")
    told = server.start
    assert (told["model"], told["context"], told["kv_bytes"]) == ("tiny", 4096, 8 << 20)
    assert told["kv_rule"] in told["message"]
    assert any(line["message"] == "loading tiny.gguf" for line in server.lines())
    assert httpx2.get(f"{server.address}/health").status_code == 200
    assert ask(server.address)["usage"]["completion_tokens"] == 8
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0
    *_, request, ending, ended = server.lines()
    assert (request["path"], request["status"]) == ("/v1/chat/completions", 200)
    assert (ending["message"], ended["message"]) == ("ending: 0 answers run or wait", "ended")


def test_an_answer_may_finish_and_nothing_new_begins(serve_process: Callable[..., Any], tiny: Path) -> None:
    server = serve_process(tiny, "--drain", 60)
    with Reader(server.address) as reader:
        server.process.send_signal(signal.SIGTERM)
        assert eventually(server.refuses)
        assert server.process.poll() is None
        *chunks, done = reader.rest()
    assert done == "[DONE]"
    assert json.loads(chunks[-1])["choices"][0]["finish_reason"] == "length"
    told = [json.loads(chunk)["choices"][0].get("logprobs") for chunk in chunks]
    assert sum(one is not None for one in told) == N_LONG
    assert server.process.wait(120) == 0


def test_an_answer_that_takes_too_long_is_cut_off(serve_process: Callable[..., Any], tiny: Path) -> None:
    server = serve_process(tiny, "--drain", 0.3)
    with Reader(server.address) as reader:
        server.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: any("cutting off 1 answers" in line["message"] for line in server.lines()))
        *_, failure, done = reader.rest()
    assert json.loads(failure)["error"]["code"] == "shutting_down"
    assert done == "[DONE]"
    assert server.process.wait(120) == 0


def test_who_never_reads_does_not_keep_it_alive(serve_process: Callable[..., Any], tiny: Path) -> None:
    server = serve_process(tiny, "--drain", 0.3)
    with Reader(server.address):
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(55) == 0  # before the minute after which no reader is waited for


def test_a_second_interrupt_ends_at_once(serve_process: Callable[..., Any], tiny: Path) -> None:
    server = serve_process(tiny, "--drain", 600)
    with Reader(server.address):
        server.process.send_signal(signal.SIGINT)
        assert eventually(server.refuses)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(120) == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_model_that_is_still_being_loaded_is_not_waited_for(
    serve_process: Callable[..., Any], tiny: Path, number: signal.Signals
) -> None:
    server = serve_process(tiny, program=("-c", ENDLESS_LOAD))
    assert eventually(lambda: any(line["message"] == "loading without end" for line in server.lines()))
    server.process.send_signal(number)
    assert server.process.wait(120) == 0
    *_, ending, ended = server.lines()
    assert (ending["message"], ended["message"]) == ("ending: 0 answers run or wait", "ended")


def test_what_was_read_is_known_after_a_restart(serve_process: Callable[..., Any], tiny: Path, tmp_path: Path) -> None:
    replies = []
    for _ in range(2):
        server = serve_process(tiny, "--kv-cache-dir", tmp_path / "kv")
        replies.append(ask(server.address))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0
    first, second = (reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies)
    assert first == 0
    assert second > replies[1]["usage"]["prompt_tokens"] - 64
    assert replies[0]["choices"][0]["message"] == replies[1]["choices"][0]["message"]


def test_a_taken_port_is_one_line(fucina_process: Callable[..., Any], tiny: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = fucina_process("serve", tiny, "--port", port)
    assert result.returncode == 2
    assert result.stderr.count(b"\n") == 1
    assert result.stderr.startswith(b"error: --port: ")
    assert str(port).encode() in result.stderr


def test_a_model_that_does_not_load_ends_it(
    fucina_process: Callable[..., Any], serve_process: Callable[..., Any], tiny: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.read_bytes()[:1000])
    result = fucina_process("serve", cut, "--port", 0)
    assert result.returncode == EXIT_CODES[TruncatedFile]
    assert result.stderr.count(b"\n") == 1
    server = serve_process(tmp_path / "nothing.gguf")
    assert server.process.wait(120) == EXIT_CODES[UnknownModel]
    (line,) = server.lines()
    assert line["level"] == "critical"
    assert "nothing.gguf" in line["message"]


def test_kills_in_the_middle_of_streams_leave_no_wrong_token(tmp_path: Path) -> None:
    report = runpy.run_path(str(KILL_SERVER))["kill_again_and_again"](tmp_path, 3, seed=2)
    assert report.kills == 3
    assert report.restored_tokens > 0
    print(report.line())
