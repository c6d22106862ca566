"""A tiny model to talk to, the command line in this process, and the same as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fucina.cli.main import app
from fucina.decoding.speculation.costs import CostTable
from fucina.engine import pass_costs
from fucina.testing.tiny_gguf import tiny_model


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
        return subprocess.run(command, capture_output=True, check=False, timeout=60, env=environment, **options)

    return run
