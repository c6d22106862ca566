"""What may reach a terminal: colors only there, NO_COLOR obeyed, no commands out of a model's mouth."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
import warnings

import pytest

from fucina.cli import terminal


class Screen(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_answers_cannot_drive_a_terminal_but_pass_a_pipe_unchanged() -> None:
    said = "a\tb\n\x1b[2J\x07é🙂\x9b1m\x7f\r"
    assert terminal.harmless(said, io.StringIO()) == said
    assert terminal.harmless(said, Screen()) == "a\tb\n\\x1b[2J\\x07é🙂\\x9b1m\\x7f\\x0d"


def test_one_line_is_one_line() -> None:
    assert terminal.one_line("a\nb\tc\rd\u2028é") == "a\\x0ab\\x09c\\x0dd\u2028é"


def test_errors_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say_error("[bold]x[/bold] " + "long " * 100)
    said = capsys.readouterr().err
    assert said.startswith("error: [bold]x[/bold] long")
    assert said.count("\n") == 1


def test_a_warning_is_one_line_without_a_file_name(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = terminal.say_warning
        for _ in range(2):
            warnings.warn("slow", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: slow\n"


@pytest.mark.parametrize(("environment", "colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colors_on_a_terminal_only_and_not_with_no_color(environment: dict[str, str], colored: bool) -> None:
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "fucina", "inspect", "no-such-model"],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    assert process.wait(300) == 3
    said = b""
    with contextlib.suppress(OSError):  # once nobody can write to it any more
        while part := os.read(ours, 1 << 16):
            said += part
    os.close(ours)
    assert b"no-such-model" in said
    assert (b"31m" in said) == colored


def test_a_stream_that_lacks_a_letter_spells_it_out() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from fucina.cli import terminal; terminal.prepare_streams(); print('né🙂')"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert result.stdout == b"n\\xe9\\U0001f642\n"
