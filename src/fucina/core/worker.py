"""A program of ours in a process of its own, which may run out of memory, time or stack without harm to this one.

It reads requests and writes answers in frames of a four-byte little-endian length over its standard streams. What is in
them is none of this module's business.
"""

from __future__ import annotations

import importlib.util
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

#: Workers limit their own CPU time to about a second; this is for a machine too busy to let them run.
_WALL_S = 120.0

_DEATHS: dict[int, str] = {
    signal.SIGPROF: "it takes too long",
    signal.SIGABRT: "it needs too much memory",
    signal.SIGKILL: "it needs too much memory",
    signal.SIGSEGV: "it is nested too deeply, or one of its lists is too long",
    signal.SIGBUS: "it is nested too deeply, or one of its lists is too long",
}


class WorkerDied(Exception):
    """The worker ended over a request, or could not be started. Its text says why; callers give it a type."""


class Worker:
    """Asks a worker process, started when first needed and again whenever a request ended it.

    Any number of threads may ask; they take turns.
    """

    def __init__(self, program: Path, package: str) -> None:
        """Take the program's file, and the installed package it imports, whose folder is its only argument."""
        self._program, self._package = program, package
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def ask(self, request: bytes) -> bytes:
        """Give the answer to one request. Raises WorkerDied."""
        with self._lock:
            # a worker inherited through fork belongs to the parent, which reads its answers
            if self._process is None or self._process.owner != os.getpid():
                self._process = _Process(self._program, self._package)
            answer = self._process.ask(request)
            if answer is None:
                process, self._process = self._process, None
                raise WorkerDied(process.cause_of_death())
        return answer

    def close(self) -> None:
        """End the worker; the next `ask` starts another."""
        with self._lock:
            if self._process is not None and self._process.owner == os.getpid():
                self._process.close()
            self._process = None


class _Process:
    """One running worker process."""

    def __init__(self, program: Path, package: str) -> None:
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            raise WorkerDied(f"the package {package} is missing; reinstall fucina with its dependencies")
        packages = str(Path(found.origin).parent.parent)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(program), packages],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C at the terminal is not meant for it
            )
        except OSError as error:
            raise WorkerDied(f"no process could be started: {error}") from error
        self.owner = os.getpid()
        self.close = weakref.finalize(self, _end, self._process)

    def ask(self, request: bytes) -> bytes | None:
        """The answer to one request, or None when the worker ended over it."""
        deadline = time.monotonic() + _WALL_S
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(request).to_bytes(4, "little"))
            view = memoryview(request)
            while view:
                view = view[self._process.stdin.write(view) :]
        except BrokenPipeError:
            return None
        header = self._read(4, deadline)
        return None if header is None else self._read(int.from_bytes(header, "little"), deadline)

    def cause_of_death(self) -> str:
        """Why the worker ended, or that it did not; it is ended for certain after this."""
        try:
            code: int = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            code = -signal.SIGPROF
        self.close()
        return _DEATHS.get(-code, f"the worker ended with status {code}")

    def _read(self, n_bytes: int, deadline: float) -> bytes | None:
        assert self._process.stdout is not None
        parts: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while n_bytes:
                if not selector.select(deadline - time.monotonic()):
                    return None
                part = self._process.stdout.read(min(n_bytes, 1 << 20))
                if not part:
                    return None
                parts.append(part)
                n_bytes -= len(part)
        return b"".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
