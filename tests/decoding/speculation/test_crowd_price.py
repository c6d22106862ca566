"""The price of a row where several sequences share a pass, against figures worked out by hand."""

import random

import pytest

from fucina.decoding.speculation.costs import CostTable, StepCosts
from fucina.decoding.speculation.crowd import Crowd


def test_it_begins_as_the_tables_and_then_is_what_passes_took() -> None:
    crowd = Crowd(8, 0.5)
    for _ in range(3):
        crowd.record_plain(0.010)
    crowd.record_verify(2, 0.020)  # too little to compare with yet
    crowd.record_plain(0.010)
    for _ in range(3):
        crowd.record_verify(2, 0.012)
        assert crowd.row_price == 0.5  # a few are needed
    crowd.record_verify(4, 0.014)
    # two rows more take a fifth of the pass more, four two fifths: a tenth each, where a plain step is an eighth
    assert crowd.row_price == pytest.approx(0.8)
    for _ in range(16):
        crowd.record_verify(1, 0.0105)
    assert crowd.row_price == pytest.approx(0.4)


def test_it_lies_between_nothing_and_four_steps() -> None:
    crowd = Crowd(2, 0.5)
    for _ in range(4):
        crowd.record_plain(0.010)
    for _ in range(16):
        crowd.record_verify(1, 1e9)
    assert crowd.row_price == 4.0
    for _ in range(16):
        crowd.record_verify(1, 0.001)
    assert crowd.row_price == 0.0


def test_what_was_too_dear_is_tried_again_and_given_up_at_once() -> None:
    costs = StepCosts(CostTable([(1, 1.0), (101, 2.0)]))  # by the table rows cost next to nothing

    def run_pass() -> bool:
        """A pass of four sequences, with a sure draft if that may pay: whether it did."""
        drafts = costs.best_length(0.9, 1, n_rows=4)
        if drafts:
            costs.record_verify(1, 0.013, n_rows=4)  # three tenths of a pass for a quarter of its tokens
        else:
            costs.record_plain(0.010, n_rows=4)
        return drafts > 0

    for _ in range(4):
        costs.record_plain(0.010, n_rows=4)
    drafted = [run_pass() for _ in range(2000)]
    assert drafted[:4] == [True] * 4
    assert sum(drafted[4:]) <= 2000 // 30
    assert any(drafted[1000:])


@pytest.mark.parametrize("seed", range(20))
def test_stalls_do_not_make_a_crowd_dear(seed: int) -> None:
    """One pass in ten takes 50 ms more than its 10 to 14."""
    rng = random.Random(seed)
    crowd = Crowd(4, 0.6)

    def seconds(true: float) -> float:
        return true * rng.uniform(0.99, 1.01) + (0.050 if rng.random() < 0.1 else 0.0)

    for step in range(2000):
        if step % 4 == 0:
            crowd.record_plain(seconds(0.010))
        else:
            crowd.record_verify(4, seconds(0.014))  # 0.4 a row
        assert 0.3 < crowd.row_price <= 0.6
