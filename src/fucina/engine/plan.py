"""What one pass will compute: values that the scheduler writes and the runner carries out."""

from __future__ import annotations

from typing import NamedTuple


class PlannedSpan(NamedTuple):
    """The next `n_tokens` tokens of a session that its cache lacks, and at most `n_drafts` guessed ones after them."""

    session_id: int
    n_tokens: int
    n_drafts: int = 0


class StepPlan(NamedTuple):
    """All spans of a pass, at most one per session: decoding sessions, then prompts in the order of their turns."""

    spans: tuple[PlannedSpan, ...]

    @property
    def n_rows(self) -> int:
        """Rows of the pass, should every draft be there."""
        return sum(span.n_tokens + span.n_drafts for span in self.spans)
