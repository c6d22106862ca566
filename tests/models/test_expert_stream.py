"""Experts read from the file when a pass needs them: the bits of the resident model, whatever memory holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.formats import Q4_K, Q6_K, Q8_0
from fucina.core.nativelib import Native, open_native
from fucina.errors import ConfigError, ExpertReadError
from fucina.models.fingerprint import model_fingerprint
from fucina.models.loader import DecoderLM, load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.native import NativeOps
from fucina.ops.reference import ReferenceOps
from fucina.storage.experts.options import StreamOptions
from fucina.storage.experts.usage import UsageFile
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.tiny_gguf import tiny_model

N_LAYERS, N_EXPERTS, N_USED = 3, 16, 4
IDS = [int(i) for i in np.random.default_rng(8).integers(3, 250, 70)]
#: One expert in the file: three matrices of 256 by 256 weights in Q4_K.
EXPERT_BYTES = 3 * 256 * Q4_K.row_bytes(256)
#: In memory, in tiles, it may take a little more.
LEAST = StreamOptions(cache_bytes=N_LAYERS * EXPERT_BYTES * 5 // 4, learn=False)
SOME = StreamOptions(cache_bytes=N_LAYERS * EXPERT_BYTES * 6, learn=False)
ALL = StreamOptions(cache_bytes=N_LAYERS * EXPERT_BYTES * 2 * N_EXPERTS, learn=False)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixture(tmp_path_factory.mktemp("mixture") / "model.gguf")


@pytest.fixture(scope="module")
def resident(path: Path) -> NDArray[np.float32]:
    return logits(load(path, None), IDS, 64)


def mixture(path: Path, **overrides: object) -> Path:
    shape = {"n_layers": N_LAYERS, "n_experts": N_EXPERTS, "n_used": N_USED, "format": Q4_K, "seed": 3} | overrides
    return tiny_model(path, "qwen3moe", **shape)  # type: ignore[arg-type]


def load(
    path: Path, options: StreamOptions | None, *, threads: int = 2, tier: str | None = None, repack: bool = True
) -> DecoderLM:
    native = open_native()
    assert isinstance(native, Native)
    ops = NativeOps(native.module, max_rows=64, threads=threads, tier=tier, repack=repack)
    return load_causal_lm(open_gguf(path), ops, kv_capacity_blocks=8, stream=options)


def logits(model: DecoderLM, ids: Sequence[int], chunk: int) -> NDArray[np.float32]:
    """(positions, vocab), computed in passes of `chunk` rows."""
    cache, pieces = KvSequence(model.kv_pool), []
    try:
        for start in range(0, len(ids), chunk):
            tokens = ids[start : start + chunk]
            cache.reserve(len(tokens))
            batch = Batch((Span(tokens, start, list(cache.blocks), len(tokens)),))
            pieces.append(model.forward(batch).copy())
            cache.advance(len(tokens))
    finally:
        cache.close()
    return np.concatenate(pieces)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("options", [LEAST, SOME, ALL], ids=["one expert a layer", "some", "all"])
def test_bits_are_those_of_the_resident_model(
    path: Path, resident: NDArray[np.float32], options: StreamOptions, threads: int
) -> None:
    model = load(path, options, threads=threads)
    for chunk in (1, 64, 7, 1):  # cold; in turns where not all fit; warm
        assert np.array_equal(logits(model, IDS, chunk), resident), chunk
    assert model.experts is not None
    stats = model.experts.stats()
    assert options.cache_bytes is not None
    assert stats.memory_bytes <= options.cache_bytes
    assert N_LAYERS <= stats.slots <= stats.experts == N_LAYERS * N_EXPERTS


@pytest.mark.parametrize("tier", ["scalar", "baseline"])
@pytest.mark.parametrize("repack", [True, False])
def test_other_tiers_and_raw_rows(path: Path, resident: NDArray[np.float32], tier: str, repack: bool) -> None:
    model = load(path, SOME, tier=tier, repack=repack)
    assert np.array_equal(logits(model, IDS[:9], 3), resident[:9])


@pytest.mark.parametrize("family", ["qwen2moe", "llama"])
def test_other_families_and_formats(tmp_path: Path, family: str) -> None:
    fmt = {"qwen2moe": Q6_K, "llama": Q8_0}[family]
    file = tiny_model(tmp_path / "model.gguf", family, n_experts=6, n_used=2, d_expert=256, format=fmt)
    whole = logits(load(file, None), IDS[:20], 20)
    few = StreamOptions(cache_bytes=2 * 3 * 256 * fmt.row_bytes(256) * 3, learn=False)
    assert np.array_equal(logits(load(file, few), IDS[:20], 6), whole)


def test_reads_are_counted(path: Path) -> None:
    model = load(path, ALL)
    assert model.experts is not None
    logits(model, IDS, 1)
    cold = model.experts.stats()
    assert cold.misses + cold.cache_hits == len(IDS) * N_LAYERS * N_USED
    assert cold.bytes_read == cold.misses * EXPERT_BYTES
    assert N_USED * N_LAYERS <= cold.misses <= N_EXPERTS * N_LAYERS  # each at most once: there is room for all
    logits(model, IDS, 1)
    assert model.experts.stats().bytes_read == cold.bytes_read
    assert 0.0 <= cold.overlap <= 1.0
    assert min(cold.read_s, cold.pack_s, cold.busy_s) > 0.0


def test_each_expert_is_read_once_a_pass(path: Path) -> None:
    model = load(path, LEAST)
    assert model.experts is not None
    logits(model, IDS[:64], 64)
    stats = model.experts.stats()
    assert stats.slots == N_LAYERS
    assert N_EXPERTS * N_LAYERS // 2 < stats.misses <= N_EXPERTS * N_LAYERS
    assert stats.bytes_read == stats.misses * EXPERT_BYTES


def test_the_second_run_pins_what_the_first_used(tmp_path: Path) -> None:
    file = mixture(tmp_path / "model.gguf")
    whole = logits(load(file, None), IDS, 64)
    gguf = open_gguf(file)
    favorites = [np.array([2000, 1000, *[300] * 14], np.uint64) for _ in range(N_LAYERS)]
    beside = UsageFile([tmp_path / "model.gguf.experts"], model_fingerprint(gguf, "experts"), [N_EXPERTS] * N_LAYERS)
    beside.add(favorites)
    assert SOME.cache_bytes is not None
    learning = StreamOptions(cache_bytes=SOME.cache_bytes)
    model = load(file, learning)
    assert model.experts is not None
    model.experts.settle()
    ready = model.experts.stats()
    assert ready.pinned >= 2 * N_LAYERS
    # those not pinned begin with the most used, too; what comes later passes through the spare ones
    assert ready.pinned * EXPERT_BYTES < ready.bytes_read < ready.slots * EXPERT_BYTES
    assert np.array_equal(logits(model, IDS, 5), whole)
    stats = model.experts.stats()
    assert stats.pinned_hits > 0
    model.experts.close()
    kept = beside.read()
    assert kept is not None
    added = sum(int(n.sum()) for n in kept) - sum(int(n.sum()) for n in favorites)
    assert added == stats.pinned_hits + stats.cache_hits + stats.misses
    model.experts.close()
    again = beside.read()
    assert again is not None
    assert all(np.array_equal(a, b) for a, b in zip(kept, again, strict=True))


def test_nothing_is_learned_when_not_wanted(tmp_path: Path) -> None:
    file = mixture(tmp_path / "model.gguf")
    model = load(file, SOME)
    assert model.experts is not None
    logits(model, IDS[:3], 3)
    model.experts.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.gguf"]


def test_a_shortened_file_is_a_named_error_until_it_is_whole_again(
    tmp_path: Path, resident: NDArray[np.float32]
) -> None:
    file = mixture(tmp_path / "model.gguf")
    model = load(file, LEAST)
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(size - 500_000)
        tail = opened.read()
        opened.truncate(size - 500_000)
        with pytest.raises(ExpertReadError, match=r"the file ends at byte .* shortened") as caught:
            logits(model, IDS, 64)
        assert caught.value.path == file
        opened.seek(size - 500_000)
        opened.write(tail)
    assert np.array_equal(logits(model, IDS, 64), resident)
    assert model.experts is not None
    assert model.experts.stats().failed_reads >= 1


@pytest.fixture
def unreadable(path: Path) -> Iterator[DecoderLM]:
    """A model whose descriptors cannot be read from until the test is over."""
    model = load(path, LEAST)
    mine = [fd for fd in descriptors() if os.path.realpath(f"/proc/self/fd/{fd}") == str(path.resolve())]
    assert mine
    saved = [os.dup(fd) for fd in mine]
    broken = os.open(path, os.O_WRONLY)
    for fd in mine:
        os.dup2(broken, fd)
    yield model
    for fd, good in zip(mine, saved, strict=True):
        os.dup2(good, fd)
        os.close(good)
    os.close(broken)


def descriptors() -> list[int]:
    return [int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.exists()]


def test_an_unreadable_disk_is_a_named_error(unreadable: DecoderLM) -> None:
    for _ in range(2):
        with pytest.raises(ExpertReadError, match=r"cannot be read \(.*\); check the disk"):
            logits(unreadable, IDS, 5)


def test_the_next_pass_tries_again(unreadable: DecoderLM, path: Path, resident: NDArray[np.float32]) -> None:
    with pytest.raises(ExpertReadError):
        logits(unreadable, IDS, 5)
    for fd in descriptors():
        if os.path.realpath(f"/proc/self/fd/{fd}") == str(path.resolve()):
            good = os.open(path, os.O_RDONLY)
            os.dup2(good, fd)
            os.close(good)
    assert np.array_equal(logits(unreadable, IDS, 5), resident)


def test_wrong_wishes_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"moe_cache: got .*an expert a layer"):
        load(path, StreamOptions(cache_bytes=1000))
    with pytest.raises(ConfigError, match="moe_pin"):
        load(path, StreamOptions(cache_bytes=LEAST.cache_bytes, pin_bytes=10**9))
    dense = tiny_model(tmp_path / "dense.gguf", "qwen3")
    with pytest.raises(ConfigError, match="no routed experts"):
        load(dense, SOME)
    with pytest.raises(ConfigError, match="reads no experts on demand"):
        load_causal_lm(open_gguf(path), ReferenceOps(64), stream=SOME)


@pytest.mark.parametrize("cache_bytes", [LEAST.cache_bytes, SOME.cache_bytes])
def test_looking_ahead_changes_no_bit(path: Path, resident: NDArray[np.float32], cache_bytes: int | None) -> None:
    model = load(path, StreamOptions(cache_bytes=cache_bytes, pilot=True, learn=False))
    for chunk in (1, 64, 3, 2):
        assert np.array_equal(logits(model, IDS, chunk), resident), chunk
    assert model.experts is not None
    stats = model.experts.stats()
    assert stats.hinted + stats.hints_dropped > 0
    assert stats.hints_useful <= stats.hinted


@pytest.mark.parametrize("options", [LEAST, SOME], ids=["one expert a layer", "some"])
def test_what_the_page_cache_does_not_have_changes_no_bit(
    path: Path, resident: NDArray[np.float32], options: StreamOptions
) -> None:
    model = load(path, options)
    for chunk in (1, 64, 9):
        for start in range(0, len(IDS), 35):  # some of it comes from the disk, some was read for the pass before
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert np.array_equal(logits(model, IDS[: start + 35], chunk), resident[: start + 35]), chunk


def test_reading_past_the_page_cache_changes_no_bit(path: Path, resident: NDArray[np.float32]) -> None:
    model = load(path, StreamOptions(cache_bytes=SOME.cache_bytes, direct=True, learn=False))
    assert np.array_equal(logits(model, IDS, 9), resident)


@pytest.mark.parametrize(("direct", "pilot", "looks"), [(True, None, True), (False, None, False), (True, False, False)])
def test_looks_ahead_where_the_disk_is_what_it_waits_for(
    path: Path, direct: bool, pilot: bool | None, looks: bool
) -> None:
    model = load(path, StreamOptions(cache_bytes=SOME.cache_bytes, direct=direct, pilot=pilot, learn=False))
    logits(model, IDS[:9], 1)
    assert model.experts is not None
    stats = model.experts.stats()
    assert (stats.hinted + stats.hints_dropped > 0) == looks
