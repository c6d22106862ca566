"""`fucina bench`: a table, then exactly one JSON line, whose numbers hang together."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from fucina.cli.bench import model_bytes
from fucina.core.formats import Q8_0
from fucina.testing.tiny_gguf import tiny_model


def test_table_then_one_json_line(invoke, tiny_path: Path) -> None:
    result = invoke("bench", tiny_path, "--prefill", 8, "--prefill", 32, "--decode", 4, "--repeat", 1, "--threads", 1)
    assert result.exit_code == 0, result.stderr
    *table, last = result.stdout.splitlines()
    record = json.loads(last)
    assert not any(line.startswith("{") for line in table)
    assert set(record["prefill_tok_per_s"]) == {"8", "32"}
    assert record["decode_tok_per_s"] > 0
    share = record["decode_tok_per_s"] * record["read_per_token_bytes"] / record["roof_bytes_per_s"]
    assert math.isclose(record["roof_share"], share)
    assert any(line.split()[:2] == ["prefill", "32"] for line in table)
    assert record["asked"]["threads"] == 1


def test_costs_of_drafts(invoke, tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUCINA_HOME", str(tmp_path))
    result = invoke("bench", tiny_path, "--spec-cost", "--threads", 1)
    assert result.exit_code == 0, result.stderr
    heading, *table, last = result.stdout.splitlines()
    record = json.loads(last)
    assert heading.split() == ["drafts", "cost", "in", "plain", "steps", "pays", "from"]
    assert record["rows_and_costs"][0] == [1, 1.0]
    for line, (rows, cost) in zip(table, record["rows_and_costs"][1:], strict=True):
        assert line.split()[:2] == [str(rows - 1), f"{cost:.2f}"]
        # as many of the drafts must be right as the pass costs plain steps more than one
        share = int(line.split()[2].removesuffix("%")) / 100
        assert math.isclose(share * (rows - 1), max(cost - 1, 0), abs_tol=0.0051 * (rows - 1))
    assert record["asked"]["threads"] == 1
    assert record["model"] == tiny_path.name
    (file,) = (tmp_path / "costs").iterdir()
    assert json.loads(file.read_text("utf-8"))["rows_and_costs"] == record["rows_and_costs"]


@pytest.mark.parametrize("tied", [False, True])
def test_bytes_that_one_token_needs(tmp_path: Path, tied: bool) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", format=Q8_0, tied=tied)
    row = 256 // 32 * 34
    norms = 2 * 256 * 4
    layer = norms + (256 + 128 + 128 + 256 + 512 + 512) * row + 256 * 2 * row
    head = model_bytes(path).vocab * row
    # the last norm, two layers, the head; where the head is a tensor of its own, one row of the embedding beside it
    assert model_bytes(path).read_per_token_bytes == 256 * 4 + 2 * layer + head + (0 if tied else row)


@pytest.mark.parametrize("option", ["--prefill", "--decode", "--repeat"])
def test_costs_take_no_sizes(invoke, tiny_path: Path, option: str) -> None:
    result = invoke("bench", tiny_path, "--spec-cost", option, 4)
    assert result.exit_code == 2
    assert "--spec-cost" in result.stderr
