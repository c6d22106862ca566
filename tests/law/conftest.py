"""Schedules for the tests of the law: the same tokens computed in every way the engine could choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.nativelib import Native, open_native
from fucina.models.loader import DecoderLM, load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.native import NativeOps
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.sequence import KvSequence

Logits = NDArray[np.float32]


class Schedules:
    """One model on one tier and thread count, and the ways to compute the logits of every position of a prompt."""

    def __init__(self, path: Path, tier: str, threads: int, *, kv_format: str = "f16", repack: bool = True) -> None:
        native = open_native()
        assert isinstance(native, Native)
        self.model: DecoderLM = load_causal_lm(
            open_gguf(path),
            NativeOps(native.module, max_rows=512, threads=threads, tier=tier, repack=repack),
            kv_format=kv_format,
            kv_capacity_blocks=64,
        )

    def chunked(self, ids: Sequence[int], chunk: int) -> Logits:
        """(positions, vocab): the prompt in passes of `chunk` rows."""
        cache = KvSequence(self.model.kv_pool)
        pieces = []
        for start in range(0, len(ids), chunk):
            tokens = ids[start : start + chunk]
            cache.reserve(len(tokens))
            span = Span(tokens, start, list(cache.blocks), len(tokens))
            pieces.append(self.model.forward(Batch((span,))).copy())
            cache.advance(len(tokens))
        cache.close()
        return np.concatenate(pieces)

    def among_others(self, ids: Sequence[int], others: Sequence[Sequence[int]], chunk: int) -> Logits:
        """(positions, vocab) of `ids`, every pass shared with three other sequences at other positions and lengths."""
        caches = [KvSequence(self.model.kv_pool) for _ in range(1 + len(others))]
        sequences = [list(ids), *map(list, others)]
        pieces: list[Logits] = []
        turn = 0
        while caches[0].length < len(ids):
            spans, mine = [], 0
            for i, (cache, tokens) in enumerate(zip(caches, sequences, strict=True)):
                size = chunk if i == 0 else 1 + (turn + i) % 5
                part = tokens[cache.length : cache.length + size]
                if not part:
                    continue
                cache.reserve(len(part))
                wanted = len(part) if i == 0 else (turn + i) % 2
                if i == 0:
                    mine = sum(span.n_logits for span in spans)
                spans.append(Span(part, cache.length, list(cache.blocks), wanted))
            order = spans[1:] + spans[:1] if turn % 2 else spans
            before = sum(span.n_logits for span in spans[1:]) if turn % 2 else mine
            rows = self.model.forward(Batch(tuple(order)))
            pieces.append(rows[before : before + spans[0].n_logits].copy())
            for cache, tokens, i in zip(caches, sequences, range(len(caches)), strict=True):
                size = chunk if i == 0 else 1 + (turn + i) % 5
                cache.advance(len(tokens[cache.length : cache.length + size]))
            turn += 1
        for cache in caches:
            cache.close()
        return np.concatenate(pieces)


def tiers() -> list[str]:
    """Every tier this machine runs, the scalar oracle first; without the extension the test is skipped."""
    native = open_native()
    if not isinstance(native, Native):
        pytest.skip("the extension is not built")
    return [name for name, runs in native.module.tiers() if runs]


@pytest.fixture
def assert_same_unpacked() -> Callable[..., None]:
    """A function that computes a prompt on every tier, with and without repacking, and demands the same bits."""

    def check(path: Path, ids: Sequence[int]) -> None:
        expected = Schedules(path, "scalar", 1).chunked(ids, len(ids))
        for tier in tiers():
            for repack in (True, False):
                run = Schedules(path, tier, 2, repack=repack)
                for chunk in (7, len(ids)):
                    assert_same_bits(run.chunked(ids, chunk), expected)

    return check


@pytest.fixture
def assert_law() -> Callable[..., None]:
    """A function that computes a prompt on every schedule and demands the same bits."""

    def check(path: Path, ids: Sequence[int], *, chunks: Sequence[int], slow_ids: int, kv_format: str = "f16") -> None:
        available = tiers()
        oracle = Schedules(path, "scalar", 2, kv_format=kv_format).chunked(ids[:slow_ids], 64)
        others = [list(reversed(ids))[:40], ids[3:60], ids[:7]]
        expected: Logits | None = None
        for tier in available[1:]:
            slow = tier == "baseline"  # where it emulates fma it takes a hundred times as long
            short = ids[:slow_ids] if slow else ids
            for threads in (2,) if slow else (1, 2):
                run = Schedules(path, tier, threads, kv_format=kv_format)
                results = [run.chunked(short, chunk) for chunk in (chunks[-1:] if slow else chunks)]
                results += [run.among_others(short, others, chunk) for chunk in ((7,) if slow else (1, 7))]
                for got in results:
                    assert_same_bits(got[: len(oracle)], oracle)
                    if len(short) == len(ids):
                        expected = got if expected is None else expected
                        assert_same_bits(got, expected)

    return check


def assert_same_bits(got: Logits, expected: Logits) -> None:
    """Equal as bit patterns, so that even the sign of a zero counts; NaN would be a bug of its own."""
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))
