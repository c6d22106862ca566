"""Who computes next: policy only. It sees sizes and numbers, no arrays, no tokens, no text.

Decoding sequences come first, one row each, so that nobody's text stalls behind another's long prompt. Prompts get as
many rows as keep the pace of these (`pacing`), without any at most `prefill_chunk`; drafts get what is left of the
pass. Prompts take turns, the one served longest ago first, so that a short one does not wait for a long one to end.
Decoding sequences do the same where there are more of them than rows; one row is kept for a waiting prompt. A higher
priority always comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from fucina.core.shapes import KV_BLOCK
from fucina.engine.pacing import Pacing
from fucina.engine.plan import PlannedSpan, StepPlan


class Schedulable(Protocol):
    """What the scheduler sees of a session."""

    @property
    def id(self) -> int:
        """Its number; a later arrival has a greater one."""

    @property
    def priority(self) -> int:
        """Whoever has a higher one is served first."""

    @property
    def n_missing(self) -> int:
        """Committed tokens that are not in the cache: 1 when decoding, more during prefill."""

    @property
    def n_held(self) -> int:
        """Tokens that are in the cache."""

    @property
    def served_at(self) -> int:
        """The last step that computed rows for it."""

    def draft_budget(self, n_rows: int) -> int:
        """How many drafts it may try in a pass with `n_rows` rows besides them. Asked once for every planned step."""


class Scheduler:
    """Writes step plans for passes of at most `max_rows` rows."""

    def __init__(self, *, max_rows: int, prefill_chunk: int, pacing: Pacing) -> None:
        self._max_rows, self._prefill_chunk = max_rows, min(prefill_chunk, max_rows)
        self._pacing = pacing
        self._n_plans = 0

    def plan(self, sessions: Sequence[Schedulable]) -> StepPlan:
        """Plan the next pass over the running sessions."""
        self._n_plans += 1
        if len(sessions) == 1:
            only = sessions[0]
            n_missing = only.n_missing
            if n_missing > 1:
                return _plan_alone(only.id, min(n_missing, self._prefill_chunk), 0)
            return _plan_alone(only.id, 1, min(only.draft_budget(1), self._max_rows - 1))
        decoding = [session for session in sessions if session.n_missing == 1]
        prefill = [session for session in sessions if session.n_missing > 1]
        prefill.sort(key=_turn)
        decoding = self._fair(decoding, prefill)
        n_left = self._max_rows - len(decoding)
        prompts: list[PlannedSpan] = []
        n_chunk = min(self._prefill_chunk, n_left)
        if prefill and decoding:
            n_chunk = min(n_chunk, self._pacing.prompt_rows(len(decoding), prefill[0].n_held))
        for session in prefill:
            n_tokens = min(session.n_missing, n_chunk)
            if n_tokens:
                prompts.append(PlannedSpan(session.id, n_tokens))
                n_chunk, n_left = n_chunk - n_tokens, n_left - n_tokens
        return StepPlan((*self._with_drafts(decoding, n_left), *prompts))

    def _fair(self, decoding: list[Schedulable], prefill: list[Schedulable]) -> list[Schedulable]:
        """Choose whom to serve if there are more sequences than rows; `prefill` in the order of its turns."""
        # with a single row, decoding and prompts take turns
        keep_one = bool(prefill) and (self._max_rows > 1 or self._n_plans % 2 == 0)
        if len(decoding) <= self._max_rows - keep_one:
            return decoding
        decoding = sorted(decoding, key=_turn)
        if keep_one and prefill[0].priority < decoding[min(len(decoding), self._max_rows) - 1].priority:
            keep_one = False
        return sorted(decoding[: self._max_rows - keep_one], key=lambda session: session.id)

    def _with_drafts(self, decoding: list[Schedulable], n_left: int) -> list[PlannedSpan]:
        """Share the rows that are left among the sequences that want drafts."""
        n_rows = self._max_rows - n_left
        budgets = [session.draft_budget(n_rows) for session in decoding]
        n_takers = sum(budget > 0 for budget in budgets)
        spans: list[PlannedSpan] = []
        for session, budget in zip(decoding, budgets, strict=True):
            n_drafts = min(budget, n_left // n_takers) if budget else 0
            if budget:
                n_left, n_takers = n_left - n_drafts, n_takers - 1
            spans.append(PlannedSpan(session.id, 1, n_drafts))
        return spans


def _turn(session: Schedulable) -> tuple[int, int, int]:
    """Who comes first: the highest priority, then whoever was served longest ago."""
    return -session.priority, session.served_at, session.id


@lru_cache(maxsize=32)  # from step to step it is mostly the same
def _plan_alone(session_id: int, n_tokens: int, n_drafts: int) -> StepPlan:
    return StepPlan((PlannedSpan(session_id, n_tokens, n_drafts),))


def blocks_for(n_positions: int) -> int:
    """KV blocks that so many positions take."""
    return -(-n_positions // KV_BLOCK)
