"""Experts that the compiled backend reads from files while it computes."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fucina.errors import CapacityError, ExpertReadError
from fucina.ops.seam import BoundOp, MixtureSpec, Planner, Projection, RmsNorm, Slab
from fucina.storage.experts.catalog import Catalog, ExpertPlaces, close_files, open_files
from fucina.storage.experts.options import StreamOptions
from fucina.storage.experts.residency import LayerCost, LayerPlan
from fucina.storage.experts.stats import ExpertStats

#: Binds a pilot of a backend to a source of experts, which comes last.
BindPilot = Callable[[str, Slab, RmsNorm, Projection, MixtureSpec, Any], BoundOp]
#: How many experts pilots had foreseen, of how many that were needed.
Foresight = Callable[[], tuple[int, int]]


class NativeExperts:
    """A store of experts: bounded memory, threads that read, counters."""

    def __init__(
        self,
        module: ModuleType,
        tier: str,
        bind_pilot: BindPilot,
        foresight: Foresight,
        *,
        tiles: bool,
        catalog: Catalog,
        plan: Planner,
        options: StreamOptions,
    ) -> None:
        """Take the memory; nothing is read yet. Raises ModelFileError, CapacityError, and what `plan` raises."""
        self._bind_pilot, self._foresight = bind_pilot, foresight
        residency = plan(_costs(module, tier, tiles=tiles, catalog=catalog))
        self._catalog, self._plan, self._spare = catalog, residency.layers, residency.spare
        opened = open_files(catalog.files, direct=bool(options.direct))
        files = [(*each, str(path)) for each, path in zip(opened, catalog.files, strict=True)]
        layers = [_stored(module, places, each) for places, each in zip(catalog.layers, self._plan, strict=True)]
        try:
            self.source: Any = module.ExpertStore(tier, tiles, files, layers, self._spare, options.io_threads)
        except (MemoryError, RuntimeError) as error:
            close_files(descriptor for descriptor, _ in opened)
            raise CapacityError(f"no memory or threads to hold experts with ({error}): ask for less") from error

    def stats(self) -> ExpertStats:
        """What was done so far."""
        counted = self.source.counters()
        foreseen, foreseeable = self._foresight()
        seconds = {f"{name}_s": counted.pop(f"{name}_ns") / 1e9 for name in ("read", "pack", "busy", "wait")}
        return ExpertStats(
            experts=sum(len(gate.offsets) for gate, _, _ in self._catalog.layers),
            slots=sum(each.slots for each in self._plan) + self._spare,
            pinned=sum(len(each.pinned) for each in self._plan),
            memory_bytes=self.source.memory_bytes,
            foreseen=foreseen,
            foreseeable=foreseeable,
            **counted,
            **seconds,
        )

    def uses(self) -> list[NDArray[np.uint64]]:
        """How many passes needed each expert, layer by layer."""
        return [np.array(self.source.uses(layer), np.uint64) for layer in range(len(self._plan))]

    def fill(self) -> None:
        """Begin to read the experts that memory holds from the start."""
        self.source.fill()

    def settle(self) -> None:
        """Wait until nothing is being read."""
        self.source.settle()

    def pilot(self, name: str, x: Slab, norm: RmsNorm, router: Projection, spec: MixtureSpec) -> BoundOp:
        """Bind what begins to read the experts that a later layer is likely to need."""
        return self._bind_pilot(name, x, norm, router, spec, self.source)

    def failure(self, message: str) -> ExpertReadError:
        """The error of a read that failed, from what the store said of it."""
        for path in self._catalog.files:
            if message.startswith(f"{path}: "):
                return ExpertReadError(path, message.removeprefix(f"{path}: "))
        return ExpertReadError(self._catalog.files[0], message)


def _costs(module: ModuleType, tier: str, *, tiles: bool, catalog: Catalog) -> tuple[LayerCost, ...]:
    """What an expert of each layer takes in memory, in the form that the tier computes from."""
    costs = []
    for places in catalog.layers:
        slot_bytes = module.expert_slot_bytes(tier, tiles, _stored(module, places, LayerPlan(1, ())))
        costs.append(LayerCost(len(places[0].offsets), slot_bytes))
    return tuple(costs)


def _stored(module: ModuleType, places: tuple[ExpertPlaces, ExpertPlaces, ExpertPlaces], plan: LayerPlan) -> Any:
    matrices = [
        (m.weight.format.type_id, m.weight.d_in, m.weight.shape[1], [m.file] * len(m.offsets), m.offsets)
        for m in places
    ]
    return module.StoredLayer(matrices, plan.slots, plan.pinned, plan.heat)
