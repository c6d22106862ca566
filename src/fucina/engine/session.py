"""One request on its way: its tokens, its cache, its picker, its text. Knows nothing of other sessions.

The invariant: `history` holds every committed token, prompt included, and the cache holds exactly all but the last:
`len(history) == kv.length + 1`. Only while it catches up (a prompt not read yet, or a cache given away to others) may
the cache hold fewer. A step may put more into it (drafts), and `settle` takes that out again on every way out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

from fucina.core.shapes import KV_BLOCK
from fucina.decoding.grammar.costs import MaskCosts
from fucina.decoding.picker import Picker
from fucina.decoding.processors.contract import Constraining, LogitProcessor, PassListener, StructuralProcessor
from fucina.engine.events import FinishEvent, FinishReason, Origin, Timings, TokenEvent, Usage
from fucina.engine.request import Request
from fucina.engine.speculator import Speculator
from fucina.engine.stops import StopStrings
from fucina.engine.wording import TextStream
from fucina.errors import InvalidDecodeState
from fucina.storage.kv.sequence import KvSequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a session is over: the stop string or token, or the error, that ended it."""

    reason: FinishReason
    stop: str | int | None = None
    error: Exception | None = None


def constraint_of(processor: LogitProcessor | None) -> Constraining | None:
    """The processor, if it holds an answer to a form."""
    if isinstance(processor, Constraining) and processor.is_satisfied(ended=False) is not None:
        return processor
    return None


class Session:
    """A request's state from submission to its last token."""

    kv: KvSequence  # there is one from `start` on

    def __init__(
        self,
        session_id: int,
        request: Request,
        prompt_ids: list[int],
        picker: Picker,
        text_stream: TextStream,
        *,
        speculator: Speculator | None,
        stop_ids: frozenset[int],
        context: int,
    ) -> None:
        self.id, self.request, self.history, self.picker = session_id, request, prompt_ids, picker
        self.n_prompt, self.n_cached = len(prompt_ids), 0
        self.ending: Ending | None = None
        self.speculator = speculator
        self.served_at = 0  # the last step that computed rows for it, or let it in; the scheduler's turns go by it
        self.priority = request.priority
        params, processor = request.params, request.processor
        # looked up once: asking a protocol whether an object has its methods takes microseconds
        self.listener = processor if isinstance(processor, PassListener) else None
        self._structure = processor if isinstance(processor, StructuralProcessor) else None
        self._constraint = constraint_of(processor)
        self.is_started = False  # whether it ever ran
        self.is_held = False  # nothing of it is computed for now
        self._catches_up = True
        self._stream, self._stop_ids = text_stream, stop_ids
        self._stops = StopStrings(params.stop) if params.stop else None
        self._n_end = min(context, context if params.max_tokens is None else self.n_prompt + params.max_tokens)
        self._submitted_s = perf_counter()
        self._started_s = self._first_token_s = 0.0

    # -- the cache ---------------------------------------------------------------------------------------------

    def start(self, kv: KvSequence) -> None:
        """Begin over a cache that holds the first `kv.length` tokens of the prompt."""
        self.kv, self.n_cached, self.is_started = kv, kv.length, True
        self._started_s = perf_counter()
        if self.picker.processor is not None:
            self.picker.processor.reset()
        if self.speculator is not None:
            self.speculator.begin(self.history, self._structure)

    def check(self) -> None:
        """Hold the invariant. Raises InvalidDecodeState."""
        n_missing = len(self.history) - self.kv.length
        if n_missing != 1 and not (self._catches_up and n_missing > 1):
            raise InvalidDecodeState(
                f"sequence {self.id}: {len(self.history)} tokens but {self.kv.length} cached positions; "
                "this is a bug in Fucina, please report it"
            )

    def settle(self) -> None:
        """Take out of the cache whatever was not committed."""
        n_kept = len(self.history) - 1
        if self.kv.length > n_kept:
            self.kv.truncate(n_kept)

    def go_on(self, kv: KvSequence) -> None:
        """Go on over another cache, which holds the first `kv.length` tokens, after the first one was given away.

        The law lets what it lacks be computed again to the same bits.
        """
        self.kv, self._catches_up = kv, True

    def leave_shared_block(self) -> bool:
        """Give up the positions in a partial block that is shared, to compute them in one of its own; False: none is.

        Writing on would take a copy of the block while it is still in use, for which there may be no room.
        """
        n_whole = self.kv.length // KV_BLOCK
        if n_whole * KV_BLOCK == self.kv.length or not self.kv.pool.is_shared(self.kv.blocks[n_whole]):
            return False
        self.kv.truncate(n_whole * KV_BLOCK)
        self.kv.trim()
        self._catches_up = True
        return True

    @property
    def n_missing(self) -> int:
        """Committed tokens that are not in the cache: 1 when decoding, more while it catches up."""
        return len(self.history) - self.kv.length

    @property
    def n_held(self) -> int:
        """Tokens that are in the cache."""
        return self.kv.length

    # -- committing --------------------------------------------------------------------------------------------

    def suggest(self, max_tokens: int, vocab: int) -> Sequence[int]:
        """Propose what may follow, at most `max_tokens` and one less than may still be given."""
        assert self.speculator is not None
        return self.speculator.suggest(min(max_tokens, self._n_end - len(self.history) - 1), vocab, self._stop_ids)

    def draft_budget(self, n_rows: int) -> int:
        """How many drafts the next step may try, in a pass with `n_rows` rows besides them."""
        return self.speculator.budget(n_rows) if self.speculator is not None else 0

    def commit(
        self, logits: NDArray[np.float32], first_row: int, drafts: Sequence[int], emit: Callable[[TokenEvent], None]
    ) -> int:
        """Choose and commit, row by row, while the drafts are right; give the number of drafts that were.

        logits (rows, vocab) f32: row first_row follows the last committed token, the next ones follow the drafts.
        Raises what the picker, its processor or the text stream raise; committed tokens stay committed.
        """
        self._catches_up = False
        if len(self.history) == self.n_prompt:
            self._first_token_s = perf_counter()
        if drafts:
            return self._verify(logits[first_row : first_row + len(drafts) + 1], drafts, emit)
        self._choose(logits[first_row], emit)
        return 0

    def _verify(self, rows: NDArray[np.float32], drafts: Sequence[int], emit: Callable[[TokenEvent], None]) -> int:
        """Commit while the drafts are right; rows (len(drafts) + 1, vocab) f32. Give the number of those that were."""
        n_before, n_right = len(self.history), 0
        try:
            for row, draft in zip(rows, drafts, strict=False):
                if self._choose(row, emit, draft) != draft:
                    break
                n_right += 1
                if self.ending is not None:
                    break
            else:
                self._choose(rows[-1], emit)
        finally:
            if self.speculator is not None:
                self.speculator.verified(len(drafts), n_right, len(self.history) - n_before)
                self.speculator.show(self.picker.scans, rows[n_right + 1 :], drafts[n_right:])
        return n_right

    def _choose(self, row: NDArray[np.float32], emit: Callable[[TokenEvent], None], draft: int = -1) -> int:
        """Choose and commit a token, see whether it ends the answer, and tell of it in any case."""
        token, logprob, top = self.picker.pick(row, self.history)
        origin: Origin = "model"
        if token == draft and self.speculator is not None:
            origin = "grammar" if self.speculator.tries_forced else "draft"
        self.history.append(token)
        text = ""
        try:
            if token in self._stop_ids:
                self.ending = Ending("stop", token)
                text = self._last_text("")
            else:
                text = self._stream.push(token)
                if self._stops is not None:
                    text, stop = self._stops.push(text)
                    if stop is not None:
                        self.ending = Ending("stop", stop)
                        return token
                if len(self.history) >= self._n_end:
                    self.ending = Ending("length")
                    text = self._last_text(text)
        finally:
            emit(TokenEvent(self.id, token, text, logprob, top, origin))
        return token

    def _last_text(self, text: str) -> str:
        """Add what stream and stop strings still hold back to the last text; a stop string may end in it."""
        rest = self._stream.flush()
        if self._stops is None:
            return text + rest
        released, stop = self._stops.push(rest)
        if stop is not None:
            self.ending = Ending("stop", stop)
        return text + released + self._stops.flush()

    # -- the end -----------------------------------------------------------------------------------------------

    def finish(self, ending: Ending) -> FinishEvent:
        """Tell how it ended. Text is still withheld only where the answer was cut short from outside."""
        text = ""
        if ending.reason in ("cancelled", "error"):
            try:
                text = self._last_text("")
            except Exception:  # the stream is what failed
                text = ""
        n_given = len(self.history) - self.n_prompt
        return FinishEvent(
            request_id=self.id,
            reason=ending.reason,
            usage=Usage(self.n_prompt, n_given, self.n_cached),
            timings=self._timings(n_given),
            seed=self.picker.seed,
            stop=ending.stop,
            text=text,
            error=ending.error,
            speculation=self.speculator.end() if self.speculator is not None and self.is_started else None,
            satisfied=self._is_satisfied(ending),
            mask_costs=self._mask_costs(),
        )

    def _is_satisfied(self, ending: Ending) -> bool | None:
        """Whether the answer is all that its constraint asks for; None without one."""
        if self._constraint is None:
            return None
        if not self.is_started or ending.reason == "error" or isinstance(ending.stop, str):
            return False
        try:
            return self._constraint.is_satisfied(ended=ending.reason == "stop")
        except Exception:  # a constraint that cannot tell vouches for nothing
            return False

    def _mask_costs(self) -> MaskCosts | None:
        costs = self._constraint.mask_costs if self._constraint is not None and self.is_started else None
        return None if costs is None else replace(costs)

    def _timings(self, n_given: int) -> Timings:
        now = perf_counter()
        started = self._started_s or now  # cancelled before it began
        first = self._first_token_s or now
        n_read = self.kv.length if self.is_started and not n_given else self.n_prompt
        return Timings(
            queue_s=started - self._submitted_s,
            prefill_s=first - started,
            decode_s=now - first,
            prefill_tokens=max(n_read - self.n_cached, 0),
            decode_tokens=max(n_given - 1, 0),
        )
