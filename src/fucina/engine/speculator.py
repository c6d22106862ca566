"""One sequence's drafts: a source, kept honest, and a gate that keeps it from costing more than it gives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from fucina.decoding.processors.contract import StructuralProcessor
from fucina.decoding.speculation.contract import (
    CutListener,
    DraftSource,
    PricedSource,
    ReportingSource,
    RestartableSource,
    TopKListener,
    TopKRow,
)
from fucina.decoding.speculation.costs import StepCosts
from fucina.decoding.speculation.gate import CostGate, GateMemory, Verify
from fucina.decoding.speculation.history import History
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.decoding.speculation.stats import SourceReport, SpeculationStats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fucina.decoding.scans import RowScans


# A source that had nothing for so many steps is asked only every so many, and more seldom later: asking takes 2 % of a
# small model's step, and what it then has to say it says a few tokens late. In a crowd asking takes twice the share,
# and there is less to gain.
_PATIENCE, _EVERY = 4, 4
_LONG_PATIENCE, _SELDOM = 32, 8
_CROWDED = 2
# Tokens that a grammar forces which are drafted at once: more in one pass hardly make a token cheaper.
_MOST_FORCED = 64


class Speculator:
    """Asks a draft source and checks what it says. After its first failure the source is not asked again.

    Without `costs` there is no gate: every step tries whatever the source proposes. It may serve several requests, one
    after another, as the turns of a conversation do.

    A structural processor's forced tokens come first, and also while the gate is closed: they are right for certain,
    so only their price counts, and neither gate nor source is told. Other drafts are cut where it forbids them.
    """

    def __init__(
        self,
        source: DraftSource,
        costs: StepCosts | None = None,
        options: SpeculationOptions | None = None,
        history: History | None = None,
        memory: GateMemory | None = None,
    ) -> None:
        """`history` is told what was said when a request ends; `memory` is what the gate begins with."""
        self._options = options or SpeculationOptions()
        self._source: DraftSource | None = source
        self.error: Exception | None = None
        # looked up once: asking a protocol whether an object has its methods takes microseconds
        self._cut_listener = source if isinstance(source, CutListener) else None
        self._top_k_listener: TopKListener | None = None
        try:
            self._top_k_listener = source if isinstance(source, TopKListener) else None
        except Exception as error:  # looking for `n_top` may run it
            self._give_up(error)
        self._priced = source if isinstance(source, PricedSource) else None
        self._costs = costs
        self._gate = CostGate(self._options, memory) if costs is not None else None
        self._stream: Sequence[int] = ()  # the tokens of the sequence, of which the first _n_fed are observed
        self._n_fed = self._n_remembered = 0
        self._history = history
        self._n_rows = 1  # of the pass that is planned, without drafts
        self._n_empty = 0  # steps since there was a draft
        self._structure: StructuralProcessor | None = None
        self._forced: Sequence[int] = ()  # for the step that is planned
        self.tries_forced = False  # whether the drafts of this step are what a constraint forces
        self._clear_counts()
        self._sources_before: dict[str, SourceReport] = {}

    def begin(self, history: Sequence[int], structure: StructuralProcessor | None = None) -> None:
        """Start on a request: its tokens, a list that will grow, and its processor if that can look ahead.

        What the source knows of a common prefix it keeps.
        """
        self._structure, self._forced = structure, ()
        self._sources_before = self._sources() if self._n_fed else {}
        if self._n_fed and list(history[: self._n_fed]) != list(self._stream[: self._n_fed]):
            self._n_fed = self._n_remembered = 0
            try:
                if isinstance(self._source, RestartableSource):
                    self._source.restart()
            except Exception as error:
                self._give_up(error)
        self._stream, self._n_empty = history, 0
        self._clear_counts()

    def budget(self, n_rows: int) -> int:
        """How many drafts the next step may try, in a pass with `n_rows` rows besides them. Call it once a step."""
        self._n_rows = n_rows
        if self._structure is not None and self._plan_forced(n_rows):
            return len(self._forced)
        if self._source is None:
            return 0
        if self._gate is None:
            return self._options.max_draft
        if self._is_not_worth_asking(n_rows):
            self._fallbacks += 1
            return 0
        if not self._gate.allows():
            self._off += 1
            return 0
        return self._gate.budget()

    def suggest(self, max_tokens: int, vocab: int, ends: Collection[int]) -> Sequence[int]:
        """Propose tokens to follow: at most `max_tokens`, none from the first impossible id on, none after an end."""
        self.tries_forced = bool(self._forced) and max_tokens > 0
        if self.tries_forced:
            return _possible(self._forced[:max_tokens], vocab, ends)
        if self._source is None or max_tokens < 1:
            return ()
        drafts: list[int] = []
        try:
            self._feed()
            proposed = self._ask(max_tokens)
            drafts = _possible(proposed[:max_tokens], vocab, ends)
            if drafts and self._structure is not None:
                drafts = drafts[: self._n_legal(drafts)]
            if len(drafts) < self._options.min_draft:
                drafts = []
            if len(drafts) < len(proposed) and self._cut_listener is not None:
                self._cut_listener.truncate_pending(len(drafts))
        except Exception as error:
            self._give_up(error)
            return ()
        if drafts:
            self._n_empty = 0
        else:
            self._fallbacks += 1
            self._n_empty += self._n_empty < _PATIENCE  # from there on `budget` counts
        return drafts

    def withdraw(self) -> None:
        """Take the last suggestion back: there is no room to try it."""
        if self._source is not None and self._cut_listener is not None and not self.tries_forced:
            try:
                self._cut_listener.truncate_pending(0)
            except Exception as error:
                self._give_up(error)

    def verified(self, n_drafted: int, n_accepted: int, n_committed: int) -> None:
        """Take note of what became of drafts."""
        self._verifies += 1
        self._drafted += n_drafted
        self._accepted += n_accepted
        if n_committed > n_accepted:  # not ended by a draft
            self._bonus += n_accepted == n_drafted
            self._rejected += n_accepted < n_drafted
        if self._costs is not None:
            self._cost += self._costs.table.verify_cost(n_drafted, self._n_rows)
        if self.tries_forced:
            self._forced_drafted += n_drafted
            self._forced_accepted += n_accepted
        elif self._gate is not None and self._costs is not None:
            cost = self._costs.verify_cost(n_drafted, self._n_rows)
            self._gate.record(Verify(n_committed, n_accepted, n_drafted, cost))

    def show(self, scans: RowScans, rows: NDArray[np.float32], tokens: Sequence[int]) -> None:
        """Let the source see what the model thought likely after each of `tokens`; rows (len(tokens), vocab) f32."""
        source = self._top_k_listener
        if self._source is not None and source is not None and tokens and not self.tries_forced:
            try:
                n_top = source.n_top
                if n_top > 0:
                    found = [scans.top_k(row, n_top) for row in rows]
                    pairs = zip(tokens, found, strict=True)
                    source.observe_top_k([TopKRow(token, top[0].tolist()) for token, top in pairs if top is not None])
            except Exception as error:
                self._give_up(error)

    def end(self) -> SpeculationStats:
        """Let the source see the rest of the sequence, remember it, and tell what came of the request."""
        sources: tuple[SourceReport, ...] = ()
        try:
            if self._history is not None:
                self._history.add(self._stream[self._n_remembered :])
                self._n_remembered = len(self._stream)
            self._feed()
            sources = tuple(_since(report, self._sources_before) for report in self._sources().values())
        except Exception as error:
            self._give_up(error)
        if self._forced_drafted:
            sources = (SourceReport("grammar", self._forced_drafted, self._forced_accepted, False), *sources)
        return SpeculationStats(
            verify_steps=self._verifies,
            fallback_steps=self._fallbacks,
            off_steps=self._off,
            drafted=self._drafted,
            accepted=self._accepted,
            forced=self._forced_drafted,
            bonus=self._bonus,
            rejected=self._rejected,
            verify_cost=self._cost,
            gate=self._gate.state if self._gate is not None else None,
            estimated_speedup=self._gate.estimated_speedup if self._gate is not None else None,
            sources=sources,
        )

    def _is_not_worth_asking(self, n_rows: int) -> bool:
        """Whether no draft would pay in such a pass, or there was none for a while and it is not time to ask again."""
        if n_rows > 1 and self._costs is not None and not self._costs.may_pay(self._options.max_draft, n_rows):
            return True
        if self._n_empty < _PATIENCE:
            return False
        self._n_empty += 1
        every = _EVERY if self._n_empty < _LONG_PATIENCE else _SELDOM
        return self._n_empty % (every if n_rows == 1 else every * _CROWDED) > 0

    def _plan_forced(self, n_rows: int) -> bool:
        """Look for forced tokens, as many as pay; False: there are none."""
        assert self._structure is not None
        try:
            self._forced = self._structure.forced_tokens(_MOST_FORCED)
        except Exception as error:
            self._look_no_more(error)
        if self._forced and self._costs is not None:
            self._forced = self._forced[: self._costs.best_length(1.0, len(self._forced), n_rows)]
        return len(self._forced) > 0

    def _n_legal(self, drafts: Sequence[int]) -> int:
        """How many of the drafts the processor would allow; all while it cannot tell."""
        assert self._structure is not None
        try:
            return self._structure.valid_prefix_len(drafts)
        except Exception as error:
            self._look_no_more(error)
            return len(drafts)

    def _look_no_more(self, error: Exception) -> None:
        """Do without a look-ahead that fails; if the processor is broken it will say so when it is to choose."""
        self._structure, self._forced, self.error = None, (), error

    def _ask(self, max_tokens: int) -> Sequence[int]:
        assert self._source is not None
        if self._costs is None or self._priced is None:
            return self._source.suggest(self._stream, max_tokens)
        return self._priced.suggest_priced(self._stream, max_tokens, self._best_length)

    def _best_length(self, probability: float, most: int) -> int:
        """How many drafts to try, at the prices of the pass that is planned."""
        assert self._costs is not None
        return self._costs.best_length(probability, most, self._n_rows)

    def _feed(self) -> None:
        """Tell the source what was committed since it was last asked."""
        if self._source is not None and self._n_fed < len(self._stream):
            committed = self._stream[self._n_fed :]
            self._n_fed = len(self._stream)
            self._source.observe(committed)

    def _sources(self) -> dict[str, SourceReport]:
        """What each of several sources did so far, by its name."""
        if isinstance(self._source, ReportingSource):
            try:
                return {report.name: report for report in self._source.sources()}
            except Exception as error:
                self._give_up(error)
        return {}

    def _clear_counts(self) -> None:
        self._verifies = self._fallbacks = self._off = 0
        self._drafted = self._accepted = self._bonus = self._rejected = 0
        self._forced_drafted = self._forced_accepted = 0
        self._cost = 0.0

    def _give_up(self, error: Exception) -> None:
        self._source, self.error = None, error


def _possible(proposed: Sequence[int], vocab: int, ends: Collection[int]) -> list[int]:
    """The tokens before the first that cannot be, and up to the first that ends the answer."""
    drafts: list[int] = []
    for token in proposed:
        if not 0 <= token < vocab:
            break
        drafts.append(int(token))
        if token in ends:
            break
    return drafts


def _since(report: SourceReport, before: Mapping[str, SourceReport]) -> SourceReport:
    """What a source did since it was asked before, unless it is another by the same name."""
    old = before.get(report.name)
    if old is None or report.drafted < old.drafted:
        return report
    return SourceReport(report.name, report.drafted - old.drafted, report.accepted - old.accepted, report.is_muted)
