"""Logits are a pure function of the prefix: not of chunks, batch mates, rewinding, forks or the blocks they lie in.

On the NumPy backend and, where it is built, on the native one. Tolerance: none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.formats import F32, Q4_1, Q4_K, Q8_0, Format
from fucina.core.nativelib import Absent, open_native
from fucina.models.loader import DecoderLM, load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.choose import open_ops
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.tiny_gguf import FAMILIES, tiny_model

Logits = NDArray[np.float32]
#: Deep enough for a global layer after a local one, and no deeper.
DEPTH: dict[str, dict[str, Any]] = {family: {"n_layers": 2} for family in FAMILIES}
DEPTH["gemma3"] |= {"metadata": {"gemma3.attention.sliding_window_pattern": 2}}
IDS = np.random.default_rng(11).integers(3, 250, 150).tolist()


def _append(model: DecoderLM, sequence: KvSequence, ids: Sequence[int]) -> Logits:
    """Logits of `ids` appended to the sequence, (len(ids), vocab)."""
    sequence.reserve(len(ids))
    logits = model.forward(Batch((Span(ids, sequence.length, list(sequence.blocks), len(ids)),))).copy()
    sequence.advance(len(ids))
    return logits


def _in_chunks(model: DecoderLM, ids: Sequence[int], chunk: int) -> Logits:
    sequence = KvSequence(model.kv_pool)
    pieces = [_append(model, sequence, ids[start : start + chunk]) for start in range(0, len(ids), chunk)]
    sequence.close()
    return np.concatenate(pieces)


@pytest.fixture(params=["reference", "native"])
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., DecoderLM]:
    if request.param == "native" and isinstance(open_native(), Absent):
        pytest.skip("the compiled extension is not built")

    def open_model(family: str, fmt: Format = F32, kv_format: str = "f16") -> DecoderLM:
        path = tiny_model(tmp_path / "m.gguf", family, format=fmt, seed=3, d_ff=256, **DEPTH[family])
        with open_gguf(path) as gguf:
            ops = open_ops(max_rows=160, threads=1, backend=request.param)
            return load_causal_lm(gguf, ops, kv_format=kv_format, kv_capacity_blocks=24)

    return open_model


@pytest.mark.parametrize("fmt", [F32, Q8_0, Q4_1, Q4_K], ids=lambda f: f.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_do_not_matter(family: str, fmt: Format, load: Callable[..., DecoderLM]) -> None:
    model = load(family, fmt)
    whole = _in_chunks(model, IDS, 150)
    for chunk in (1, 64) if fmt is F32 else (7,):
        assert np.array_equal(_in_chunks(model, IDS, chunk), whole)


@pytest.mark.parametrize("kv_format", ["f16", "q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_batch_mates_do_not_matter(family: str, kv_format: str, load: Callable[..., DecoderLM]) -> None:
    model = load(family, Q8_0, kv_format)
    alone = _in_chunks(model, IDS[:40], 40)
    others = [KvSequence(model.kv_pool) for _ in range(3)]
    for length, other in zip((64, 3, 100), others, strict=True):
        _append(model, other, IDS[:length])
    mine, rows = KvSequence(model.kv_pool), []
    for token in IDS[:40]:
        spans = []
        for sequence, tokens in [(others[0], [5]), (mine, [token]), (others[1], [6, 7, 8]), (others[2], [9, 10])]:
            sequence.reserve(len(tokens))
            spans.append(Span(tokens, sequence.length, list(sequence.blocks), 1))
            sequence.advance(len(tokens))
        rows.append(model.forward(Batch(tuple(spans)))[1].copy())
    assert np.array_equal(np.stack(rows), alone)


@pytest.mark.parametrize("kv_format", ["f16", "q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_truncate_and_append_again_equals_a_fresh_cache(
    family: str, kv_format: str, load: Callable[..., DecoderLM]
) -> None:
    model = load(family, F32, kv_format)
    fresh = _in_chunks(model, IDS, 150)
    sequence = KvSequence(model.kv_pool)
    _append(model, sequence, IDS[:70] + [1] * 70)
    for length in (70, 63, 0):
        sequence.truncate(length)
        assert np.array_equal(_append(model, sequence, IDS[length:]), fresh[length:])


@pytest.mark.parametrize("kv_format", ["f16", "q8_0"])
def test_forks_go_their_own_ways(kv_format: str, load: Callable[..., DecoderLM]) -> None:
    model = load("llama", F32, kv_format)
    left, right = IDS[:100] + IDS[100:120], IDS[:100] + IDS[120:140]
    first = KvSequence(model.kv_pool)
    _append(model, first, IDS[:100])
    second = first.fork()
    got_left, got_right = _append(model, first, left[100:]), _append(model, second, right[100:])
    assert np.array_equal(got_left, _in_chunks(model, left, 150)[100:])
    assert np.array_equal(got_right, _in_chunks(model, right, 150)[100:])
    second.close()
    first.truncate(100)
    assert np.array_equal(_append(model, first, right[100:]), got_right)


def test_what_an_earlier_sequence_left_in_a_block_is_never_seen(load: Callable[..., DecoderLM]) -> None:
    model = load("gemma3")
    clean = _in_chunks(model, IDS[:20], 20)
    model.kv_pool.memory[:] = b"\xff" * len(model.kv_pool.memory)  # NaN wherever nothing was written
    assert np.array_equal(_in_chunks(model, IDS[:20], 20), clean)
