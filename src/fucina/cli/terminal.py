"""What a person sees: streams, colors, one-line errors and warnings, text that cannot drive the terminal."""

from __future__ import annotations

import io
import sys
from typing import TextIO

from rich.console import Console

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))}
_CONTROL_BUT_LAYOUT = {code: text for code, text in _CONTROL.items() if chr(code) not in "\n\t"}


def prepare_streams() -> None:
    """Let no character of a model's answer break a stream whose encoding lacks it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def one_line(text: str) -> str:
    """`text` with every control character spelled out: file contents must not drive the terminal."""
    return text.translate(_CONTROL)


def harmless(text: str, stream: TextIO) -> str:
    """A model's answer as it may go to `stream`: unchanged into a pipe, without terminal commands on a terminal."""
    return text.translate(_CONTROL_BUT_LAYOUT) if stream.isatty() else text


def stdout() -> Console:
    """A console for results; colors only on a terminal, and never with NO_COLOR."""
    return Console(highlight=False)


def stderr() -> Console:
    """A console for everything that is not the result."""
    return Console(stderr=True, highlight=False)


def say_error(message: str) -> None:
    """One line on stderr."""
    _say("error", "bold red", message)


def say_warning(
    message: Warning | str, category: object, filename: object, lineno: object, file: object = None, line: object = None
) -> None:
    """One line on stderr in place of Python's two with a file and a line number; fits `warnings.showwarning`."""
    del category, filename, lineno, file, line
    _say("warning", "yellow", str(message))


def note(message: str) -> None:
    """A dim line on stderr: statistics, hints."""
    stderr().print(one_line(message), style="dim", markup=False, soft_wrap=True)


def _say(kind: str, style: str, message: str) -> None:
    console = stderr()
    console.print(f"{kind}: ", style=style, end="", markup=False)
    console.print(one_line(message), markup=False, soft_wrap=True)
