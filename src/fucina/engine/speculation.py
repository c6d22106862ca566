"""What sequences of one model share of speculation, and what makes a new sequence's."""

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

#: Salts of which is kept what they taught, those used last: each takes up to 32 bytes a vocabulary entry, and 3 MB.
MOST_SALTS = 16


class Drafting(NamedTuple):
    """One sequence's sources of drafts, and the gate and checks around them."""

    cascade: Cascade
    speculator: Speculator


class Learned:
    """What the requests of one salt have taught: tokens thought likely, texts, and how often drafts were right."""

    def __init__(self, vocab: int, *, remember: bool) -> None:
        self.recycling = Recycling(vocab)
        self.history = History() if remember else None
        self.acceptance = Acceptance()
        self.gates = GateMemory()


class Speculation:
    """One model's: its prices on this machine, and what requests have taught, of each salt for itself.

    What requests of one salt said makes drafts, by which time can tell of it, for those of the same salt only.
    """

    def __init__(self, vocab: int, pass_costs: PassCosts, options: SpeculationOptions | None = None) -> None:
        self._options = options or SpeculationOptions()
        self._vocab, self._pass_costs = vocab, pass_costs
        self._learned: dict[str, Learned] = {}  # by salt, the one used last at the end
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
        self._learned.clear()

    def drafting(self, salt: str = "") -> Drafting:
        """What one more sequence of this salt needs."""
        learned = self._learned_of(salt)
        cascade = Cascade(learned.recycling, learned.acceptance, SuffixAutomaton, self._options.min_draft)
        if learned.history is not None:
            for index in learned.history.indexes():
                cascade.share_history(index)
        return Drafting(cascade, Speculator(cascade, self.costs, self._options, learned.history, learned.gates))

    def _learned_of(self, salt: str) -> Learned:
        learned = self._learned.pop(salt, None) or Learned(self._vocab, remember=self._options.remember)
        self._learned[salt] = learned
        if len(self._learned) > MOST_SALTS:
            del self._learned[next(iter(self._learned))]
        return learned
