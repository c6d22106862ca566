"""Prices against hand-computed figures, and a clock that stalls."""

from __future__ import annotations

import random

import pytest

from fucina.decoding.speculation.costs import CostTable, StepCosts
from fucina.decoding.speculation.gate import CostGate, Verify
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.errors import ConfigError

# seconds of passes of 1, 3, 5 and 9 rows
TABLE = CostTable([(1, 0.010), (3, 0.012), (5, 0.020), (9, 0.040)])


@pytest.mark.parametrize(
    ("rows", "cost"), [(1, 1.0), (2, 1.1), (3, 1.2), (4, 1.6), (5, 2.0), (7, 3.0), (9, 4.0), (13, 6.0), (209, 104.0)]
)
def test_it_is_linear_between_the_points_and_past_the_last(rows: int, cost: float) -> None:
    assert TABLE.cost(rows) == pytest.approx(cost)


def test_a_falling_end_makes_no_row_free() -> None:
    assert CostTable([(1, 1.0), (2, 3.0), (4, 2.0)]).cost(100) == 2.0
    assert CostTable([(1, 5.0)]).cost(7) == 1.0


@pytest.mark.parametrize(
    "points",
    [[], [(2, 1.0)], [(1, 1.0), (1, 2.0)], [(1, 1.0), (3, 2.0), (2, 2.0)], [(1, 0.0)], [(1, 1.0), (2, float("nan"))]],
)
def test_what_is_no_table_is_refused(points: list[tuple[int, float]]) -> None:
    with pytest.raises(ConfigError, match="cost table"):
        CostTable(points)


def test_a_verify_is_priced_at_its_margin() -> None:
    assert TABLE.verify_cost(2) == pytest.approx(1.2)
    assert TABLE.verify_cost(8) == pytest.approx(4.0)
    # five rows are there anyway, worth 2 / 5 each; two more add 1
    assert TABLE.verify_cost(2, n_rows=5) == pytest.approx(1 + 1 / (2 / 5))


def test_the_best_length_weighs_expected_tokens_against_their_price() -> None:
    # sure drafts: 2 / 1.1, 3 / 1.2, 4 / 1.6, 5 / 2, 6 / 2.5 ...: two of them give most
    assert TABLE.best_length(0.999, 16) == 2
    assert TABLE.best_length(0.999, 1) == 1
    # half right: 1.5 / 1.1 = 1.36, 1.75 / 1.2 = 1.46, 1.875 / 1.6
    assert TABLE.best_length(0.5, 16) == 2
    # one in ten: 1.1 / 1.1, 1.11 / 1.2
    assert TABLE.best_length(0.05, 16) == 0
    assert TABLE.best_length(0.9, 0) == 0


def test_a_pass_that_several_share_must_promise_more() -> None:
    # a row in a pass of three: (cost(11) - cost(3)) / 8 = 3.8 / 8, in plain steps worth 1.2 / 3 each
    dear = StepCosts(TABLE)
    assert TABLE.row_price(3) == pytest.approx(3.8 / 8 / 0.4)
    assert [dear.best_length(0.99, 16, n_rows=n) for n in (2, 3, 5, 9)] == [0, 0, 0, 0]
    assert not dear.may_pay(16, 3)
    assert dear.may_pay(16, 1)
    # drafts right 19 times of 20: 1.95 / 1.25 - 1, (2.8525 / 1.25 - 1) / 2, (3.709875 / 1.25 - 1) / 3 and less
    for price, pays in ((0.655, True), (0.657, False)):
        assert StepCosts(CostTable([(1, 1.0), (2, 2.0), (18, 2.0 + 16 * price)])).may_pay(3, 2) is pays
    # a row costs 2 * 0.1 / 1.1 = 0.18 of a step: 1.95 / 1.18, 2.85 / 1.36, 3.71 / 1.55, ... 10 drafts give most
    cheap = StepCosts(CostTable([(1, 1.0), (101, 11.0)]))
    assert cheap.may_pay(16, 2)
    gains = [sum(0.9453125**i for i in range(k + 1)) / (1 + 0.1875 * k) for k in range(17)]  # in 64ths and 128ths
    assert cheap.best_length(0.95, 16, n_rows=2) == gains.index(max(gains))
    # 1.3 tokens for 1.18 steps would do for one alone, but not here
    assert cheap.best_length(0.3, 1, n_rows=1) == 1
    assert cheap.best_length(0.3, 1, n_rows=2) == 0


def test_a_sequence_alone_goes_by_the_table_whatever_crowds_took() -> None:
    costs, alone = StepCosts(TABLE), StepCosts(TABLE)
    for _ in range(20):
        costs.record_plain(0.5, n_rows=4)
        costs.record_verify(3, 9.0, n_rows=4)
    for p in (0.1, 0.5, 0.9):
        assert costs.best_length(p, 16) == alone.best_length(p, 16) == TABLE.best_length(p, 16)
    assert (costs.scale, costs.plain_s, costs.verify_cost(4)) == (1.0, 0.0, alone.verify_cost(4))
    assert costs.verify_cost(1, n_rows=4) == 5.0
    assert costs.verify_cost(1, n_rows=3) == alone.verify_cost(1, n_rows=3)  # each size of a crowd has its own


def test_the_scale_follows_the_clock_slowly_and_within_limits() -> None:
    costs = StepCosts(TABLE)
    costs.record_verify(2, 9.0)  # nothing to compare with yet
    assert costs.scale == 1.0
    costs.record_plain(0.010)
    assert costs.plain_s == 0.010
    for _ in range(3):
        costs.record_verify(2, 0.024)  # twice what the table says
        assert costs.scale == 1.0  # a few timings are needed
    costs.record_verify(2, 0.024)
    assert costs.scale == pytest.approx(0.2 * 2 + 0.8 * 1)
    costs.record_verify(2, 0.024)
    assert costs.scale == pytest.approx(0.2 * 2 + 0.8 * 1.2)
    assert costs.verify_cost(2) == pytest.approx(costs.scale * 1.2)
    for _ in range(100):
        costs.record_verify(2, 1e9)
    assert costs.scale == pytest.approx(4.0)
    for _ in range(100):
        costs.record_verify(8, 0.0)
    assert costs.scale == pytest.approx(0.25)  # the pass counts as a plain step, a quarter of what nine rows take
    assert costs.verify_cost(2) == 1.0  # never less than the step it replaces


def test_the_plain_step_is_a_running_mean_of_the_least_of_eight() -> None:
    costs = StepCosts(TABLE)
    costs.record_plain(0.012)
    costs.record_plain(0.010)
    assert costs.plain_s == pytest.approx(0.012 - 0.25 * 0.002)
    for _ in range(6):
        costs.record_plain(5.0)
    assert costs.plain_s == pytest.approx(0.010 + 0.0015 * 0.75**6)
    for _ in range(2):  # the 0.012 drops out, then the 0.010
        costs.record_plain(5.0)
    assert costs.plain_s > 1.0


@pytest.mark.parametrize("seed", range(20))
def test_a_clock_with_stalls_does_not_close_a_winning_gate(seed: int) -> None:
    """One pass in ten takes 50 ms more than its 10 to 20; drafts win by half."""
    rng = random.Random(seed)
    costs, gate = StepCosts(TABLE), CostGate(SpeculationOptions())

    def seconds(true: float) -> float:
        return true * rng.uniform(0.95, 1.05) + (0.050 if rng.random() < 0.1 else 0.0)

    for step in range(2000):
        if step % 8 == 0:
            costs.record_plain(seconds(0.010))
            continue
        assert gate.allows()
        costs.record_verify(4, seconds(0.020))
        n_accepted = rng.choice([1, 2, 2, 2, 3])  # 3 tokens for 2 steps
        gate.record(Verify(n_accepted + 1, n_accepted, 4, costs.verify_cost(4)))
        assert gate.state == "on"
