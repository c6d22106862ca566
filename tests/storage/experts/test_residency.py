"""What is pinned and how memory is shared out among layers: within the budget, with a slot for whatever comes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.errors import ConfigError
from fucina.storage.experts.residency import LEAST_HISTORY, SPARE, LayerCost, plan_residency

LAYERS = [LayerCost(8, 100), LayerCost(8, 150), LayerCost(4, 100)]
ALL_BYTES = 8 * 100 + 8 * 150 + 4 * 100


def uses(*counts: list[int]) -> list[np.ndarray]:
    return [np.array(each, np.uint64) for each in counts]


def skewed(total: int) -> list[np.ndarray]:
    """Experts 0 and 1 of the first layer have nearly all uses, the others have some."""
    return uses([total // 2, total // 2, *[1] * 6], [1] * 8, [1] * 4)


@given(
    costs=st.lists(st.builds(LayerCost, st.integers(1, 40), st.integers(1, 500)), min_size=1, max_size=6),
    more=st.integers(0, 50_000),
    pins=st.integers(0, 50_000),
    seed=st.integers(0, 99),
)
def test_plans_fit_and_leave_room(costs: list[LayerCost], more: int, pins: int, seed: int) -> None:
    budget = sum(cost.slot_bytes for cost in costs) + more
    drawn = np.random.default_rng(seed).zipf(1.3, (len(costs), 40)).clip(0, 10**6)
    history = [row[: cost.n_experts].astype(np.uint64) for row, cost in zip(drawn, costs, strict=True)]
    plan = plan_residency(costs, budget, pins, history)
    spare_bytes = plan.spare * max(cost.slot_bytes for cost in costs)
    assert (
        sum(each.slots * cost.slot_bytes for each, cost in zip(plan.layers, costs, strict=True)) + spare_bytes <= budget
    )
    assert sum(len(each.pinned) * cost.slot_bytes for each, cost in zip(plan.layers, costs, strict=True)) <= pins
    for each, cost in zip(plan.layers, costs, strict=True):
        assert len(set(each.pinned)) == len(each.pinned)
        assert 1 <= each.slots <= cost.n_experts
        assert len(each.pinned) < each.slots or each.slots == cost.n_experts


def test_less_than_an_expert_a_layer_is_refused() -> None:
    assert [each.slots for each in plan_residency(LAYERS, 350, 0, None).layers] == [1, 1, 1]
    with pytest.raises(ConfigError, match="350 B, an expert a layer"):
        plan_residency(LAYERS, 349, 0, None)


def test_memory_for_all_holds_all() -> None:
    assert [each.slots for each in plan_residency(LAYERS, ALL_BYTES, 0, None).layers] == [8, 8, 4]
    assert [each.slots for each in plan_residency(LAYERS, ALL_BYTES - 1, 0, None).layers] != [8, 8, 4]


def test_the_most_used_are_pinned() -> None:
    plan = plan_residency(LAYERS, 800, 250, skewed(LEAST_HISTORY))
    assert [each.pinned for each in plan.layers] == [(0, 1), (), ()]


def test_little_history_pins_nothing() -> None:
    few = uses([2400, 2400, 0, 0, 0, 0, 0, 0], [0] * 8, [199, 0, 0, 0])
    assert sum(int(each.sum()) for each in few) == LEAST_HISTORY - 1
    assert not any(each.pinned for each in plan_residency(LAYERS, 800, 250, few).layers)
    few[2][0] += 1
    assert any(each.pinned for each in plan_residency(LAYERS, 800, 250, few).layers)


def test_even_use_pins_nothing() -> None:
    even = uses([1000] * 8, [1000] * 8, [1000] * 4)
    assert not any(each.pinned for each in plan_residency(LAYERS, 1500, 800, even).layers)


def test_all_that_was_used_is_pinned_however_even() -> None:
    even = uses([3000, 3000, *[0] * 6], [0] * 8, [0] * 4)
    assert [each.pinned for each in plan_residency(LAYERS, 1500, 800, even).layers] == [(0, 1), (), ()]


def test_history_is_weighed_like_a_runs_own_counts() -> None:
    plan = plan_residency(LAYERS, 800, 0, uses([8000, 4000, 0, 0, 0, 0, 0, 0], [0] * 8, [3, 1, 0, 0]))
    assert [each.heat for each in plan.layers] == [(85, 42, 0, 0, 0, 0, 0, 0), (0,) * 8, (3, 1, 0, 0)]
    assert all(each.heat == () for each in plan_residency(LAYERS, 800, 0, None).layers)


def test_spare_slots_only_where_experts_pass_through() -> None:
    assert plan_residency(LAYERS, ALL_BYTES, 0, None).spare == 0
    assert plan_residency(LAYERS, 350 + 2 * 150, 0, None).spare == 2
    many = [LayerCost(128, 100)] * 4
    assert plan_residency(many, 100 * 200, 0, None).spare == SPARE
    assert [each.slots for each in plan_residency(many, 100 * 200, 0, None).layers] == [(200 - SPARE) // 4] * 4
