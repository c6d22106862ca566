from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.speculation.costs import CostTable
from fucina.engine.pacing import Pacing
from fucina.engine.plan import PlannedSpan
from fucina.engine.scheduler import Scheduler


@dataclass
class Seen:
    """What the scheduler sees of a session."""

    id: int
    n_missing: int
    n_held: int = 0
    served_at: int = 0
    drafts: int = 0
    priority: int = 0
    asked_with: list[int] = field(default_factory=list)

    def draft_budget(self, n_rows: int) -> int:
        self.asked_with.append(n_rows)
        return self.drafts


def test_one_prompt_is_cut_into_chunks() -> None:
    scheduler = Scheduler(max_rows=64, prefill_chunk=10, pacing=Pacing())
    assert scheduler.plan([Seen(1, 25)]).spans == (PlannedSpan(1, 10),)
    assert scheduler.plan([Seen(1, 5)]).spans == (PlannedSpan(1, 5),)
    assert scheduler.plan([Seen(1, 1)]).spans == (PlannedSpan(1, 1),)


def paced(rows: int) -> Pacing:
    """Pacing that lets in so many prompt rows beside decoding ones."""
    pacing = Pacing(CostTable([(1, 1.0), (1 + rows, 2.0), (3 + rows, 100.0)]))
    pacing.record(1, 0, 1.0)
    return pacing


def test_decoding_first_then_prompts_in_turn_then_drafts() -> None:
    scheduler = Scheduler(max_rows=20, prefill_chunk=12, pacing=Pacing(CostTable([(1, 1.0), (100, 1.1)])))
    sessions = [Seen(1, 8), Seen(2, 1), Seen(3, 9), Seen(4, 1, drafts=16)]
    assert [span.session_id for span in scheduler.plan(sessions).spans] == [2, 4]  # to see what they take alone
    scheduler = Scheduler(max_rows=20, prefill_chunk=12, pacing=paced(50))
    sessions = [Seen(1, 8), Seen(2, 1), Seen(3, 9), Seen(4, 1, drafts=16)]
    assert scheduler.plan(sessions).spans == (
        PlannedSpan(2, 1),
        PlannedSpan(4, 1, 6),
        PlannedSpan(1, 8),
        PlannedSpan(3, 4),
    )
    assert [session.asked_with for session in sessions] == [[], [14], [], [14]]  # rows besides drafts, once a step


def test_prompts_keep_the_pace_of_those_that_write() -> None:
    scheduler = Scheduler(max_rows=512, prefill_chunk=512, pacing=paced(10))
    assert scheduler.plan([Seen(1, 1), Seen(2, 400)]).spans == (PlannedSpan(1, 1), PlannedSpan(2, 10))
    assert scheduler.plan([Seen(1, 300), Seen(2, 400)]).spans == (PlannedSpan(1, 300), PlannedSpan(2, 212))


def test_a_short_prompt_behind_a_long_one_starts_soon() -> None:
    scheduler = Scheduler(max_rows=512, prefill_chunk=512, pacing=paced(10))
    writing, long, short = Seen(1, 1), Seen(2, 4000, served_at=1), Seen(3, 25, served_at=1)
    for step in range(2, 20):
        for span in scheduler.plan([writing, long, short]).spans[1:]:
            session = long if span.session_id == long.id else short
            session.n_missing, session.served_at = session.n_missing - span.n_tokens, step
        if short.n_missing <= 1:
            break
    assert step <= 7
    assert long.n_missing < 4000


def test_higher_priorities_come_first() -> None:
    scheduler = Scheduler(max_rows=3, prefill_chunk=8, pacing=paced(50))
    crowd = [Seen(i, 1, priority=i % 2, served_at=i) for i in range(1, 6)]
    assert [span.session_id for span in scheduler.plan(crowd).spans] == [1, 3, 5]
    low, high = Seen(6, 30), Seen(7, 30, priority=1)
    assert [span.session_id for span in scheduler.plan([*crowd, low]).spans] == [1, 3, 5]
    assert [span.session_id for span in scheduler.plan([*crowd, low, high]).spans] == [1, 3, 7]
    assert scheduler.plan([low, high]).spans == (PlannedSpan(7, 3),)


def test_drafts_are_shared_and_capped() -> None:
    scheduler = Scheduler(max_rows=13, prefill_chunk=8, pacing=Pacing())
    spans = scheduler.plan([Seen(i, 1, drafts=16 * (i != 2)) for i in range(1, 5)]).spans
    assert [span.n_drafts for span in spans] == [3, 0, 3, 3]
    spans = scheduler.plan([Seen(1, 1, drafts=1), Seen(2, 1, drafts=16), Seen(3, 1, drafts=2)]).spans
    assert [span.n_drafts for span in spans] == [1, 4, 2]
    alone = Seen(1, 1, drafts=7)
    assert Scheduler(max_rows=512, prefill_chunk=8, pacing=Pacing()).plan([alone]).spans == (PlannedSpan(1, 1, 7),)
    assert Scheduler(max_rows=5, prefill_chunk=8, pacing=Pacing()).plan([alone]).spans == (PlannedSpan(1, 1, 4),)
    assert alone.asked_with == [1, 1]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 16)), min_size=1, max_size=12),
    st.integers(1, 20),
    st.integers(1, 30),
)
def test_plans_fit_and_make_progress(sizes: list[tuple[int, int]], max_rows: int, chunk: int) -> None:
    sessions = [Seen(i, n, drafts=drafts) for i, (n, drafts) in enumerate(sizes)]
    plan = Scheduler(max_rows=max_rows, prefill_chunk=chunk, pacing=paced(50)).plan(sessions)
    assert 1 <= plan.n_rows <= max_rows
    assert len({span.session_id for span in plan.spans}) == len(plan.spans)
    by_id = {session.id: session for session in sessions}
    for span in plan.spans:
        session = by_id[span.session_id]
        assert 1 <= span.n_tokens <= session.n_missing
        assert 0 <= span.n_drafts <= (session.drafts if session.n_missing == 1 else 0)
    prefill = [span for span in plan.spans if by_id[span.session_id].n_missing > 1]
    assert sum(span.n_tokens for span in prefill) <= chunk
    assert [span.session_id for span in prefill] == sorted(span.session_id for span in prefill)


@pytest.mark.parametrize("max_rows", [1, 2, 3, 5])
def test_nobody_starves(max_rows: int) -> None:
    scheduler = Scheduler(max_rows=max_rows, prefill_chunk=4, pacing=Pacing())
    sessions = [Seen(i, 1) for i in range(7)] + [Seen(7, 30)]
    last_served = dict.fromkeys(range(8), 0)
    for step in range(1, 60):
        for span in scheduler.plan(sessions).spans:
            sessions[span.session_id].served_at = last_served[span.session_id] = step
        # with one row, decoding and the prompt take turns, so a round of seven takes fourteen steps
        assert min(step - served for served in last_served.values()) == 0
        assert max(step - served for served in last_served.values()) <= 16
