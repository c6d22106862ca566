"""Running templates in a process of their own, which may run out of memory, time or stack without harm to this one."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

from fucina.errors import TemplateError

#: The worker limits its own CPU time to some tenths of a second; this is for a machine too busy to let it run.
_WALL_S = 30.0
_MAX_FRAME_BYTES = 1 << 31

_DEATHS: dict[int, str] = {
    signal.SIGPROF: "it takes too long",
    signal.SIGABRT: "it needs too much memory",
    signal.SIGKILL: "it needs too much memory",
    signal.SIGSEGV: "it is nested too deeply",
    signal.SIGBUS: "it is nested too deeply",
}


class Renderer:
    """Renders templates in a worker process, started when first needed and again whenever a template ended it.

    Any number of threads may call; they take turns.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def render(self, source: str, context: Mapping[str, object]) -> str:
        """Render a template with plain values (as JSON has them). Raises TemplateError."""
        try:
            request = json.dumps({"source": source, "context": context}, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise TemplateError(f"the messages hold a value that a chat template cannot take: {error}") from error
        if len(request) >= _MAX_FRAME_BYTES:
            raise TemplateError("the messages are too long for a chat template")
        with self._lock:
            # a worker inherited through fork belongs to the parent, which reads its answers
            if self._worker is None or self._worker.owner != os.getpid():
                self._worker = _Worker()
            answer = self._worker.ask(request)
            if answer is None:
                worker, self._worker = self._worker, None
                raise TemplateError(f"the chat template was stopped: {worker.cause_of_death()}")
        return _text_of(json.loads(answer))

    def close(self) -> None:
        """End the worker; the next `render` starts another."""
        with self._lock:
            if self._worker is not None and self._worker.owner == os.getpid():
                self._worker.close()
            self._worker = None


@functools.cache
def shared_renderer() -> Renderer:
    """The renderer of this process: templates of all models take turns in one worker."""
    return Renderer()


class _Worker:
    """One running worker process."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("minijinja")
        if found is None or found.origin is None:
            raise TemplateError("chat templates need the package minijinja; reinstall fucina with its dependencies")
        program = Path(__file__).with_name("render_worker.py")
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
            raise TemplateError(f"no process could be started to run the chat template: {error}") from error
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


def _text_of(answer: Mapping[str, object]) -> str:
    if "text" in answer:
        return str(answer["text"])
    if "refusal" in answer:
        raise TemplateError(str(answer["refusal"]))
    line = f" (line {answer['line']})" if answer.get("line") else ""
    raise TemplateError(f"the chat template failed: {answer['error']}{line}")
