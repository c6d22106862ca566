"""What all sequences of one model share of speculation, and what makes a new sequence's."""

from __future__ import annotations

from typing import NamedTuple

from fucina.decoding.speculation.acceptance import Acceptance
from fucina.decoding.speculation.cascade import Cascade
from fucina.decoding.speculation.costs import CostTable, StepCosts
from fucina.decoding.speculation.gate import GateMemory
from fucina.decoding.speculation.history import History
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.decoding.speculation.recycling import Recycling
from fucina.decoding.speculation.suffix_automaton import SuffixAutomaton
from fucina.engine.pass_costs import PassCosts
from fucina.engine.speculator import Speculator


class Drafting(NamedTuple):
    """One sequence's sources of drafts, and the gate and checks around them."""

    cascade: Cascade
    speculator: Speculator


class Speculation:
    """One model's: its prices on this machine, the tokens it thought likely, how often each kind of draft was right."""

    def __init__(self, vocab: int, pass_costs: PassCosts, options: SpeculationOptions | None = None) -> None:
        self._options = options or SpeculationOptions()
        self._vocab, self._pass_costs = vocab, pass_costs
        self.forget()
        self._costs: StepCosts | None = None

    @property
    def costs(self) -> StepCosts:
        """The prices of its steps. Measured now if this machine never did: then nobody else may compute meanwhile."""
        if self._costs is None:
            self._costs = StepCosts(self._pass_costs.table())
        return self._costs

    def measure_costs(self) -> CostTable:
        """Measure the prices anew, for the sequences to come. Nobody else may compute meanwhile."""
        self._costs = StepCosts(self._pass_costs.measure())
        return self._costs.table

    def forget(self) -> None:
        """Begin anew, for the sequences to come; the prices stay."""
        self._recycling = Recycling(self._vocab)
        self._history = History() if self._options.remember else None
        self._acceptance = Acceptance()
        self._gates = GateMemory()

    def drafting(self) -> Drafting:
        """What one more sequence needs."""
        cascade = Cascade(self._recycling, self._acceptance, SuffixAutomaton, self._options.min_draft)
        if self._history is not None:
            for index in self._history.indexes():
                cascade.share_history(index)
        return Drafting(cascade, Speculator(cascade, self.costs, self._options, self._history, self._gates))
