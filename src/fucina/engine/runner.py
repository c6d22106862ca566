"""Carries out a step plan: rows in, one forward pass, tokens committed. Arrays only, no policy.

Whatever goes wrong, every touched cache is left without uncommitted positions. What goes wrong in one sequence (its
processor, its text, its picker, its memory) ends that sequence with the error; the others do not notice. A pass that
raises computes for nobody: it commits nothing, the error goes up, and the same step can be tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from fucina.decoding.speculation.costs import StepCosts
from fucina.engine.counters import Counters
from fucina.engine.events import TokenEvent
from fucina.engine.plan import PlannedSpan, StepPlan
from fucina.engine.session import Ending, Session
from fucina.errors import KvPoolFull
from fucina.models.contract import CausalLM
from fucina.ops.batch import Batch, Span


class Runner:
    """Runs plans on a model. `n_choosable` is how many of a row's logits are tokens; the rest is padding.

    `costs`, where there are any, learn what passes of decoding sequences take.
    """

    def __init__(self, model: CausalLM, n_choosable: int, counters: Counters) -> None:
        self._model, self._n_choosable, self._counters = model, n_choosable, counters
        self.costs: StepCosts | None = None

    def run(self, plan: StepPlan, sessions: dict[int, Session], step: int, emit: Callable[[TokenEvent], None]) -> int:
        """Compute one pass and commit what it gives; sessions that ended carry their `ending`.

        Returns how many sessions had to sit out for want of KV blocks. Raises what `model.forward` raises.
        """
        n_starved = 0
        touched: list[Session] = []
        spans: list[Span] = []
        drafts: list[Sequence[int]] = []
        try:
            for planned in plan.spans:
                session = sessions[planned.session_id]
                guesses = self._prepare(session, planned)
                if guesses is not None:
                    touched.append(session)
                    drafts.append(guesses)
                    spans.append(_span(session, planned.n_tokens, guesses))
                elif session.ending is None:
                    n_starved += 1
            if touched:
                is_decoding = self.costs is not None and all(planned.n_tokens == 1 for planned in plan.spans)
                self._compute(touched, spans, drafts, emit, is_decoding)
                for session in touched:
                    session.served_at = step
        finally:
            for session in touched:
                session.settle()
        self._counters.kv_waits += n_starved
        return n_starved

    def _prepare(self, session: Session, planned: PlannedSpan) -> Sequence[int] | None:
        """Make room in the session's cache and give its drafts; None if there is none, or if that failed."""
        try:
            session.check()
            drafts = session.suggest(planned.n_drafts, self._n_choosable) if planned.n_drafts else ()
            if drafts:
                if _reserve(session, planned.n_tokens + len(drafts)):
                    _tell(session, planned.n_tokens, drafts)
                    return drafts
                assert session.speculator is not None
                session.speculator.withdraw()
            if _reserve(session, planned.n_tokens):
                _tell(session, planned.n_tokens, ())
                return ()
        except Exception as error:
            session.ending = Ending("error", error=error)
        return None

    def _compute(
        self,
        sessions: list[Session],
        spans: list[Span],
        drafts: list[Sequence[int]],
        emit: Callable[[TokenEvent], None],
        is_decoding: bool,
    ) -> None:
        counters = self._counters
        before_s = perf_counter()
        try:
            logits = self._model.forward(Batch(tuple(spans)))
        except BaseException:
            counters.failed_passes += 1
            raise
        if self.costs is not None and is_decoding:
            _record(self.costs, spans, any(drafts), perf_counter() - before_s)
        counters.passes += 1
        if logits.shape[1] > self._n_choosable:
            logits = logits[:, : self._n_choosable]
        for session, span in zip(sessions, spans, strict=True):
            session.kv.advance(len(span.tokens))
            counters.rows += len(span.tokens)
        row = 0
        for session, span, guesses in zip(sessions, spans, drafts, strict=True):
            if span.n_logits:
                n_before = len(session.history)
                try:
                    counters.accepted += session.commit(logits, row, guesses, emit)
                    session.settle()
                    session.check()
                except Exception as error:
                    session.ending = Ending("error", error=error)
                counters.tokens += len(session.history) - n_before
                counters.drafted += len(guesses)
            row += span.n_logits


def _record(costs: StepCosts, spans: list[Span], with_drafts: bool, seconds: float) -> None:
    if with_drafts:
        costs.record_verify(sum(len(span.tokens) for span in spans), seconds)
    elif len(spans) == 1:
        costs.record_plain(seconds)


def _tell(session: Session, n_tokens: int, drafts: Sequence[int]) -> None:
    """Let a processor work beside the pass, where that ends in a choice of its sequence's next token."""
    if session.listener is not None and n_tokens == session.n_missing:
        session.listener.prepare(drafts)


def _reserve(session: Session, n_rows: int) -> bool:
    """Make room for rows; False if the pool has none."""
    try:
        session.kv.reserve(n_rows)
    except KvPoolFull:
        return False
    return True


def _span(session: Session, n_tokens: int, drafts: Sequence[int]) -> Span:
    """The rows of one session: what its cache lacks, then drafts; logits if the last committed token is among them."""
    start = session.kv.length
    tokens = session.history[start : start + n_tokens]
    reaches_end = start + n_tokens == len(session.history)
    return Span([*tokens, *drafts], start, session.kv.blocks, len(drafts) + 1 if reaches_end else 0)
