"""What a source of drafts must do. It proposes tokens; the model and the picker decide, so it can change speed only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from fucina.decoding.speculation.stats import SourceReport

#: How many drafts to try, of at most so many that are right with this probability each: (probability, most) -> number.
BestLength = Callable[[float, int], int]


class TopKRow(NamedTuple):
    """A row of a verify: the token that went into it, and the most probable tokens to follow, best first."""

    token: int
    ids: Sequence[int]


class DraftSource(Protocol):
    """Proposes what may come next in one sequence. Deterministic; it serves one sequence and is fed in order.

    Whatever it returns is checked: too many tokens are cut, so is everything from the first id outside the vocabulary.
    A source that raises is not asked again, and its sequence goes on without drafts.
    """

    def suggest(self, context: Sequence[int], max_tokens: int) -> Sequence[int]:
        """Propose at most `max_tokens` tokens to follow `context`, every committed token so far; none is an answer.

        `context` is borrowed: valid during the call only.
        """

    def observe(self, committed: Sequence[int]) -> None:
        """Learn tokens that were committed, in order: the prompt first, then what came after, now or at the next call.

        It is called before every suggestion, with all that was committed since the last; tokens of steps in which
        nothing was asked for come together.
        """


@runtime_checkable
class CutListener(Protocol):
    """A draft source that wants to know when less than it proposed is tried."""

    def truncate_pending(self, n_tokens: int) -> None:
        """Take note that only the first `n_tokens` of the last suggestion are being tried."""


@runtime_checkable
class TopKListener(Protocol):
    """A draft source that learns from what the model thought likely. Where it is absent, nobody computes that."""

    @property
    def n_top(self) -> int:
        """How many tokens of a row it wants to know; 0: none at present."""

    def observe_top_k(self, rows: Sequence[TopKRow]) -> None:
        """Learn from the rows behind the first wrong draft of a pass.

        Nobody will commit what follows there, so this is the only trace of what the model thinks of those tokens; of
        the others `observe` tells what did follow.
        """


@runtime_checkable
class PricedSource(Protocol):
    """A draft source that knows how sure it is, and lets the price of rows decide how much to draft."""

    def suggest_priced(self, context: Sequence[int], max_tokens: int, best_length: BestLength) -> Sequence[int]:
        """Propose like `suggest`, but no more than `best_length` says for the probability that its drafts are right."""


@runtime_checkable
class RestartableSource(Protocol):
    """A draft source that can serve another sequence."""

    def restart(self) -> None:
        """Forget the sequence, whose tokens will be observed anew from the first on."""


@runtime_checkable
class ReportingSource(Protocol):
    """A draft source made of several."""

    def sources(self) -> Sequence[SourceReport]:
        """Tell what each of them did so far."""
