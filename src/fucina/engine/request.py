"""What a caller submits: tokens in, how to choose, and whom it may share computed tokens with."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from fucina.decoding.params import SamplingParams
from fucina.decoding.processors.contract import LogitProcessor
from fucina.decoding.speculation.contract import DraftSource
from fucina.engine.speculator import Speculator
from fucina.errors import ConfigError, ContextFull


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One answer to compute. `processor` and `speculator` serve no other request at the same time.

    `draft_source` is for a source of one's own, without a gate: every step tries what it proposes. Requests share the
    keys and values of tokens they begin with; those of different `salt` do not, so that none can tell from the time
    it takes what another has said. `speculator` should be one for the same salt.

    A request of higher `priority` is let in, computed and kept in memory before those of lower ones, which may have to
    wait as long as it needs everything; equal ones share fairly. `deadline_s` seconds after it was submitted a request
    that has not ended does so with reason 'error' and DeadlineExceeded; what was given until then stays. Raises
    ConfigError for a priority that is no whole number and for a deadline that is no positive one.
    """

    prompt_ids: Sequence[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    processor: LogitProcessor | None = None
    draft_source: DraftSource | None = None
    speculator: Speculator | None = None
    salt: str = ""
    priority: int = 0
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise ConfigError("priority", got=self.priority, expected="a whole number; higher ones come first")
        seconds = self.deadline_s
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.0 < seconds < inf
        ):
            raise ConfigError("deadline_s", got=seconds, expected="seconds from now, more than 0")


def checked_ids(ids: Iterable[int], *, vocab: int, context: int, n_more: int = 1) -> list[int]:
    """Check the tokens of a prompt, of which `n_more` more must fit. Raises ConfigError and ContextFull."""
    if isinstance(ids, str | bytes):
        raise ConfigError("prompt ids", got=ids, expected="token ids; encode text with the tokenizer first")
    try:
        tokens = list(map(operator.index, ids))
    except TypeError:
        raise ConfigError("prompt ids", got=ids, expected="whole numbers") from None
    if not tokens:
        raise ConfigError("prompt ids", got=tokens, expected="at least one token")
    if min(tokens) < 0 or max(tokens) >= vocab:
        bad = next(token for token in tokens if not 0 <= token < vocab)
        raise ConfigError("prompt ids", got=bad, expected=f"token ids from 0 to {vocab - 1}")
    if len(tokens) + n_more > context:
        room = (
            f"leaves no room for an answer in the context of {context}" if n_more else f"exceeds the context {context}"
        )
        raise ContextFull(f"a prompt of {len(tokens)} tokens {room}: shorten it, or load with a larger context")
    return tokens
