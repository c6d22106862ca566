"""Logits of tiny seeded models of every family equal transformers' (tests/golden/make_logits.py makes them)."""

from __future__ import annotations

import json
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


def _load(case: dict[str, Any], folder: Path, backend: str, kv_format: str) -> DecoderLM:
    shape = replace(FAMILIES[case["family"]](), **case["overrides"])
    weights = tiny_weights(shape, case["seed"])
    if "rope_factors" in case:
        weights["rope_freqs.weight"] = np.array(case["rope_factors"], np.float32)
    tensors = {name: (array, F32) for name, array in weights.items()}
    path = write_gguf(folder / "tiny.gguf", tiny_metadata(case["family"], shape), tensors)
    with open_gguf(path) as gguf:
        ops = open_ops(max_rows=64, threads=1, backend=backend)
        return load_causal_lm(gguf, ops, context=128, kv_format=kv_format)


def _all_logits(model: DecoderLM, ids: list[int]) -> NDArray[np.float32]:
    """In two passes, so that the second reads what the first stored."""
    sequence, rows = KvSequence(model.kv_pool), []
    for start in range(0, len(ids), model.max_rows):
        tokens = ids[start : start + model.max_rows]
        sequence.reserve(len(tokens))
        rows.append(model.forward(Batch((Span(tokens, start, sequence.blocks, len(tokens)),))).copy())
        sequence.advance(len(tokens))
    return np.concatenate(rows)


def _difference(name: str, folder: Path, backend: str, kv_format: str) -> float:
    """The largest difference between a backend's logits and the golden ones."""
    if backend == "native" and isinstance(open_native(), Absent):
        pytest.skip("the compiled extension is not built")
    golden = np.load(GOLDEN / f"logits-{name}.npz")
    logits = _all_logits(_load(CASES[name], folder, backend, kv_format), golden["ids"].tolist())
    expected, got = (golden["logits"], logits) if kv_format == "f32" else (golden["half"], logits[::STRIDE])
    worst = float(np.abs(got - expected).max())
    print(f"{name}, {backend}, {kv_format} cache: {len(logits)} positions, largest difference {worst:.1e}")
    return worst


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name: str, backend: str, tmp_path: Path) -> None:
    assert _difference(name, tmp_path, backend, "f32") <= EXACT_CACHE


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("name", CASES)
def test_with_a_half_precision_cache_too(name: str, backend: str, tmp_path: Path) -> None:
    assert _difference(name, tmp_path, backend, "f16") <= HALF_CACHE


def test_every_family_has_a_case() -> None:
    assert {case["family"] for case in CASES.values()} == set(FAMILIES)
