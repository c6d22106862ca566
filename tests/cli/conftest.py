"""A tiny model to talk to, the command line in this process, and the same as a process of its own."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from fucina.cli.main import app
from fucina.decoding.speculation.costs import CostTable
from fucina.engine import pass_costs
from fucina.testing.tiny_gguf import tiny_model


@pytest.fixture(scope="session", autouse=True)
def patient_clients() -> None:
    """Let requests that name no time wait as long as a busy machine needs; the five seconds of default would decide."""
    default = inspect.signature(httpx2.request).parameters["timeout"].default
    default.connect = default.read = default.write = default.pool = 300.0


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of random weights that knows a chat template."""
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", "llama")


@pytest.fixture
def cheap_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A FUCINA_HOME of its own, and rows that cost next to nothing, so that everything there is gets drafted."""
    monkeypatch.setenv("FUCINA_HOME", str(tmp_path))
    monkeypatch.setattr(pass_costs, "measure_costs", lambda _: CostTable([(1, 1.0), (17, 1.01)]))
    return tmp_path


@pytest.fixture
def invoke() -> Callable[..., object]:
    """Run the command line in this process: invoke('inspect', path).stdout, .stderr, .exit_code."""
    return lambda *words, **options: CliRunner().invoke(app, [str(word) for word in words], **options)


@pytest.fixture
def fucina_process() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run the command line as a process: bytes in, bytes out."""

    def run(*words: object, **options: object) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "fucina", *map(str, words)]
        environment = {**os.environ, **options.pop("env", {})}  # type: ignore[dict-item]
        return subprocess.run(command, capture_output=True, check=False, timeout=300, env=environment, **options)

    return run


@dataclass
class ServerProcess:
    """`fucina serve` as a process of its own, with JSON logs."""

    process: subprocess.Popen[bytes]
    log: Path

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines(keepends=True) if line[-1] == "\n"]

    @property
    def start(self) -> dict[str, Any]:
        """Its start-up line, once it is there."""
        while True:
            found = [line for line in self.lines() if "address" in line]
            if found:
                return found[0]
            assert self.process.poll() is None, self.log.read_text("utf-8")
            time.sleep(0.02)

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.start["address"])

    def refuses(self) -> bool:
        """Whether nobody can connect any more."""
        host, port = self.address.removeprefix("http://").split(":")
        try:
            socket.create_connection((host, int(port)), 10).close()
        except ConnectionRefusedError:
            return True
        return False


@pytest.fixture
def serve_process(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Start one: serve_process(path, '--drain', 2), of another `program` too. What is left at the end is killed."""
    with ExitStack() as ends:
        n_started = itertools.count()

        def start(*words: object, program: Sequence[str] = ("-m", "fucina")) -> ServerProcess:
            log = tmp_path / f"server{next(n_started)}.log"
            given = ["serve", *map(str, words), "--port", "0", "--log-format", "json"]
            command = [sys.executable, *program, *given]
            with log.open("wb") as file:
                process = ends.enter_context(subprocess.Popen(command, stderr=file))
            ends.callback(process.kill)
            return ServerProcess(process, log)

        yield start
