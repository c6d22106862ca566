"""The cost gate against traces worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.speculation.gate import CostGate, GateMemory, Verify
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.errors import ConfigError


def gate(**options: Any) -> CostGate:
    return CostGate(SpeculationOptions(**options))


def verify(drafted: int, accepted: int, cost: float) -> Verify:
    return Verify(accepted + 1, accepted, drafted, cost)


def test_it_judges_from_two_verifies_with_eight_drafts_on() -> None:
    g = gate()
    g.record(verify(7, 0, 3.0))
    assert g.estimated_speedup is None  # one verify
    g.record(verify(1, 0, 3.0))
    assert g.estimated_speedup == pytest.approx(2 / 6)
    assert g.state == "off"
    g = gate()
    g.record(verify(3, 0, 3.0))
    g.record(verify(4, 0, 3.0))
    assert (g.estimated_speedup, g.state) == (None, "on")  # seven drafts


def test_only_the_last_sixteen_verifies_count() -> None:
    g = gate()
    for _ in range(16):
        g.record(verify(8, 7, 2.0))  # 8 tokens for 2 steps
    assert g.estimated_speedup == 4.0
    for n in range(1, 13):
        g.record(verify(8, 0, 2.0))
        # 16 - n verifies of 8 tokens and n of one, 2 steps each
        assert g.estimated_speedup == pytest.approx(((16 - n) * 8 + n) / 32)
        assert g.state == "on"
    g.record(verify(8, 0, 2.0))  # 3 * 8 + 13 = 37 tokens for 32 steps
    g.record(verify(8, 0, 2.0))  # 2 * 8 + 14 = 30
    assert g.state == "off"


def test_on_needs_no_margin_but_a_probe_does() -> None:
    g = gate(reprobe_after=1)
    for _ in range(16):
        g.record(verify(4, 1, 2.0))  # exactly 1.0
    assert g.state == "on"
    g.record(verify(4, 0, 2.0))
    assert g.state == "off"
    assert g.allows()
    assert g.state == "probing"
    for _ in range(4):
        g.record(verify(4, 1, 2.0))  # 1.0 is not 1.1
    assert g.state == "off"


def test_the_back_off_doubles_up_to_its_limit_and_starts_anew_after_a_passed_probe() -> None:
    g = gate(reprobe_after=3, reprobe_max=10, probe_steps=2)
    lose, win = verify(8, 0, 3.0), verify(8, 8, 3.0)

    def steps_until_probe() -> int:
        n = 1
        while not g.allows():
            n += 1
        assert g.state == "probing"
        return n

    for expected in (3, 6, 10, 10):
        g.record(lose)
        g.record(lose)
        assert g.state == "off"
        assert steps_until_probe() == expected
    g.record(win)
    assert g.state == "probing"
    g.record(win)
    assert g.state == "on"
    assert g.estimated_speedup == 3.0  # the probe's verifies stay in the window
    while g.state == "on":
        g.record(lose)
    assert steps_until_probe() == 3


def test_a_probe_fails_as_soon_as_it_is_known_to_lose() -> None:
    g = gate(reprobe_after=1, reprobe_max=4)
    g.record(verify(8, 0, 3.0))
    g.record(verify(8, 0, 3.0))
    assert g.allows()
    g.record(verify(8, 0, 3.0))
    assert g.state == "probing"  # one verify tells nothing
    g.record(verify(8, 0, 3.0))
    assert g.state == "off"  # after two of four
    assert g.estimated_speedup is None  # the window is empty
    assert [g.allows() for _ in range(2)] == [False, True]  # the back-off is 2 now


def test_a_probe_without_enough_drafts_to_judge_fails() -> None:
    g = gate(reprobe_after=1, probe_steps=2)
    g.record(verify(8, 0, 3.0))
    g.record(verify(8, 0, 3.0))
    assert g.allows()
    g.record(verify(2, 2, 1.0))
    g.record(verify(2, 2, 1.0))
    assert g.state == "off"


def test_the_budget_follows_acceptance() -> None:
    g = gate(min_speedup=0.0)
    assert g.budget() == 16
    g.record(verify(16, 4, 1.0))
    assert g.budget() == 2 + 4  # ceil(4 * 16 / 16)
    g.record(verify(16, 1, 1.0))
    assert g.budget() == 2 + 3  # ceil(5 * 16 / 32) = ceil(2.5)
    g.record(verify(16, 16, 1.0))
    assert g.budget() == 2 + 7  # ceil(21 * 16 / 48)
    g = gate(min_speedup=0.0, min_draft=5)
    g.record(verify(16, 0, 1.0))
    assert g.budget() == 5
    g = gate(min_speedup=0.0, adapt_budget=False)
    g.record(verify(16, 0, 1.0))
    assert g.budget() == 16


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_draft", 0),
        ("min_draft", 0),
        ("min_draft", 17),
        ("rate_window", 1),
        ("min_window_drafted", 0),
        ("reprobe_after", 0),
        ("reprobe_after", 2048),
        ("reprobe_max", 0),
        ("probe_steps", 0),
        ("probe_steps", True),
        ("rate_window", 2.5),
        ("min_speedup", -0.1),
        ("min_speedup", float("nan")),
        ("probe_margin", "much"),
        ("adapt_budget", 1),
    ],
)
def test_degenerate_options_are_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=option):
        SpeculationOptions(**{option: value})


# -- what earlier gates saw ------------------------------------------------------------------------------------

LOSE, WIN = verify(4, 0, 2.0), verify(4, 4, 2.0)


def remembering(*seen: Verify, **options: Any) -> CostGate:
    memory = GateMemory()
    for each in seen:
        memory.record(each)
    return CostGate(SpeculationOptions(**options), memory)


def test_a_gate_begins_with_the_faded_mean_of_earlier_verifies() -> None:
    memory = GateMemory()
    assert memory.opening() is None
    memory.record(verify(4, 4, 2.0))
    memory.record(verify(8, 1, 3.0))
    # (0.9 * 5 + 2, 0.9 * 4 + 1, 0.9 * 4 + 8, 0.9 * 2 + 3) / 1.9
    assert memory.opening() == pytest.approx((6.5 / 1.9, 4.6 / 1.9, 11.6 / 1.9, 4.8 / 1.9))
    assert CostGate(SpeculationOptions(), memory).budget() == 2 + 7  # ceil(16 * 4.6 / 11.6)


def test_after_losses_it_begins_small_and_two_verifies_close_it() -> None:
    g = remembering(*[LOSE] * 20)
    assert (g.state, g.budget(), g.estimated_speedup) == ("on", 2, None)
    g.record(verify(2, 0, 1.5))
    assert (g.state, g.estimated_speedup) == ("on", None)  # what others lost decides nothing
    g.record(verify(2, 0, 1.5))  # 1 + 1 + 1 for 2 + 1.5 + 1.5, and eight drafts
    assert g.state == "off"
    cold = gate()
    for _ in range(3):
        cold.record(verify(2, 0, 1.5))
        assert cold.state == "on"


def test_after_losses_a_copy_opens_it_within_a_few_verifies() -> None:
    g = remembering(*[LOSE] * 100)
    budgets = []
    for _ in range(4):
        n = min(g.budget(), 4)
        g.record(verify(n, n, 1 + 0.25 * n))
        budgets.append(g.budget())
        assert g.state == "on"
    assert budgets == [8, 12, 14, 15]  # 2 of 6, 6 of 10, 10 of 14, 14 of 18
    assert g.estimated_speedup == pytest.approx((1 + 3 + 5 + 5 + 5) / (2 + 1.5 + 2 + 2 + 2))


def test_after_gains_the_first_wrong_drafts_do_not_close_it() -> None:
    g, cold = remembering(*[WIN] * 20), gate()
    for each in (g, cold):
        each.record(verify(4, 0, 2.0))
        each.record(verify(4, 1, 2.0))
    assert g.estimated_speedup == pytest.approx((5 + 1 + 2) / 6)
    assert (g.state, cold.state) == ("on", "off")


def test_what_others_saw_leaves_the_window_like_any_verify_and_for_good_when_it_is_emptied() -> None:
    g = remembering(*[WIN] * 20)
    for _ in range(16):
        g.record(verify(4, 3, 2.0))
    assert g.estimated_speedup == pytest.approx(2.0)
    g = remembering(*[LOSE] * 20, reprobe_after=1)
    g.record(LOSE)
    g.record(LOSE)
    assert g.state == "off"
    assert g.allows()
    g.record(WIN)
    g.record(WIN)
    assert (g.state, g.estimated_speedup) == ("probing", 2.5)


_VERIFIES = st.builds(
    lambda drafted, right, cost: verify(drafted, min(right, drafted), cost),
    st.integers(1, 16),
    st.integers(0, 16),
    st.floats(1.0, 20.0),
)


@given(st.lists(_VERIFIES, max_size=60), st.lists(_VERIFIES, min_size=1, max_size=60))
def test_with_a_memory_it_is_the_gate_with_one_more_verify(seen: list[Verify], own: list[Verify]) -> None:
    memory = GateMemory()
    for each in seen:
        memory.record(each)
    opening = memory.opening()
    options = SpeculationOptions(reprobe_after=3, reprobe_max=12)
    g = CostGate(options, memory)
    assert g.state == "on"
    if opening is None:
        assert not seen
    else:  # no better and no worse than the best and the worst that was seen
        for value, values in zip(opening, zip(*seen, strict=True), strict=True):
            assert min(values) - 1e-9 <= value <= max(values) + 1e-9
    window, n_own = [] if opening is None else [opening], 0
    for each in own:
        if not g.allows():
            continue
        if g.state == "probing" and g.estimated_speedup is None and g._n_own == 0:
            window, n_own = [], 0
        before = g.state
        g.record(each)
        window, n_own = [*window, each][-options.rate_window :], n_own + 1
        sums = [sum(values) for values in zip(*window, strict=True)]
        speedup = sums[0] / sums[3] if n_own >= 2 and sums[2] >= options.min_window_drafted else None
        if before == "on":
            assert g.state == ("off" if speedup is not None and speedup < 1.0 - 1e-9 else g.state)
            assert g.state == "on" or (speedup is not None and speedup < 1.0 + 1e-9)
