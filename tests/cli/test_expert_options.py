"""Mixtures of experts on the command line: what is read, foreseen and left out is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import fucina
from fucina import SamplingParams
from fucina.core.formats import Q4_K
from fucina.testing.tiny_gguf import tiny_model


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixture") / "m.gguf"
    return tiny_model(path, "qwen3moe", n_layers=3, n_experts=16, n_used=4, format=Q4_K, seed=3)


def test_what_is_left_out_is_told(invoke, mixture: Path) -> None:
    words = (mixture, "-p", "hello", "-n", 12, "--no-spec", "--moe-expert-top-p", "0.5")
    answer = json.loads(invoke("run", *words, "--json").stdout)
    with fucina.load(mixture, moe_expert_top_p=0.5, speculation=False) as model:
        assert answer["ids"] == model.chat("hello", SamplingParams(max_tokens=12)).ids
        stats = model.experts_left_out
        assert stats is not None
        told = {"top_p": 0.5, "used": stats.used, "left_out": stats.left_out, "share": stats.share}
    assert answer["experts_left_out"] == told
    assert answer["experts"] is None
    shown = invoke("run", *words).stderr
    n_chosen = stats.used + stats.left_out
    assert f"LOSSY: --moe-expert-top-p 0.5 left out {stats.left_out} of {n_chosen} uses of experts" in shown
    assert "LOSSY" not in invoke("run", *words[:-2]).stderr


def test_what_is_foreseen_is_told(invoke, mixture: Path) -> None:
    words = (mixture, "-p", "hello", "-n", 12, "--no-spec", "--moe-cache", "700K", "--moe-no-learn")
    answer = json.loads(invoke("run", *words, "--moe-pilot", "--json").stdout)
    stats = answer["experts"]
    # after the prompt the pilot looks at the two layers behind the first, for every token but the last
    n_foreseeable = (answer["usage"]["completion_tokens"] - 1) * 2 * 4
    assert stats["foreseeable"] == n_foreseeable > 0
    assert 0 < stats["foreseen"] <= stats["foreseeable"]
    assert stats["pilot_recall"] == stats["foreseen"] / stats["foreseeable"]
    assert stats["hinted"] + stats["hints_dropped"] > 0
    assert re.search(
        rf"pilot: \d+\.\d% foreseen of {n_foreseeable} \| \d+ read ahead, \d+% of them needed",
        invoke("run", *words, "--moe-pilot").stderr,
    )
    without = json.loads(invoke("run", *words, "--no-moe-pilot", "--json").stdout)
    assert without["ids"] == answer["ids"]
    assert without["experts"]["foreseeable"] == without["experts"]["hinted"] == 0
    assert without["experts_left_out"] is None


@pytest.mark.parametrize("top_p", ["0", "-1", "nan"])
def test_a_share_that_is_none_is_refused(invoke, mixture: Path, top_p: str) -> None:
    result = invoke("run", mixture, "-p", "hello", "--moe-expert-top-p", top_p)
    assert result.exit_code != 0
    assert "moe_expert_top_p" in result.stderr


@pytest.mark.parametrize("verb", ["run", "chat", "serve", "bench"])
def test_the_lossy_option_says_so(invoke, verb: str) -> None:
    shown = invoke(verb, "--help", env={"COLUMNS": "200", "TERM": "dumb"}).stdout
    assert "LOSSY" in shown[shown.index("--moe-expert-top-p") :][:200]
    assert "--no-moe-pilot" in shown
