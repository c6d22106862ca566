"""The program that runs chat templates: a process of its own, with little memory and little time.

A template comes out of a model file, so it may be hostile. The engine counts most of what a template does as fuel, but
not everything (lists that double, deep nesting), so the kernel watches the rest: address space, CPU time, no files.
Started by `fucina.text.rendering`; speaks JSON in frames of a four-byte little-endian length over its standard
streams. It imports nothing of fucina, and starts without the site packages, to be ready in some 40 ms.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])  # where minijinja lies

import minijinja

_FUEL, _FUEL_PER_BYTE = 2_000_000, 100
_MEMORY_BYTES, _MEMORY_PER_BYTE = 128 << 20, 32
_CPU_S, _CPU_S_PER_BYTE = 0.2, 1e-7


class Renderer:
    """One environment, set up like the one that chat templates are written for."""

    def __init__(self) -> None:
        self._source = ""
        self._refusal: str | None = None
        self._environment = minijinja.Environment(
            trim_blocks=True,
            lstrip_blocks=True,
            debug=False,
            auto_escape_callback=lambda _: False,
            filters={"tojson": _tojson, "indent": _indent},
            globals={
                "raise_exception": self._refuse,
                "strftime_now": lambda layout: datetime.now().strftime(str(layout)),
            },
        )

    def answer(self, request: dict[str, object], n_bytes: int) -> dict[str, object]:
        """Render `request` (source, context), of `n_bytes` as JSON; what went wrong is an answer too."""
        source, context = request["source"], request["context"]
        assert isinstance(source, str) and isinstance(context, dict)
        self._refusal = None
        try:
            if source != self._source:
                self._environment.add_template("chat", source)
                self._source = source
            self._environment.fuel = _FUEL + _FUEL_PER_BYTE * n_bytes
            return {"text": self._environment.render_template("chat", **context)}
        except MemoryError:
            return {"error": "it needs too much memory"}
        except Exception as error:
            if self._refusal is not None:
                return {"refusal": self._refusal}
            if isinstance(error, minijinja.TemplateError):
                return {"error": error.detail or error.message, "line": error.line}
            return {"error": f"{type(error).__name__}: {error}"}

    def _refuse(self, message: object) -> None:
        self._refusal = str(message)
        raise ValueError(self._refusal)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates expect it: no HTML escapes, other alphabets as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indent lines as jinja2 does, which keeps a newline at the end."""
    pad = width if isinstance(width, str) else " " * width
    lines = f"{text}\n".splitlines()
    rest = [pad + line if line or blank else line for line in lines[1:]]
    return "\n".join([(pad if first else "") + lines[0], *rest])


def _limit(n_bytes: int) -> None:
    """Allow memory and CPU time for one request; the kernel ends the process that takes more."""
    memory = _address_space_bytes() + _MEMORY_BYTES + _MEMORY_PER_BYTE * n_bytes
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory if most == resource.RLIM_INFINITY else min(memory, most), most))
    signal.setitimer(signal.ITIMER_PROF, _CPU_S + _CPU_S_PER_BYTE * n_bytes)


def _address_space_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        return 1 << 30


def _read_frame(stream: BinaryIO) -> bytes:
    """The next frame, empty at the end of the stream."""
    return stream.read(int.from_bytes(stream.read(4), "little"))


def main() -> None:
    """Answer requests until the other side is gone."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    renderer = Renderer()
    while frame := _read_frame(requests):
        _limit(len(frame))
        answer = json.dumps(renderer.answer(json.loads(frame), len(frame))).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(len(answer).to_bytes(4, "little") + answer)
        answers.flush()


if __name__ == "__main__":
    main()
