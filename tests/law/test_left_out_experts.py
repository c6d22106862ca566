"""Experts that are knowingly left out: other answers than the model's, and the same ones on every schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fucina
from fucina import ConfigError, Model, SamplingParams
from fucina.core.formats import Q4_K
from fucina.testing.tiny_gguf import tiny_model

TOP_P = 0.6
N_LAYERS, N_USED = 3, 4
PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [200, 30, 31, 32] * 9, [9] * 20, [100, 101]]
PARAMS = [
    SamplingParams(max_tokens=24, ignore_eos=True, logprobs=2),
    SamplingParams(max_tokens=24, ignore_eos=True, logprobs=2, temperature=1.0, seed=4),
    SamplingParams(max_tokens=12, ignore_eos=True, logprobs=2, repeat_penalty=1.2),
    SamplingParams(max_tokens=30, ignore_eos=True, logprobs=2),
]
Answers = list[tuple[list[int], Any]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("mixture") / "model.gguf"
    return tiny_model(file, "qwen3moe", n_layers=N_LAYERS, n_experts=16, n_used=N_USED, format=Q4_K, seed=3)


def load(path: Path, **options: Any) -> Model:
    return fucina.load(path, kv_memory="32M", **{"speculation": False, **options})


def one_by_one(model: Model, **options: Any) -> Answers:
    answers = [model.generate(prompt, params, **options) for prompt, params in zip(PROMPTS, PARAMS, strict=True)]
    return [(answer.ids, answer.logprobs) for answer in answers]


@pytest.fixture(scope="module")
def exact(path: Path) -> Answers:
    with load(path) as model:
        assert model.experts_left_out is None
        return one_by_one(model)


@pytest.fixture(scope="module")
def lossy(path: Path) -> Iterator[Answers]:
    with load(path, moe_expert_top_p=TOP_P, threads=1) as model:
        answers = one_by_one(model)
        stats = model.experts_left_out
        assert stats is not None
        n_rows = model.counters.rows
        assert stats.used + stats.left_out == n_rows * N_LAYERS * N_USED
        assert n_rows * N_LAYERS <= stats.used < n_rows * N_LAYERS * N_USED
        assert stats.share == stats.left_out / (stats.used + stats.left_out)
        yield answers


SCHEDULES: dict[str, dict[str, Any]] = {
    "resident": {"threads": 2},
    "file rows": {"repack": False},
    "an expert a layer": {"moe_cache": "400K", "moe_learn": False},
    "some experts": {"moe_cache": "1M", "moe_learn": False, "moe_pilot": True},
    "small chunks": {"prefill_chunk": 3, "tier": "baseline"},
}


@pytest.mark.parametrize("options", SCHEDULES.values(), ids=SCHEDULES)
def test_no_schedule_shows(path: Path, exact: Answers, lossy: Answers, options: dict[str, Any]) -> None:
    assert lossy != exact, "or nothing is tested here"
    with load(path, moe_expert_top_p=TOP_P, **options) as model:
        together = model.generate_batch(PROMPTS, PARAMS)
        assert [(answer.ids, answer.logprobs) for answer in together] == lossy
        model.forget_prefixes()
        assert one_by_one(model) == lossy


@pytest.mark.parametrize("options", [{}, {"moe_cache": "700K", "moe_learn": False}], ids=["resident", "streamed"])
def test_drafts_do_not_show(
    path: Path, lossy: Answers, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUCINA_HOME", str(tmp_path))
    references = [[*prompt, *ids] for prompt, (ids, _) in zip(PROMPTS, lossy, strict=True)]
    with load(path, moe_expert_top_p=TOP_P, speculation=True, **options) as model:
        assert one_by_one(model, references=references) == lossy


@pytest.mark.parametrize("top_p", [1, 1.0, 1.5, math.inf, None])
def test_from_one_on_it_is_exact(path: Path, exact: Answers, top_p: float | None) -> None:
    with load(path, moe_expert_top_p=top_p) as model:
        assert model.experts_left_out is None
        assert one_by_one(model) == exact


@pytest.mark.parametrize("top_p", [0, 0.0, -0.5, -math.inf, math.nan, True, "0.5"])
def test_what_is_no_share_is_refused(path: Path, top_p: Any) -> None:
    with pytest.raises(ConfigError, match=r"moe_expert_top_p: got .*more than 0; from 1 on nothing is left out"):
        load(path, moe_expert_top_p=top_p)


def test_a_model_without_experts_has_none_to_leave_out(tmp_path: Path) -> None:
    dense = tiny_model(tmp_path / "dense.gguf", "qwen3")
    with pytest.raises(ConfigError, match=r"moe_expert_top_p: .*no routed experts"):
        load(dense, moe_expert_top_p=0.5)
    with load(dense, moe_expert_top_p=1.0) as model:
        assert model.experts_left_out is None


def test_keys_and_values_on_disk_are_not_taken_from_another_share(path: Path, tmp_path: Path) -> None:
    prompt, params = PROMPTS[1] * 4, SamplingParams(max_tokens=8, ignore_eos=True, logprobs=2)
    with load(path) as model:
        fresh = model.generate(prompt, params)
    cached = []
    for top_p in (0.3, 0.6, None, 0.3, None):
        with load(path, moe_expert_top_p=top_p, kv_cache_dir=tmp_path / "kv") as model:
            answer = model.generate(prompt, params)
        cached.append(answer.usage.cached_tokens)
        if top_p is None:
            assert (answer.ids, answer.logprobs) == (fresh.ids, fresh.logprobs)
    assert cached[:3] == [0, 0, 0]
    assert min(cached[3:]) > 0, "what was kept for the same share is found"


def test_a_conversation_is_not_resumed_with_another_share(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk"
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    with load(path, moe_expert_top_p=0.6) as model, model.conversation(file=file) as talk:
        talk.send("Hello", params)
    for top_p in (0.7, None):
        with load(path, moe_expert_top_p=top_p) as model, pytest.raises(fucina.ConversationFileError):
            model.conversation(file=file)
    with load(path, moe_expert_top_p=0.6) as model, model.conversation(file=file) as talk:
        assert talk.cached_tokens > 0
