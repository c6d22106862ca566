"""The law: logits are the same bits for every chunking, thread count, batch and tier, for every family and format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fucina.core.formats import F16, F32, Q4_K, SUPPORTED, Format
from fucina.storage.gguf import open_gguf
from fucina.testing.tiny_gguf import FAMILIES, tiny_model
from fucina.text.tokenizer import Tokenizer

STORY = (
    "Once upon a time, in a small village by the sea, there lived a clockmaker who mended what others threw away. "
    "Every morning he opened his window, listened to the gulls, and wound forty-one clocks, one after the other. "
    "def reverse(text):\n    return text[::-1]\n\nThe price was 1,234.50 euros; nobody paid it.\n"
    "The seven swift sailors saw the sun set slowly; the harbor master counted their lamps and went home to sleep. "
    "In the morning the tide had turned, the nets were full, and the clocks all struck nine at the same moment.\n"
)


@pytest.mark.parametrize("weight_format", [F32, Q4_K], ids=lambda f: f.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(tmp_path: Path, assert_law: Callable[..., None], family: str, weight_format: Format) -> None:
    path = tiny_model(tmp_path / "model.gguf", family, format=weight_format, seed=5)
    ids = [int(i) for i in np.random.default_rng(5).integers(3, 250, 135)]
    assert_law(path, ids, chunks=(1, 7, 64, 512), slow_ids=70)


@pytest.mark.parametrize("weight_format", SUPPORTED.values(), ids=lambda f: f.name)
def test_every_format(tmp_path: Path, assert_law: Callable[..., None], weight_format: Format) -> None:
    path = tiny_model(tmp_path / "model.gguf", "llama", format=weight_format, seed=6)
    ids = [int(i) for i in np.random.default_rng(6).integers(3, 250, 90)]
    assert_law(path, ids, chunks=(7, 512), slow_ids=70)


@pytest.mark.parametrize(("family", "kv_format"), [("llama", "q8_0"), ("gemma3", "q8_0"), ("qwen3", "f32")])
def test_every_cache_format(tmp_path: Path, assert_law: Callable[..., None], family: str, kv_format: str) -> None:
    path = tiny_model(tmp_path / "model.gguf", family, seed=7)
    ids = [int(i) for i in np.random.default_rng(7).integers(3, 250, 135)]
    assert_law(path, ids, chunks=(1, 7, 64, 512), slow_ids=70, kv_format=kv_format)


@pytest.mark.parametrize("weight_format", [F16, Q4_K], ids=lambda f: f.name)
def test_without_repacking(tmp_path: Path, assert_same_unpacked: Callable[..., None], weight_format: Format) -> None:
    path = tiny_model(tmp_path / "model.gguf", "llama", format=weight_format, seed=8)
    ids = [int(i) for i in np.random.default_rng(8).integers(3, 250, 24)]
    assert_same_unpacked(path, ids)


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models(request: pytest.FixtureRequest, assert_law: Callable[..., None], name: str) -> None:
    path: Path = request.getfixturevalue(f"{name}_path")
    tokenizer = Tokenizer.from_metadata(open_gguf(path).metadata)
    ids = tokenizer.encode(STORY)
    assert len(ids) > 64
    assert_law(path, ids, chunks=(1, 7, 64, 512), slow_ids=66)
