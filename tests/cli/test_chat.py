"""`fucina chat`: it remembers, it obeys, and Ctrl-C stops the answer and not the program."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fucina.testing.tiny_gguf import tiny_model


def prompt_counts(stderr: str) -> list[int]:
    return [int(found) for found in re.findall(r"(\d+) prompt tokens", stderr)]


def test_turns_are_remembered_until_reset(invoke, tiny_path: Path) -> None:
    lines = "/stats\nhello\nhello\n/reset\nhello\n"
    result = invoke("chat", tiny_path, "-n", 4, input=lines)
    assert result.exit_code == 0
    first, second, third = prompt_counts(result.stderr)
    assert second > first == third
    answers = result.stdout.splitlines()
    assert answers[0] == answers[-1]
    assert "cached" in result.stderr


def test_commands(invoke, tiny_path: Path) -> None:
    result = invoke("chat", tiny_path, "-n", 2, input="/help\n/stats\n/stats\n/what\n\n/bye\nnever read\n")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "/reset" in result.stderr
    assert "statistics on" in result.stderr
    assert "statistics off" in result.stderr


def test_a_piped_turn_that_fails_is_an_error(invoke, tiny_path: Path) -> None:
    result = invoke("chat", tiny_path, input="hello " * 1000 + "\n")
    assert result.exit_code == 6
    assert result.stderr.count("\n") == 1


def test_a_conversation_is_saved_and_resumed(invoke, tiny_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk"
    whole = invoke("chat", tiny_path, "-n", 4, input="/stats\nhello\nthere\n")
    first = invoke("chat", tiny_path, "-n", 4, "--kv-save", file, input="hello\n")
    second = invoke("chat", tiny_path, "-n", 4, "--kv-save", file, input="/stats\nthere\n")
    assert "0 turns resumed, 0 tokens" in first.stderr
    assert re.search(r"1 turns resumed, [1-9]\d* tokens", second.stderr)
    assert first.stdout + second.stdout == whole.stdout
    assert prompt_counts(second.stderr) == prompt_counts(whole.stderr)[1:]


def test_a_file_that_is_something_else(invoke, tiny_path: Path, tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("Dear diary")
    result = invoke("chat", tiny_path, "--kv-save", tmp_path / "diary", input="hello\n")
    assert result.exit_code == 4
    assert result.stderr.count("\n") == 1
    assert "not a conversation file" in result.stderr
    assert (tmp_path / "diary").read_text() == "Dear diary"


@pytest.fixture
def endless_path(tmp_path: Path) -> Path:
    """A model that would talk for minutes."""
    return tiny_model(tmp_path / "endless.gguf", "llama", context_length=200_000)


def heeds_interrupts() -> None:
    """Undo what a shell does to what it starts in the background: such processes never hear of Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """`fucina chat` as a process, at a terminal or between pipes."""

    def __init__(self, path: Path, *, at_terminal: bool) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fucina", "chat", path],
            stdin=(ends := pty.openpty() if at_terminal else os.pipe())[1 if at_terminal else 0],
            stdout=ends[1] if at_terminal else subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=heeds_interrupts,
        )
        assert self.process.stderr
        os.close(ends[1 if at_terminal else 0])
        self._to = ends[0 if at_terminal else 1]
        self._out = self._to if at_terminal else self.process.stdout.fileno()  # type: ignore[union-attr]
        self.said, self.errors = b"", b""
        for stream in (self._out, self.process.stderr.fileno()):
            os.set_blocking(stream, False)

    def write(self, keys: bytes) -> None:
        os.write(self._to, keys)

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline, (self.said[-500:], self.errors[-500:])
            self.drain()
            self.errors += self._read(self.process.stderr.fileno())  # type: ignore[union-attr]
            time.sleep(0.005)

    def drain(self) -> None:
        """Read all it has said by now."""
        while part := self._read(self._out):
            self.said += part

    def is_asleep(self) -> bool:
        """Whether it waits for what comes: between its prompt and that it would take no notice of an interrupt."""
        state = Path(f"/proc/{self.process.pid}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "S"

    def end(self) -> int:
        self.wait_for(lambda: self.process.poll() is not None)
        return self.process.returncode

    def close_input(self) -> None:
        os.close(self._to)
        self._to = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        if self._to >= 0:
            os.close(self._to)

    @staticmethod
    def _read(stream: int) -> bytes:
        try:
            return os.read(stream, 1 << 16)
        except OSError:  # nothing there yet, or the other end of a terminal is gone
            return b""


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    opened: list[Program] = []

    def start(path: Path, *, at_terminal: bool) -> Program:
        opened.append(Program(path, at_terminal=at_terminal))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.mark.parametrize("at_terminal", [False, True])
def test_interrupt_stops_the_answer_and_not_the_program(program, endless_path: Path, at_terminal: bool) -> None:
    talk = program(endless_path, at_terminal=at_terminal)
    if at_terminal:
        talk.wait_for(lambda: b">>> " in talk.said)
    for turn in (1, 2):
        talk.drain()
        n_before = len(talk.said)
        talk.write(b"hello\n")
        talk.wait_for(lambda n_before=n_before: len(talk.said) > n_before + 200)
        talk.interrupt()
        talk.wait_for(lambda turn=turn: talk.errors.count(b"(stopped)") == turn)
        assert talk.process.poll() is None
        talk.write(b"/reset\n")  # so that the next answer is as long
        talk.wait_for(lambda turn=turn: talk.errors.count(b"forgotten") == turn)
    talk.write(b"/bye\n")
    assert talk.end() == 0
    assert b"Traceback" not in talk.errors


def test_interrupt_at_the_prompt_asks_how_to_leave(program, tiny_path: Path) -> None:
    talk = program(tiny_path, at_terminal=True)
    talk.wait_for(lambda: b">>> " in talk.said and talk.is_asleep())
    talk.interrupt()
    talk.wait_for(lambda: talk.errors.count(b"Ctrl-D or /bye") == 1)
    talk.wait_for(lambda: talk.said.count(b">>> ") == 2)
    talk.write(b"\x04")
    assert talk.end() == 0
    assert b"Traceback" not in talk.errors


def test_end_of_input_leaves(program, tiny_path: Path) -> None:
    talk = program(tiny_path, at_terminal=False)
    talk.close_input()
    assert talk.end() == 0
    assert talk.said == b""


def test_interrupt_ends_run_with_its_code(endless_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fucina", "run", endless_path, "-p", "hello", "-n", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heeds_interrupts,
    )
    assert process.stdout
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"Traceback" not in errors
