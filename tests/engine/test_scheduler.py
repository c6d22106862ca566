from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.engine.plan import PlannedSpan
from fucina.engine.scheduler import MAX_DRAFTS, Scheduler


@dataclass
class Seen:
    """What the scheduler sees of a session."""

    id: int
    n_missing: int
    served_at: int = 0
    wants_drafts: bool = False


def test_one_prompt_is_cut_into_chunks() -> None:
    scheduler = Scheduler(max_rows=64, prefill_chunk=10)
    assert scheduler.plan([Seen(1, 25)]).spans == (PlannedSpan(1, 10),)
    assert scheduler.plan([Seen(1, 5)]).spans == (PlannedSpan(1, 5),)
    assert scheduler.plan([Seen(1, 1)]).spans == (PlannedSpan(1, 1),)


def test_decoding_first_then_prompts_in_order_then_drafts() -> None:
    scheduler = Scheduler(max_rows=20, prefill_chunk=12)
    sessions = [Seen(1, 8), Seen(2, 1), Seen(3, 9), Seen(4, 1, wants_drafts=True)]
    assert scheduler.plan(sessions).spans == (
        PlannedSpan(2, 1),
        PlannedSpan(4, 1, 6),
        PlannedSpan(1, 8),
        PlannedSpan(3, 4),
    )


def test_drafts_are_shared_and_capped() -> None:
    scheduler = Scheduler(max_rows=13, prefill_chunk=8)
    spans = scheduler.plan([Seen(i, 1, wants_drafts=i != 2) for i in range(1, 5)]).spans
    assert [span.n_drafts for span in spans] == [3, 0, 3, 3]
    assert (
        Scheduler(max_rows=512, prefill_chunk=8).plan([Seen(1, 1, wants_drafts=True)]).spans[0].n_drafts == MAX_DRAFTS
    )


@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 20),
    st.integers(1, 30),
)
def test_plans_fit_and_make_progress(sizes: list[tuple[int, bool]], max_rows: int, chunk: int) -> None:
    sessions = [Seen(i, n, wants_drafts=drafts) for i, (n, drafts) in enumerate(sizes)]
    plan = Scheduler(max_rows=max_rows, prefill_chunk=chunk).plan(sessions)
    assert 1 <= plan.n_rows <= max_rows
    assert len({span.session_id for span in plan.spans}) == len(plan.spans)
    by_id = {session.id: session for session in sessions}
    for span in plan.spans:
        session = by_id[span.session_id]
        assert 1 <= span.n_tokens <= session.n_missing
        assert 0 <= span.n_drafts <= (MAX_DRAFTS if session.wants_drafts and session.n_missing == 1 else 0)
    prefill = [span for span in plan.spans if by_id[span.session_id].n_missing > 1]
    assert sum(span.n_tokens for span in prefill) <= chunk
    assert [span.session_id for span in prefill] == sorted(span.session_id for span in prefill)


@pytest.mark.parametrize("max_rows", [1, 2, 3, 5])
def test_nobody_starves(max_rows: int) -> None:
    scheduler = Scheduler(max_rows=max_rows, prefill_chunk=4)
    sessions = [Seen(i, 1) for i in range(7)] + [Seen(7, 30)]
    last_served = dict.fromkeys(range(8), 0)
    for step in range(1, 60):
        for span in scheduler.plan(sessions).spans:
            sessions[span.session_id].served_at = last_served[span.session_id] = step
        # with one row, decoding and the prompt take turns, so a round of seven takes fourteen steps
        assert min(step - served for served in last_served.values()) == 0
        assert max(step - served for served in last_served.values()) <= 16
