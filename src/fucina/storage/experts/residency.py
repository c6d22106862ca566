"""Which experts are pinned, and how many of each layer memory holds besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fucina.core.units import format_bytes
from fucina.errors import ConfigError

#: Uses of experts without which nothing is pinned: fewer say little about those to come.
LEAST_HISTORY = 5000
#: Nothing is pinned either unless the pinned experts were used this many times as often as any others would be.
LEAST_ADVANTAGE = 1.25
#: Slots for what passes through: as many as are read at once for a layer and, ahead of time, for the next.
SPARE = 16
#: Uses for each expert of a layer that history may count for: a run's own counts are halved at twice as many.
_HEAT = 16


@dataclass(frozen=True, slots=True)
class LayerCost:
    """A layer's experts, and the bytes that one of them takes in memory."""

    n_experts: int
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """Experts of a layer that memory holds, `slots` in all; `pinned` are never given up for others.

    `heat` is how much each expert was used before, empty where that is unknown: the hottest are there from the start,
    and give way to others as they cool.
    """

    slots: int
    pinned: tuple[int, ...]
    heat: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Residency:
    """What memory holds of all layers. `spare` slots more, of the largest layer's size, are anybody's: experts that are
    used too seldom to take another's place pass through them.
    """

    layers: tuple[LayerPlan, ...]
    spare: int


def plan_residency(
    layers: Sequence[LayerCost], cache_bytes: int, pin_bytes: int, uses: Sequence[NDArray[np.uint64]] | None
) -> Residency:
    """Share out `cache_bytes` among layers; up to `pin_bytes` of them go to the experts that were `uses`d most.

    Every layer has at least one slot for whatever comes, unless it has all its experts. Raises ConfigError when
    `cache_bytes` do not suffice for that.
    """
    least = sum(layer.slot_bytes for layer in layers)
    if cache_bytes < least:
        raise ConfigError(
            "moe_cache", got=format_bytes(cache_bytes), expected=f"at least {format_bytes(least)}, an expert a layer"
        )
    pinned = [[] for _ in layers] if uses is None else _pins(layers, min(pin_bytes, cache_bytes - least), uses)
    slots = [min(len(pins) + 1, layer.n_experts) for layer, pins in zip(layers, pinned, strict=True)]
    left = cache_bytes - sum(n * layer.slot_bytes for n, layer in zip(slots, layers, strict=True))
    spare = _spare(layers, slots, left)
    _fill(layers, slots, left - spare * max(layer.slot_bytes for layer in layers))
    heat: list[tuple[int, ...]] = [()] * len(layers) if uses is None else [_heat(counts) for counts in uses]
    plans = tuple(LayerPlan(n, tuple(pins), warm) for n, pins, warm in zip(slots, pinned, heat, strict=True))
    return Residency(plans, spare)


def _spare(layers: Sequence[LayerCost], slots: Sequence[int], left: int) -> int:
    """Slots for no layer, of what is left after the least; none where all experts fit."""
    wanted = sum((layer.n_experts - n) * layer.slot_bytes for n, layer in zip(slots, layers, strict=True))
    return 0 if wanted <= left else min(SPARE, left // max(layer.slot_bytes for layer in layers))


def _heat(counts: NDArray[np.uint64]) -> tuple[int, ...]:
    """Uses of a layer's experts on the scale of what a run knows of its last passes."""
    total = max(int(counts.sum()), 1)
    most = _HEAT * len(counts)
    return tuple(int(n) * most // max(total, most) for n in counts)


def _fill(layers: Sequence[LayerCost], slots: list[int], left: int) -> None:
    """Give every layer one more slot after the other, while there is memory."""
    growing = [i for i, layer in enumerate(layers) if slots[i] < layer.n_experts]
    while growing:
        rounds = min(layers[i].n_experts - slots[i] for i in growing)
        rounds = min(rounds, left // sum(layers[i].slot_bytes for i in growing))
        if rounds == 0:
            break
        for i in growing:
            slots[i] += rounds
            left -= rounds * layers[i].slot_bytes
        growing = [i for i in growing if slots[i] < layers[i].n_experts]
    for i in growing:
        if layers[i].slot_bytes <= left:
            slots[i] += 1
            left -= layers[i].slot_bytes


def _pins(layers: Sequence[LayerCost], pin_bytes: int, uses: Sequence[NDArray[np.uint64]]) -> list[list[int]]:
    """The experts used most, as many as fit, if it is worth it."""
    none: list[list[int]] = [[] for _ in layers]
    total = sum(int(counts.sum()) for counts in uses)
    if total < LEAST_HISTORY:
        return none
    ranked = sorted(
        ((int(n), layer, expert) for layer, counts in enumerate(uses) for expert, n in enumerate(counts) if n),
        key=lambda used: (-used[0], used[1:]),
    )
    pinned: list[list[int]] = [[] for _ in layers]
    left, covered, n_pinned = pin_bytes, 0, 0
    for n, layer, expert in ranked:
        if layers[layer].slot_bytes > left:
            break
        left -= layers[layer].slot_bytes
        covered += n
        n_pinned += 1
        pinned[layer].append(expert)
    flat = total * n_pinned / sum(layer.n_experts for layer in layers)
    return pinned if n_pinned == len(ranked) or covered >= LEAST_ADVANTAGE * flat else none
