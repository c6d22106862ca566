"""Logits of tiny seeded models of every family equal transformers' (tests/golden/make_logits.py makes them)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.formats import F32
from fucina.core.nativelib import Absent, open_native
from fucina.models.loader import DecoderLM, load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.choose import open_ops
from fucina.ops.reference import backend as reference_backend
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.tiny_gguf import FAMILIES, tiny_metadata, tiny_weights, write_gguf

GOLDEN = Path(__file__).parents[1] / "golden"
CASES: dict[str, dict[str, Any]] = json.loads((GOLDEN / "logits.json").read_text())
STRIDE = 8

#: The mathematics, with keys and values kept in float32: float32 arithmetic in another order.
EXACT_CACHE = 1e-4
#: With a half-precision cache on both sides: one last float32 bit can carry a key or a value over a rounding boundary,
#: which moves it by 2^-11 of itself. A cache in float32 would move logits by up to 5e-3, which this would notice.
HALF_CACHE = 1.5e-3


class FloatCache:
    """Keys and values of one layer in float32, by block and slot: the reference backend's cache without rounding."""

    def __init__(self) -> None:
        self._stored: dict[tuple[int, int], tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    def write(self, block: int, slot: int, k: NDArray[np.float32], v: NDArray[np.float32]) -> None:
        self._stored[block, slot] = k.copy(), v.copy()

    def keys(self, block: int, start: int, stop: int) -> NDArray[np.float32]:
        return np.stack([self._stored[block, slot][0] for slot in range(start, stop)], axis=-1)

    def values(self, block: int, start: int, stop: int) -> NDArray[np.float32]:
        return np.stack([self._stored[block, slot][1] for slot in range(start, stop)], axis=1)


def _load(case: dict[str, Any], folder: Path, backend: str) -> DecoderLM:
    shape = replace(FAMILIES[case["family"]](), **case["overrides"])
    weights = tiny_weights(shape, case["seed"])
    if "rope_factors" in case:
        weights["rope_freqs.weight"] = np.array(case["rope_factors"], np.float32)
    tensors = {name: (array, F32) for name, array in weights.items()}
    path = write_gguf(folder / "tiny.gguf", tiny_metadata(case["family"], shape), tensors)
    with open_gguf(path) as gguf:
        return load_causal_lm(gguf, open_ops(max_rows=64, threads=1, backend=backend), context=128)


def _all_logits(model: DecoderLM, ids: list[int]) -> NDArray[np.float32]:
    """In two passes, so that the second reads what the first stored."""
    sequence, rows = KvSequence(model.kv_pool), []
    for start in range(0, len(ids), model.max_rows):
        tokens = ids[start : start + model.max_rows]
        sequence.reserve(len(tokens))
        rows.append(model.forward(Batch((Span(tokens, start, sequence.blocks, len(tokens)),))).copy())
        sequence.advance(len(tokens))
    return np.concatenate(rows)


@pytest.mark.parametrize("name", CASES)
def test_the_mathematics_is_that_of_transformers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache: Callable[[object, int], FloatCache] = lambda _pool, _layer: FloatCache()  # noqa: E731
    monkeypatch.setattr(reference_backend, "layer_cache", cache)
    golden = np.load(GOLDEN / f"logits-{name}.npz")
    logits = _all_logits(_load(CASES[name], tmp_path, "reference"), golden["ids"].tolist())
    worst = np.abs(logits - golden["logits"]).max()
    print(f"{name}: {logits.shape[0]} positions, largest difference {worst:.1e}")
    assert worst <= EXACT_CACHE


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("name", CASES)
def test_with_a_half_precision_cache_too(name: str, backend: str, tmp_path: Path) -> None:
    if backend == "native" and isinstance(open_native(), Absent):
        pytest.skip("the compiled extension is not built")
    golden = np.load(GOLDEN / f"logits-{name}.npz")
    logits = _all_logits(_load(CASES[name], tmp_path, backend), golden["ids"].tolist())
    worst = np.abs(logits[::STRIDE] - golden["half"]).max()
    print(f"{name}, {backend}: largest difference {worst:.1e}")
    assert worst <= HALF_CACHE


def test_every_family_has_a_case() -> None:
    assert {case["family"] for case in CASES.values()} == set(FAMILIES)
