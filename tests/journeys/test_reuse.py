"""What was read is not read again: across conversations that do not fit in memory together, and across restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

import fucina
from fucina.core.shapes import KV_BLOCK
from fucina.errors import ConfigError
from fucina.storage.kv.prefix import PrefixCache
from fucina.testing.tiny_gguf import tiny_model

PARAMS = fucina.SamplingParams(max_tokens=8, ignore_eos=True)
SYSTEM = "You answer in one short sentence, and you never say a word too many. " * 3


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", "llama", context_length=2048)


def test_a_restart_goes_on_from_the_folder(tiny_path: Path, tmp_path: Path) -> None:
    prompt = SYSTEM + "Hello!"
    with fucina.load(tiny_path, kv_cache_dir=tmp_path / "kv") as model:
        before = model.generate(prompt, PARAMS)
    with fucina.load(tiny_path, kv_cache_dir=tmp_path / "kv") as model:
        after = model.generate(prompt, PARAMS)
    assert before.usage.cached_tokens == 0
    assert after.usage.cached_tokens == len(before.prompt_ids) - 1
    assert after.ids == before.ids


def test_another_format_of_the_cache_shares_nothing(tiny_path: Path, tmp_path: Path) -> None:
    for kv_format in ("f16", "q8_0", "f32"):
        with fucina.load(tiny_path, kv_cache_dir=tmp_path / "kv", kv_format=kv_format) as model:
            assert model.generate(SYSTEM, PARAMS).usage.cached_tokens == 0


def test_more_conversations_than_memory_holds_stay_warm_through_the_folder(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a busy disk may take longer than so small a model does to compute a block again, which would then be right
    monkeypatch.setattr(PrefixCache, "_pays", lambda *_: True)
    with fucina.load(tiny_path) as model:
        block_bytes = model._engine.prefixes._pool.geometry.block_bytes
    options = {"kv_memory": 12 * block_bytes, "kv_cache_dir": tmp_path / "kv"}
    with fucina.load(tiny_path, **options) as model, fucina.load(tiny_path) as roomy:  # type: ignore[arg-type]
        talks = [model.conversation(system=f"{number}: {SYSTEM}") for number in range(8)]
        twins = [roomy.conversation(system=f"{number}: {SYSTEM}") for number in range(8)]
        for turn in ("one", "two", "three"):
            for talk, twin in zip(talks, twins, strict=True):
                answer, expected = talk.send(turn, PARAMS), twin.send(turn, PARAMS)
                assert answer.ids == expected.ids
                if turn != "one":
                    assert answer.usage.cached_tokens >= expected.usage.cached_tokens - KV_BLOCK
                    assert answer.usage.cached_tokens > 2 * KV_BLOCK


def test_memory_is_what_was_asked_for(tiny_path: Path) -> None:
    with fucina.load(tiny_path, kv_memory="1M") as model:
        pool = model._engine.prefixes._pool
        assert pool.capacity == (1 << 20) // pool.geometry.block_bytes


@pytest.mark.parametrize(
    "options",
    [
        {"kv_memory": 10},
        {"kv_memory": True},
        {"kv_memory": "much"},
        {"kv_memory": -1},
        {"kv_disk": -1},
        {"kv_disk": 1.5},
    ],
    ids=repr,
)
def test_sizes_that_cannot_be(tiny_path: Path, tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        fucina.load(tiny_path, kv_cache_dir=tmp_path, **options)  # type: ignore[arg-type]
