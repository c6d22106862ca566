"""One source of drafts made of several: the conversation, documents, what ended before, recycled candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fucina.decoding.speculation.acceptance import Acceptance, Kind
from fucina.decoding.speculation.contract import BestLength, TopKRow
from fucina.decoding.speculation.mute import Mute
from fucina.decoding.speculation.recycling import N_CANDIDATES, Recycling
from fucina.decoding.speculation.stats import SourceReport
from fucina.decoding.speculation.suffix_automaton import SuffixAutomaton

#: The shortest match that is worth following.
_MIN_MATCH = 2
#: Most tokens of a recycled chain.
_MAX_CHAIN = 8
#: The probability of recycled drafts from which the search for candidates in a row of logits is worth its time.
_WORTH_TOP_K = 0.2
#: Tokens of a draft that are compared with what was committed.
_MAX_PENDING = 64


class Matcher(Protocol):
    """Knows how much of the end of a sequence occurred before, and what followed there."""

    @property
    def match_length(self) -> int:
        """Length of the longest suffix of the sequence that occurred before."""

    def draft(self, max_tokens: int) -> list[int]:
        """Return up to `max_tokens` tokens that followed the most recent occurrence."""


class Cursor(Matcher, Protocol):
    """Matches a growing sequence against a text that does not change."""

    def advance(self, tokens: Sequence[int]) -> None:
        """Go on to the next tokens of the sequence."""


class Frozen(Protocol):
    """An index of a text that does not change; any number of conversations may read it."""

    def cursor(self) -> Cursor:
        """Start matching a new sequence."""


class Index(Matcher, Protocol):
    """Matches a growing sequence against its own past. After a failed append it is degraded, and not to be asked."""

    @property
    def is_degraded(self) -> bool:
        """Whether an append failed, so that the index no longer knows its sequence."""

    def append(self, tokens: Sequence[int]) -> None:
        """Add the next tokens of the sequence."""

    def freeze(self) -> Frozen:
        """Turn into an index that does not change."""


class Cascade:
    """Drafts for one conversation from whatever matches its end best (Luo et al. 2024; Hu et al. 2024, SAM Decoding).

    The longest match wins. Between equal ones it is the conversation, where the latest version of a text is, and then
    the reference that was added first; the history comes last. Where nothing matches, the recycled candidates are
    followed. A source whose drafts are mostly wrong is muted for a while. Recycling and acceptance are shared with
    others and outlive a cascade.

    `accounting_min_draft`: shorter drafts are not counted, as the engine never tries them.
    """

    def __init__(
        self,
        recycling: Recycling,
        acceptance: Acceptance,
        new_index: Callable[[], Index] = SuffixAutomaton,
        accounting_min_draft: int = 1,
    ) -> None:
        self._recycling = recycling
        self._acceptance = acceptance
        self._new_index = new_index
        self._accounting_min_draft = accounting_min_draft
        self._conversation = _Source("conversation")
        self._recycled = _Source("recycling")
        self._references: list[_Reference] = []
        self._index = new_index()
        self._stream: list[int] = []
        self._pending: list[int] = []
        self._pending_from = self._recycled
        self._pending_match = 0

    @property
    def n_top(self) -> int:
        """How many candidates of a row are wanted: 8, or 0 while the recycled ones are not worth finding any."""
        is_poor = self._acceptance.probability("recycling", 0) < _WORTH_TOP_K
        return 0 if self._recycled.mute.is_muted or is_poor else N_CANDIDATES

    def suggest(self, context: Sequence[int], max_tokens: int) -> list[int]:
        """Propose tokens to follow: at most twice the match and two more, or 8 recycled ones."""
        return self.suggest_priced(context, max_tokens, _as_many_as_possible)

    def suggest_priced(self, context: Sequence[int], max_tokens: int, best_length: BestLength) -> list[int]:
        """Propose like `suggest`, but no more than `best_length` says for how often the source was right so far."""
        self._pending = []
        if max_tokens < 1 or not context or not self._stream or context[-1] != self._stream[-1]:
            return []
        matcher, source, length = self._longest_match()
        if matcher is not None:
            drafts = self._draft(source, length, min(max_tokens, 2 * (1 + length)), matcher.draft, best_length)
            if drafts:
                return drafts
        if self._recycled.mute.is_muted:
            return []
        return self._draft(self._recycled, 0, min(max_tokens, _MAX_CHAIN), self._chain, best_length)

    def observe(self, committed: Sequence[int]) -> None:
        """Learn committed tokens, and from them what became of the last suggestion. None: the suggestion is void."""
        if not committed:
            self._pending = []
            return
        if self._pending:
            self._settle(committed)
        n_committed = len(committed)
        self._conversation.mute.count_down(n_committed)
        self._recycled.mute.count_down(n_committed)
        recycled = self._recycling.observe(self._stream[-1] if self._stream else None, committed)
        self._acceptance.count("recycling", 0, *recycled)
        self._stream.extend(committed)
        self._append(committed)
        for reference in self._references:
            reference.mute.count_down(n_committed)
            reference.cursor.advance(committed)

    def observe_top_k(self, rows: Sequence[TopKRow]) -> None:
        """Learn what the model thinks likely after drafts that were wrong, or behind wrong ones."""
        for token, ids in rows:
            self._recycling.update(token, ids)

    def truncate_pending(self, n_tokens: int) -> None:
        """Take note that only the first `n_tokens` of the last suggestion are being tried."""
        self._pending = self._pending[:n_tokens] if n_tokens >= self._accounting_min_draft else []

    def add_reference(self, tokens: Sequence[int]) -> Frozen:
        """Draft from a document too, given in the tokens of the model's own tokenizer. Returns its index, to share."""
        index = self._new_index()
        index.append(tokens)
        frozen = index.freeze()
        self.share_reference(frozen)
        return frozen

    def share_reference(self, frozen: Frozen) -> None:
        """Draft from a document that was indexed before, matched from the start of this conversation on."""
        self._share(frozen, "reference")

    def share_history(self, frozen: Frozen) -> None:
        """Draft from sequences that have ended, too, where they match longer than this one and its references."""
        self._share(frozen, "history")

    def clear_references(self) -> None:
        """Forget all reference documents, and the last suggestion."""
        self._references = [other for other in self._references if other.kind != "reference"]
        self._pending = []

    def restart(self) -> None:
        """Begin a new conversation with the same references; what was learned of the sources is kept."""
        self._index = self._new_index()
        self._stream = []
        self._pending = []
        for reference in self._references:
            reference.cursor = reference.frozen.cursor()

    def sources(self) -> list[SourceReport]:
        """Report on every source, in the order of preference."""
        named = [("conversation", self._conversation)]
        documents = [other for other in self._references if other.kind == "reference"]
        named += [(f"reference {number}", source) for number, source in enumerate(documents, 1)]
        earlier = [other for other in self._references if other.kind == "history"]
        named += [(f"history {number}", source) for number, source in enumerate(earlier, 1)]
        named += [("recycling", self._recycled)]
        return [SourceReport(name, s.mute.drafted, s.mute.accepted, s.mute.is_muted) for name, s in named]

    def _share(self, frozen: Frozen, kind: Kind) -> None:
        reference = _Reference(frozen, kind)
        reference.cursor.advance(self._stream)
        self._references.append(reference)
        self._references.sort(key=lambda other: other.kind == "history")  # documents first, each in their order

    def _longest_match(self) -> tuple[Matcher | None, _Source, int]:
        """Return who matches longest, whose it is and how long; None where nobody matches two tokens."""
        matcher: Matcher | None = None
        source = self._conversation
        longest = _MIN_MATCH - 1
        if not source.mute.is_muted and not self._index.is_degraded:
            length = self._index.match_length
            if length > longest:
                matcher, longest = self._index, length
        for reference in self._references:
            length = reference.cursor.match_length
            if length > longest and not reference.mute.is_muted:
                matcher, source, longest = reference.cursor, reference, length
        return matcher, source, longest

    def _draft(
        self, source: _Source, match_length: int, most: int, draft: Callable[[int], list[int]], best_length: BestLength
    ) -> list[int]:
        """Draft what the price allows, and remember it until it is known what became of it."""
        best = best_length(self._acceptance.probability(source.kind, match_length), most)
        if best < 1:
            self._acceptance.refuse(source.kind, match_length)
            return []
        drafts = draft(min(best, most))
        if len(drafts) >= self._accounting_min_draft:
            self._pending = drafts[:_MAX_PENDING]
            self._pending_from = source
            self._pending_match = match_length
        return drafts

    def _chain(self, max_tokens: int) -> list[int]:
        return self._recycling.chain(self._stream[-1], max_tokens)

    def _settle(self, committed: Sequence[int]) -> None:
        """Compare the last suggestion with what was committed."""
        pending, source = self._pending, self._pending_from
        self._pending = []
        n_compared = min(len(pending), len(committed))
        n_right = 0
        while n_right < n_compared and pending[n_right] == committed[n_right]:
            n_right += 1
        source.mute.record(n_right, len(pending))
        if source is not self._recycled:  # whose guesses are counted whether they are tried or not
            # Where the sequence ended inside the draft, the tokens behind its end were not wrong.
            self._acceptance.record(source.kind, self._pending_match, n_right, n_compared)

    def _append(self, committed: Sequence[int]) -> None:
        """Add to the conversation's index. If that fails, the other sources go on without it."""
        if not self._index.is_degraded:
            try:
                self._index.append(committed)
            except Exception:
                if not self._index.is_degraded:
                    raise


class _Source:
    """A source's kind and its standing."""

    __slots__ = ("kind", "mute")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.mute = Mute()


class _Reference(_Source):
    """A document or earlier sequences, and where the conversation stands in them."""

    __slots__ = ("cursor", "frozen")

    def __init__(self, frozen: Frozen, kind: Kind) -> None:
        super().__init__(kind)
        self.frozen = frozen
        self.cursor = frozen.cursor()


def _as_many_as_possible(_probability: float, most: int) -> int:
    return most
