"""A server in a process of its own, and what the system says of that process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from fucina.testing.hostile_http import MODEL

_START_S = 120


class Held(NamedTuple):
    """What a process holds."""

    threads: int
    files: int
    megabytes: float
    cpu_s: float


class Served:
    """A server of one model on a free port, until the end of the `with` block."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        """`command` has "PORT" where the port belongs."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        words = [word.replace("PORT", str(self.port)) for word in command]
        with log.open("wb") as file:
            self.process = subprocess.Popen(words, stdout=file, stderr=file, env={**os.environ, **(env or {})})

    def __enter__(self) -> Served:
        end = time.monotonic() + _START_S
        while time.monotonic() < end and self.is_running:
            if self.get("/health") == 200 or self.get("/v1/models") == 200:
                return self
            time.sleep(0.1)
        self.process.kill()
        raise RuntimeError("the server did not start: see its log")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def get(self, path: str) -> int:
        """The status of a path; 0 without an answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 10) as client:
                client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
                return int(client.recv(1 << 16).split(b" ")[1])
        except (OSError, IndexError):
            return 0

    def held(self) -> Held:
        """What it holds now."""
        proc = Path("/proc") / str(self.process.pid)
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        stat = (proc / "stat").read_text().rpartition(")")[2].split()
        ticks = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        files = len(list((proc / "fd").iterdir()))
        return Held(int(status["Threads"]), files, int(status["VmRSS"].split()[0]) / 1024, ticks)


def fucina_command(model: Path, *options: str) -> list[str]:
    """`fucina serve`, by this interpreter."""
    return [sys.executable, "-m", "fucina", "serve", str(model), "--port", "PORT", "--alias", MODEL, *options]


def llama_cpp_command(python: str, model: Path, context: int) -> list[str]:
    """llama-cpp-python's server; its default ends an answer when somebody else asks, which is turned off."""
    options = ["--n_ctx", str(context), "--interrupt_requests", "False", "--model_alias", MODEL, "--verbose", "False"]
    return [python, "-m", "llama_cpp.server", "--model", str(model), "--port", "PORT", "--n_threads", "2", *options]
