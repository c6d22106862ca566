"""Hidden states behind the last norm: those of transformers, and the same bits for every schedule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.formats import F32, Q4_K, Format
from fucina.core.nativelib import Absent, Native, open_native
from fucina.errors import BadHeader, MissingKey, ShapeError
from fucina.models.loader import DecoderLM, load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.choose import open_ops
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.tiny_gguf import FAMILIES, tiny_metadata, tiny_model, tiny_weights, write_gguf

Rows = NDArray[np.float32]
GOLDEN = Path(__file__).parents[1] / "golden"
CASES: dict[str, dict[str, Any]] = json.loads((GOLDEN / "logits.json").read_text())
STRIDE = 16
IDS = np.random.default_rng(17).integers(3, 250, 100).tolist()
MATES = (IDS[:70], IDS[5:8], IDS[::-1])

#: Of values of about 1, computed in float32 in another order.
OTHER_ORDER = 1e-4


def _model(path: Path, backend: str, *, max_rows: int = 256, **options: Any) -> DecoderLM:
    if backend == "native" and isinstance(open_native(), Absent):
        pytest.skip("the compiled extension is not built")
    kv_format = options.pop("kv_format", "f16")
    with open_gguf(path) as gguf:
        ops = open_ops(max_rows=max_rows, backend=backend, **{"threads": 1, **options})
        return load_causal_lm(gguf, ops, kv_format=kv_format, kv_capacity_blocks=16)


def _hidden(model: DecoderLM, ids: Sequence[int], chunk: int) -> Rows:
    """(len(ids), d_model), `chunk` rows a pass."""
    sequence, pieces = KvSequence(model.kv_pool), []
    sequence.reserve(len(ids))
    for start in range(0, len(ids), chunk):
        piece = ids[start : start + chunk]
        pieces.append(model.forward_hidden(Batch((Span(piece, start, sequence.blocks, 0),))).copy())
    sequence.close()
    return np.concatenate(pieces)


def _assert_same_bits(got: Rows, expected: Rows) -> None:
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_transformers(name: str, backend: str, tmp_path: Path) -> None:
    case = CASES[name]
    shape = replace(FAMILIES[case["family"]](), **case["overrides"])
    weights = tiny_weights(shape, case["seed"])
    if "rope_factors" in case:
        weights["rope_freqs.weight"] = np.array(case["rope_factors"], np.float32)
    tensors = {tensor: (array, F32) for tensor, array in weights.items()}
    path = write_gguf(tmp_path / "tiny.gguf", tiny_metadata(case["family"], shape), tensors)
    model = _model(path, backend, kv_format="f32")
    ids = np.load(GOLDEN / f"logits-{name}.npz")["ids"].tolist()
    expected = np.load(GOLDEN / "hidden.npz")[name]
    got = _hidden(model, ids, 64)
    assert got.shape == (len(ids), model.d_model)
    assert float(np.abs(expected).mean()) > 0.3
    assert float(np.abs(got[::STRIDE] - expected).max()) <= OTHER_ORDER


@pytest.mark.parametrize("weight_format", [F32, Q4_K], ids=lambda f: f.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_schedule_shows_in_their_bits(family: str, weight_format: Format, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", family, format=weight_format, seed=2)
    expected = _hidden(_model(path, "native"), IDS, len(IDS))
    native = open_native()
    assert isinstance(native, Native)
    tiers = [name for name, runs in native.module.tiers() if runs and name != "baseline"]  # it may emulate fma
    for options in [{"threads": 2}, {"repack": False}, *({"tier": tier} for tier in tiers)]:
        model = _model(path, "native", **options)
        for chunk in (100,) if options.get("tier") == "scalar" else (1, 7, 100):
            _assert_same_bits(_hidden(model, IDS, chunk), expected)


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_batch_mates_and_logits_wanted_do_not_show(backend: str, tmp_path: Path) -> None:
    model = _model(tiny_model(tmp_path / "m.gguf", "gemma3", n_layers=2, seed=2), backend)
    alone = [_hidden(model, ids, 1) for ids in MATES]
    sequences = [KvSequence(model.kv_pool) for _ in MATES]
    for ids, sequence in zip(MATES, sequences, strict=True):
        sequence.reserve(len(ids))
    for n_logits in (0, 1, 3):
        spans = tuple(Span(ids, 0, sequence.blocks, n_logits) for ids, sequence in zip(MATES, sequences, strict=True))
        _assert_same_bits(model.forward_hidden(Batch(spans)), np.concatenate(alone))


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_passes_with_and_without_a_head_go_together(backend: str, tmp_path: Path) -> None:
    model = _model(tiny_model(tmp_path / "m.gguf", "llama", seed=2), backend)
    hidden = _hidden(model, IDS[:20], 20)
    sequence = KvSequence(model.kv_pool)
    sequence.reserve(40)
    logits = model.forward(Batch((Span(IDS[:20], 0, sequence.blocks, 20),))).copy()
    # what one kind of pass wrote into the cache, the other reads
    model.forward(Batch((Span(IDS[:10], 0, sequence.blocks, 1),)))
    _assert_same_bits(model.forward_hidden(Batch((Span(IDS[10:20], 10, sequence.blocks, 0),))), hidden[10:])
    _assert_same_bits(model.forward(Batch((Span(IDS[15:20], 15, sequence.blocks, 5),))), logits[15:])


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_too_many_rows_are_refused(backend: str, tmp_path: Path) -> None:
    model = _model(tiny_model(tmp_path / "m.gguf", "llama", n_layers=1), backend, max_rows=8)
    with pytest.raises(ShapeError):
        _hidden(model, IDS[:9], 9)


def _pooling(tmp_path: Path, value: Any) -> str | None:
    metadata = {"qwen3.pooling_type": value}
    return _model(tiny_model(tmp_path / "m.gguf", "qwen3", n_layers=1, metadata=metadata), "reference").pooling


def test_the_file_says_how_they_are_pooled(tmp_path: Path) -> None:
    # numbered as in llama.h
    for number, name in enumerate(("none", "mean", "cls", "last", "rank")):
        assert _pooling(tmp_path, number) == name
    assert _pooling(tmp_path, None) is None


@pytest.mark.parametrize(("value", "error"), [(5, BadHeader), (2**31, BadHeader), ("mean", MissingKey)])
def test_a_pooling_that_is_none_is_refused(value: Any, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error, match=r"qwen3\.pooling_type"):
        _pooling(tmp_path, value)
