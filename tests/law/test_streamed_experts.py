"""Answers of a model whose experts stay on disk: those of the resident one, in batches, drafted and constrained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fucina
from fucina import Constraint, ExpertReadError, Model, SamplingParams
from fucina.core.formats import Q4_K
from fucina.testing.tiny_gguf import tiny_model

PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [200, 30, 31, 32] * 9, [9] * 20, [100, 101]]
PARAMS = [
    SamplingParams(max_tokens=24, ignore_eos=True),
    SamplingParams(max_tokens=24, ignore_eos=True),
    SamplingParams(max_tokens=12, ignore_eos=True, temperature=1.0, seed=4),
    SamplingParams(max_tokens=30, ignore_eos=True, repeat_penalty=1.2),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("mixture") / "model.gguf"
    return tiny_model(file, "qwen3moe", n_layers=3, n_experts=16, n_used=4, format=Q4_K, seed=3)


@pytest.fixture(scope="module")
def resident(path: Path) -> Iterator[Model]:
    with fucina.load(path, speculation=False, kv_memory="64M") as model:
        yield model


@pytest.fixture(scope="module", params=["400K", "3M"])
def streamed(path: Path, request: pytest.FixtureRequest) -> Iterator[Model]:
    with fucina.load(path, moe_cache=request.param, moe_learn=False, kv_memory="64M") as model:
        yield model


def test_batches_and_drafts(resident: Model, streamed: Model) -> None:
    expected = [answer.ids for answer in resident.generate_batch(PROMPTS, PARAMS)]
    assert [answer.ids for answer in streamed.generate_batch(PROMPTS, PARAMS)] == expected
    for prompt, params, ids in zip(PROMPTS, PARAMS, expected, strict=True):
        # what was said before is drafted
        reference = [*prompt, *ids]
        assert streamed.generate(prompt, params, references=[reference]).ids == ids
    assert streamed.experts is not None
    assert streamed.experts.misses > 0
    assert resident.experts is None


def test_constraints(resident: Model, streamed: Model) -> None:
    params = SamplingParams(max_tokens=20)
    expected = resident.generate("Say", params, constraint=Constraint.regex("[a-c]{3,9}!"))
    got = streamed.generate("Say", params, constraint=Constraint.regex("[a-c]{3,9}!"))
    assert (got.ids, got.text) == (expected.ids, expected.text)


def test_a_failed_read_ends_one_answer_and_no_more(tmp_path: Path, resident: Model, path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(path.read_bytes())
    expected = resident.generate(PROMPTS[1], PARAMS[1]).ids
    with fucina.load(file, moe_cache="400K", moe_learn=False, speculation=False, kv_memory="64M") as model:
        tail = file.read_bytes()[-500_000:]
        with file.open("r+b") as opened:
            opened.truncate(file.stat().st_size - len(tail))
            with pytest.raises(ExpertReadError, match="shortened"):
                model.generate(PROMPTS[1], PARAMS[1])
            assert model.counters.failed_passes == 1
            opened.seek(0, 2)
            opened.write(tail)
        assert model.generate(PROMPTS[1], PARAMS[1]).ids == expected
