"""Every example runs as it stands, on the real model, without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


@pytest.mark.model
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, smollm2_path: Path) -> None:
    assert smollm2_path.is_file()
    ran = subprocess.run(
        [sys.executable, "-W", "error", example], capture_output=True, text=True, check=False, timeout=900
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()
    assert ran.stderr == ""


def test_there_are_examples_of_a_readable_length() -> None:
    assert len(EXAMPLES) >= 4
    assert all(len(path.read_text("utf-8").splitlines()) <= 40 for path in EXAMPLES)
