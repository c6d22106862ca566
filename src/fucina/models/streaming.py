"""A model whose routed experts stay on disk: what is held, what is learned."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fucina.core.cpu import available_memory_bytes
from fucina.core.settings import Settings
from fucina.errors import ConfigError
from fucina.models.fingerprint import model_fingerprint
from fucina.ops.seam import ExpertReader, Experts, Ops, StreamsExperts
from fucina.storage.experts.catalog import make_catalog
from fucina.storage.experts.options import StreamOptions
from fucina.storage.experts.residency import LEAST_HISTORY, LayerCost, Residency, plan_residency
from fucina.storage.experts.stats import ExpertStats
from fucina.storage.experts.usage import UsageFile, Uses
from fucina.storage.gguf import GgufFile
from fucina.storage.mapping import expect_views

#: What experts may take where nobody says how much memory is free.
_UNKNOWN_BYTES = 8 << 30


class ExpertStream:
    """The experts of one model: counters, and the memory of which are used."""

    def __init__(self, reader: ExpertReader, file: UsageFile | None, *, pilot: bool) -> None:
        self._reader = reader
        #: What looks a layer ahead, if anything does.
        self.pilot = reader if pilot else None
        self._learner = None if file is None else _Learner(reader, file)
        # a process that forgets to close its model has learned all the same
        self._at_end = weakref.finalize(self, _keep, self._learner)

    def stats(self) -> ExpertStats:
        """What was read, and what was there already."""
        return self._reader.stats()

    def fill(self) -> None:
        """Begin to read pinned experts and those used most before, once nothing else has to be read."""
        self._reader.fill()

    def settle(self) -> None:
        """Wait until pinned experts are in memory and nothing is being read."""
        self._reader.settle()

    def close(self) -> None:
        """Keep what was learned. Closing twice is fine."""
        self._at_end()


class _Learner:
    """Adds this run's uses to the file's."""

    def __init__(self, reader: ExpertReader, file: UsageFile) -> None:
        self._reader, self._file = reader, file

    def keep(self) -> None:
        uses = self._reader.uses()
        if any(counts.any() for counts in uses):
            self._file.add(uses)


def _keep(learner: _Learner | None) -> None:
    if learner is not None:
        learner.keep()


def stream_experts(gguf: GgufFile, ops: Ops, layers: Sequence[Experts], options: StreamOptions) -> ExpertStream:
    """Have mixtures bound after this read their experts from the model's files.

    Raises ConfigError for a backend that cannot, and for too little memory; ModelFileError.
    """
    if not isinstance(ops, StreamsExperts):
        raise ConfigError(
            "moe_stream", got=True, expected=f"False: the backend '{ops.name}' reads no experts on demand"
        )
    catalog = make_catalog((layer.gate, layer.up, layer.down) for layer in layers)
    file = _usage_file(gguf, [layer.gate.shape[0] for layer in layers]) if options.learn else None
    uses = None if file is None else file.read()
    if options.direct is None:
        available = available_memory_bytes()
        options = replace(options, direct=available is not None and experts_bytes(gguf) > available)
    reader = ops.bind_experts(catalog, lambda costs: _plan(gguf, costs, options, uses), options)
    return ExpertStream(reader, file, pilot=bool(options.direct if options.pilot is None else options.pilot))


def _plan(gguf: GgufFile, costs: Sequence[LayerCost], options: StreamOptions, uses: Uses | None) -> Residency:
    cache_bytes = _default_cache(gguf, costs) if options.cache_bytes is None else options.cache_bytes
    pin_bytes = cache_bytes // 2 if options.pin_bytes is None else options.pin_bytes
    if pin_bytes > cache_bytes:
        raise ConfigError("moe_pin", got=pin_bytes, expected=f"at most what moe_cache has, {cache_bytes} bytes")
    return plan_residency(costs, cache_bytes, pin_bytes, uses)


def expect_dense(gguf: GgufFile) -> None:
    """Have the kernel read all weights but experts, without the experts that lie between them. Before anything is read.

    Not where they are so large that some would be dropped again before they are used.
    """
    dense = [weight.data for weight in gguf.weights.values() if len(weight.shape) < 3]
    available = available_memory_bytes()
    if available is None or 2 * sum(data.nbytes for data in dense) <= available:
        expect_views(dense)


def experts_bytes(gguf: GgufFile) -> int:
    """Bytes of all stacked tensors: the routed experts."""
    return sum(weight.data.nbytes for weight in gguf.weights.values() if len(weight.shape) == 3)


def exceeds_memory(gguf: GgufFile) -> bool:
    """Whether the model has routed experts and is larger than the memory that is free."""
    available = available_memory_bytes()
    n_bytes = sum(weight.data.nbytes for weight in gguf.weights.values())
    return available is not None and n_bytes > available and experts_bytes(gguf) > 0


def _default_cache(gguf: GgufFile, costs: Sequence[LayerCost]) -> int:
    """Half of what is left besides the other weights, at least an expert a layer, and no more than all experts take."""
    available = available_memory_bytes()
    dense_bytes = sum(weight.data.nbytes for weight in gguf.weights.values()) - experts_bytes(gguf)
    free_bytes = _UNKNOWN_BYTES if available is None else max(0, available - dense_bytes) // 2
    least = sum(cost.slot_bytes for cost in costs)
    return min(max(free_bytes, least), sum(cost.slot_bytes * cost.n_experts for cost in costs))


def _usage_file(gguf: GgufFile, n_experts: Sequence[int]) -> UsageFile:
    identity = model_fingerprint(gguf, "experts")
    beside = gguf.path.with_name(f"{gguf.path.name}.experts")
    at_home: Path = Settings.from_environment().home / "experts" / f"{identity.hex()}.experts"
    return UsageFile((beside, at_home), identity, n_experts)


@dataclass(frozen=True, slots=True)
class ExpertHistory:
    """What earlier runs learned of a model's experts: uses in all, by how many experts, the most used first.

    `half_by` experts have half of all uses: the fewer, the more a small memory holds of what is needed. `may_pin` tells
    whether there are enough uses to pin by.
    """

    uses: int
    experts: int
    used_experts: int
    half_by: int
    may_pin: bool


def expert_history(gguf: GgufFile, n_layers: int, n_experts: int) -> ExpertHistory | None:
    """What was learned of a model with so many layers of so many experts; None where nothing was."""
    kept = _usage_file(gguf, [n_experts] * n_layers).read()
    if kept is None:
        return None
    counts = np.sort(np.concatenate(kept))[::-1].astype(np.uint64)
    total = int(counts.sum())
    half_by = int(np.searchsorted(counts.cumsum(), (total + 1) // 2)) + 1 if total else 0
    return ExpertHistory(total, len(counts), int(np.count_nonzero(counts)), half_by, total >= LEAST_HISTORY)
