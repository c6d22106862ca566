"""The table of verbs, help that teaches, and failures as one line and a code."""

from __future__ import annotations

import errno
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fucina
from fucina import errors
from fucina.cli import describe, exits, main
from fucina.testing.tiny_gguf import tiny_model


def test_version(invoke) -> None:
    assert invoke("--version").stdout == f"fucina {fucina.__version__}\n"


def test_console_script_and_module_are_the_same(fucina_process) -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert scripts == {"fucina": "fucina.cli.main:main"}
    assert fucina_process("--version").stdout.decode() == f"fucina {fucina.__version__}\n"


@pytest.mark.parametrize("verb", main.VERBS)
def test_help_of_each_verb_has_examples(invoke, verb: str) -> None:
    result = invoke(verb, "--help")
    assert result.exit_code == 0
    assert f"fucina {verb} " in result.stdout.partition("Examples:")[2]


def test_no_verb_shows_the_help(invoke) -> None:
    result = invoke()
    assert result.exit_code == 2
    assert all(verb in result.stdout + result.stderr for verb in main.VERBS)


def test_a_mistyped_verb_gets_a_suggestion(invoke) -> None:
    result = invoke("tokenise", "x", "y")
    assert result.exit_code == 2
    assert "tokenize" in result.stderr


def test_unknown_model(fucina_process) -> None:
    result = fucina_process("run", "no-such-model", "-p", "hello")
    assert result.returncode == 3
    assert result.stdout == b""
    assert result.stderr.startswith(b"error: ")
    assert result.stderr.count(b"\n") == 1
    assert b"smollm2" in result.stderr


def test_a_damaged_file(fucina_process, tiny_path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_path.read_bytes()[:1000])
    result = fucina_process("run", cut, "-p", "hello")
    assert result.returncode == exits.EXIT_CODES[errors.TruncatedFile]
    assert result.stderr.count(b"\n") == 1


def test_a_hostile_error_stays_one_line(fucina_process, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", metadata={"general.architecture": "a\nb\x1b[2J"})
    result = fucina_process("run", path, "-p", "hello")
    assert result.returncode == exits.EXIT_CODES[errors.UnsupportedFamily]
    assert result.stderr.count(b"\n") == 1
    assert b"\x1b" not in result.stderr


def test_a_folder_is_no_model(fucina_process, tmp_path: Path) -> None:
    assert fucina_process("inspect", tmp_path).returncode == 3


def test_what_the_system_refuses_is_one_line_too(invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: str) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", model)

    monkeypatch.setattr(describe, "find_model", refuse)
    result = invoke("inspect", "locked.gguf")
    assert result.exit_code == exits.UNREADABLE
    assert result.stderr == "error: locked.gguf: Permission denied\n"


def test_a_closed_pipe_is_quiet(tiny_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "fucina", "inspect", tiny_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout
    assert writer.stderr
    writer.stdout.close()
    assert writer.stderr.read() == b""
    assert writer.wait(300) == 1
    writer.stderr.close()
