"""`fucina pull`: the path on stdout, the rest on stderr."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fucina.cli import progress, pull, terminal


def test_the_path_is_all_of_stdout(invoke, monkeypatch: pytest.MonkeyPatch, tiny_path: Path) -> None:
    def pretend(name: str, *, progress) -> Path:
        assert name == "smollm2"
        progress("downloading it", 1, 2)
        progress("downloading it", 2, 2)
        progress("checking it", 1, 1)
        return tiny_path

    monkeypatch.setattr(pull, "pull", pretend)
    result = invoke("pull", "smollm2")
    assert result.stdout == f"{tiny_path}\n"
    assert result.stderr.splitlines()[:2] == ["downloading it", "checking it"]


def test_unknown_name(invoke) -> None:
    result = invoke("pull", "nobody")
    assert result.exit_code == 3
    assert "gemma3-270m" in result.stderr


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = terminal.Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(terminal, "stderr", lambda: console)
    with progress.shown_progress() as report:
        report("downloading [it]", 1 << 20, 4 << 20)
        report("downloading [it]", 4 << 20, 4 << 20)
    assert "downloading [it]" in screen.getvalue()
    assert "MiB" in screen.getvalue()


@pytest.mark.model
def test_a_model_that_is_there_is_not_fetched_again(invoke, smollm2_path: Path) -> None:
    result = invoke("pull", "smollm2")
    assert Path(result.stdout.strip()) == smollm2_path
    assert "downloading" not in result.stderr
