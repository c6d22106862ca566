"""How many prompt rows keep the pace of running streams, on timings made by hand."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.speculation.costs import CostTable
from fucina.engine.pacing import MOST_SLOWED, Pacing

TABLE = CostTable([(1, 1.0), (5, 1.2), (21, 2.2)])


def known(table: CostTable | None = TABLE, n_rows: int = 1, seconds: float = 0.01) -> Pacing:
    pacing = Pacing(table)
    pacing.record(n_rows, 0, seconds)
    return pacing


def test_without_any_timing_the_streams_are_timed_first() -> None:
    pacing = Pacing(TABLE)
    assert pacing.prompt_rows(1) == 0
    assert pacing.prompt_rows(1) > 0  # whether or not there was a timing
    pacing = Pacing(TABLE)
    pacing.record(1, 0, 0.01)
    assert pacing.prompt_rows(1) > 0


@given(st.integers(1, 40))
def test_the_budget_is_the_most_that_the_bound_allows(n_rows: int) -> None:
    rows = known().prompt_rows(n_rows)
    most = MOST_SLOWED * TABLE.cost(n_rows)
    assert TABLE.cost(n_rows + rows) <= most + 1e-9
    assert TABLE.cost(n_rows + rows + 1) > most - 1e-9


def test_without_a_table_a_few_rows_are_tried() -> None:
    assert known(None).prompt_rows(1) == int(16 * (MOST_SLOWED - 1.0))


def test_a_row_is_let_in_however_dear() -> None:
    assert known(CostTable([(1, 1.0), (2, 9.0)])).prompt_rows(1) == 1


def run(pacing: Pacing, plain_s: float, row_s: float, n_rows: int, noise: float = 0.0, passes: int = 200) -> list[int]:
    """Give the budgets of so many passes, where a prompt row takes `row_s`, and the clock is sometimes disturbed."""
    rng = random.Random(5)
    budgets = []
    for _ in range(passes):
        rows = pacing.prompt_rows(n_rows)
        seconds = plain_s + rows * row_s
        pacing.record(n_rows, rows, seconds * (1.0 + noise * (rng.random() < 0.2)))
        budgets.append(rows)
    return budgets


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("row_s", [0.0001, 0.0006, 0.002, 0.01])
def test_what_passes_really_take_corrects_the_table(row_s: float, noise: float) -> None:
    budgets = [rows for rows in run(known(), 0.01, row_s, 1, noise)[10:] if rows]
    exact = 0.01 * (MOST_SLOWED - 1.0) / row_s
    middle = sorted(budgets)[len(budgets) // 2]
    assert 0.7 * exact - 1 <= middle <= 1.15 * exact + 1
    # even with disturbances the bound is hardly ever passed by much
    assert sum(rows > 1.5 * exact + 1 for rows in budgets) <= len(budgets) // 50


def test_rows_that_are_dearer_than_told_are_found_out_at_once() -> None:
    budgets = run(known(), 0.01, 0.005, 1, passes=10)
    assert budgets[3] <= 2


def test_deeper_contexts_get_fewer_rows_and_slower_streams_more() -> None:
    pacing = known()
    shallow = max(run(pacing, 0.01, 0.0006, 1)[-2:])
    deep = max(run(pacing, 0.01, 0.0012, 1)[-2:])
    assert deep < 0.7 * shallow
    slower = max(run(pacing, 0.02, 0.0012, 1, passes=400)[-2:])  # seen when a pass goes without prompts
    assert slower > 1.4 * deep


def test_prompts_of_different_depths_each_get_what_their_depth_allows() -> None:
    pacing = known()
    depths, row_s = (100, 6000), (0.0006, 0.0024)
    budgets: dict[int, list[int]] = {0: [], 1: []}
    for turn in range(200):
        rows = pacing.prompt_rows(1, depths[turn % 2])
        pacing.record(1, rows, 0.01 + rows * row_s[turn % 2], depths[turn % 2])
        budgets[turn % 2].append(rows)
    assert max(budgets[1][5:]) * row_s[1] <= 0.01 * (MOST_SLOWED - 1.0) + 1e-9
    assert max(budgets[0]) > 2 * max(budgets[1][5:])


def test_a_depth_never_seen_is_taken_to_be_dearer_than_a_shallow_one() -> None:
    pacing = known()
    shallow = max(run(pacing, 0.01, 0.0006, 1)[-2:])
    assert pacing.prompt_rows(1, 8192) < 0.5 * shallow


def test_a_number_of_rows_that_is_too_dear_is_hardly_ever_tried() -> None:
    pacing = known()
    budgets = []
    for _ in range(2000):
        rows = pacing.prompt_rows(1)
        pacing.record(1, rows, 0.01 + rows * 0.004 + 0.02 * (rows > 1))
        budgets.append(rows)
    assert sum(rows > 1 for rows in budgets[50:]) <= 40


def test_a_disturbance_bans_no_number_of_rows() -> None:
    pacing = known()
    run(pacing, 0.01, 0.0006, 1, noise=1.0, passes=300)
    assert max(run(pacing, 0.01, 0.0006, 1)[-20:]) >= 20


def test_time_that_is_spent_already_is_not_given_to_prompts() -> None:
    pacing = known(seconds=0.01)
    run(pacing, 0.01, 0.0006, 1)
    pacing.record(1, 0, 0.01)
    whole = pacing.prompt_rows(1)
    assert pacing.spare_s(1) == pytest.approx(0.01 * (MOST_SLOWED - 1.0))
    pacing.spend(pacing.spare_s(1) / 2)
    assert 0 < pacing.prompt_rows(1) <= whole // 2 + 1
    pacing.spend(1.0)
    assert pacing.prompt_rows(1) == 1
    assert pacing.prompt_rows(1) > 1


def test_one_pass_in_many_goes_without_prompts() -> None:
    budgets = run(known(), 0.01, 0.0006, 1, passes=400)
    assert budgets.count(0) <= 400 // 16
    assert budgets.count(0) >= 20
    assert all(a or b for a, b in pairwise(budgets))


def test_the_last_rows_of_a_prompt_say_little() -> None:
    pacing = known()
    before = pacing.prompt_rows(1)
    for _ in range(20):
        pacing.record(1, 2, 0.5)
    assert pacing.prompt_rows(1) == before


def test_another_table_begins_anew() -> None:
    pacing = known()
    run(pacing, 0.01, 0.005, 1)
    pacing.learn(TABLE)
    pacing.record(1, 0, 0.01)
    assert pacing.prompt_rows(1) == known().prompt_rows(1)


def test_passes_of_prompts_alone_say_nothing() -> None:
    pacing = Pacing(TABLE)
    pacing.record(0, 500, 1.0)
    assert pacing.prompt_rows(1) == 0
