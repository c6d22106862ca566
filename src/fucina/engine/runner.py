"""Carries out a step plan: rows in, one forward pass, tokens committed. Arrays only, no policy.

Whatever goes wrong, every touched cache is left without uncommitted positions. What goes wrong in one sequence (its
processor, its text, its picker, its memory) ends that sequence with the error; the others do not notice. A pass that
raises computes for nobody: it commits nothing, the error goes up, and the same step can be tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from fucina.decoding.speculation.costs import StepCosts
from fucina.engine.counters import Counters
from fucina.engine.events import TokenEvent
from fucina.engine.pacing import Pacing
from fucina.engine.plan import PlannedSpan, StepPlan
from fucina.engine.session import Ending, Session
from fucina.errors import KvPoolFull
from fucina.models.contract import CausalLM
from fucina.ops.batch import Batch, Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: From so many rows on, a pass tells what a token of a prompt takes.
_MANY_ROWS = 32
#: A session, its rows in the pass, and those of them that are drafts.
_Share = tuple[Session, Span, Sequence[int]]


class Runner:
    """Runs plans on a model. `n_choosable` is how many of a row's logits are tokens; the rest is padding.

    `costs`, where there are any, learn what passes of decoding sequences take; `pacing` learns what prompts add.
    """

    def __init__(
        self,
        model: CausalLM,
        n_choosable: int,
        counters: Counters,
        pacing: Pacing,
        when_read: Callable[[Session], None],
    ) -> None:
        """`when_read` is told of each session whose prompt has been read."""
        self._model, self._n_choosable, self._counters, self._when_read = model, n_choosable, counters, when_read
        self._pacing = pacing
        self._has_padding = model.vocab > n_choosable
        self.costs: StepCosts | None = None
        #: What a token of a prompt takes, as the last long pass had it; None before the first.
        self.token_s: float | None = None

    def run(
        self, plan: StepPlan, sessions: dict[int, Session], step: int, emit: Callable[[TokenEvent], None]
    ) -> list[Session]:
        """Compute one pass and commit what it gives; sessions that ended carry their `ending`.

        Returns the sessions that had to sit out for want of KV blocks. Raises what `model.forward` raises.
        """
        starved: list[Session] = []
        shares: list[_Share] = []
        try:
            for planned in plan.spans:
                session = sessions[planned.session_id]
                share = self._prepare(session, planned)
                if share is not None:
                    shares.append(share)
                elif session.ending is None:
                    starved.append(session)
            if shares:
                self._compute(shares, step, emit)
        finally:
            for session, _, _ in shares:
                session.settle()
        self._counters.kv_waits += len(starved)
        return starved

    def _prepare(self, session: Session, planned: PlannedSpan) -> _Share | None:
        """Make room in the session's cache for its rows; None if there is none, or if that failed."""
        try:
            session.check()
            drafts = self._drafts(session, planned) if planned.n_drafts else ()
            if not drafts:
                session.kv.reserve(planned.n_tokens)
            span = _span(session, planned.n_tokens, drafts)
            if session.listener is not None and span.n_logits:
                session.listener.prepare(drafts)
            return session, span, drafts
        except KvPoolFull:
            return None
        except Exception as error:
            session.ending = Ending("error", error=error)
            return None

    def _drafts(self, session: Session, planned: PlannedSpan) -> Sequence[int]:
        """Ask for drafts and make room for them too; none if there is no room to try them."""
        drafts = session.suggest(planned.n_drafts, self._n_choosable)
        if drafts:
            try:
                session.kv.reserve(planned.n_tokens + len(drafts))
            except KvPoolFull:
                assert session.speculator is not None
                session.speculator.withdraw()
                return ()
        return drafts

    def _compute(self, shares: list[_Share], step: int, emit: Callable[[TokenEvent], None]) -> None:
        counters = self._counters
        before_s = perf_counter()
        try:
            logits = self._model.forward(Batch(tuple([span for _, span, _ in shares])))
        except BaseException:
            counters.failed_passes += 1
            raise
        seconds = perf_counter() - before_s
        n_rows = n_drafts = n_prompt = n_before = 0
        for session, span, drafts in shares:
            if session.n_missing > 1:
                n_prompt += len(span.tokens)
                n_before += len(span.tokens) * span.start
            session.kv.advance(len(span.tokens))
            session.served_at = step
            n_rows += len(span.tokens)
            n_drafts += len(drafts)
        if n_rows >= _MANY_ROWS:
            self.token_s = seconds / n_rows
        counters.passes += 1
        counters.rows += n_rows
        counters.drafted += n_drafts
        self._pacing.record(n_rows - n_prompt, n_prompt, seconds, n_before // max(n_prompt, 1))
        if self.costs is not None and not n_prompt:
            _record(self.costs, n_rows - n_drafts, n_drafts, seconds)
        if self._has_padding:
            logits = logits[:, : self._n_choosable]
        row = 0
        for session, span, drafts in shares:
            if span.n_logits:
                self._commit(session, logits, row, drafts, emit)
                row += span.n_logits

    def _commit(
        self,
        session: Session,
        logits: NDArray[np.float32],
        first_row: int,
        drafts: Sequence[int],
        emit: Callable[[TokenEvent], None],
    ) -> None:
        counters, n_before = self._counters, len(session.history)
        if n_before == session.n_prompt:
            self._when_read(session)
        try:
            counters.accepted += session.commit(logits, first_row, drafts, emit)
        except Exception as error:
            session.ending = Ending("error", error=error)
        counters.tokens += len(session.history) - n_before


def _record(costs: StepCosts, n_rows: int, n_drafts: int, seconds: float) -> None:
    """Let costs learn from a pass of decoding sequences, `n_rows` of them."""
    if n_drafts:
        costs.record_verify(n_drafts, seconds, n_rows)
    else:
        costs.record_plain(seconds, n_rows)


def _span(session: Session, n_tokens: int, drafts: Sequence[int]) -> Span:
    """The rows of one session: what its cache lacks, then drafts; logits if the last committed token is among them."""
    start = session.kv.length
    end = start + n_tokens
    tokens = session.history[start:end]
    n_logits = len(drafts) + 1 if end == len(session.history) else 0
    return Span([*tokens, *drafts] if drafts else tokens, start, session.kv.blocks, n_logits)
