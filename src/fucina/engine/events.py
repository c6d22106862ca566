"""What comes out of the engine: one event per token, one at the end of each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fucina.decoding.grammar.costs import MaskCosts
from fucina.decoding.logprobs import TopLogprobs
from fucina.decoding.speculation.stats import SpeculationStats

#: stop: an end token, a stop token or a stop string. length: max_tokens, or the context is full.
FinishReason = Literal["stop", "length", "cancelled", "error"]

#: model: computed by a step of its own. draft, grammar: proposed by speculation, or by a constraint that allowed
#: nothing else, and found right beside others in one pass. It tells what made an answer fast; the token is the same.
Origin = Literal["model", "draft", "grammar"]


class TokenEvent(NamedTuple):
    """A token was committed.

    `text` is what became certain with it; it may be empty, and the text of all events together is the answer.
    `logprob` and `top` are natural log-probabilities of the model's own distribution, where the request asked for them.
    """

    request_id: int
    token: int
    text: str
    logprob: float | None = None
    top: TopLogprobs = ()
    origin: Origin = "model"


#: Why a turn of a conversation had to read again what had been said. edited: the caller took turns back. rewritten: the
#: chat template writes earlier turns in another way. evicted: there was no memory to keep it.
CacheLoss = Literal["edited", "rewritten", "evicted"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request: `cached_tokens` of the prompt's were in the cache already; completion tokens count a stop
    token too, so they are exactly the token events. `cache_loss` tells why a conversation's turn reused less than all
    that was said before; None where it did not, and for what is no conversation."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_loss: CacheLoss | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of a request: waiting, from the first pass to the first token, and from there to the last token."""

    queue_s: float
    prefill_s: float
    decode_s: float
    prefill_tokens: int
    decode_tokens: int

    @property
    def prefill_tok_per_s(self) -> float:
        """Prompt tokens computed (cached ones not counted) per second; 0 without any."""
        return self.prefill_tokens / self.prefill_s if self.prefill_s > 0.0 else 0.0

    @property
    def decode_tok_per_s(self) -> float:
        """Tokens after the first per second; 0 without any."""
        return self.decode_tokens / self.decode_s if self.decode_s > 0.0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEvent:
    """A request ended; nothing follows. `text` is what was withheld when it was cut short.

    `speculation` tells what came of drafts, if the request could have any. `stop` is the stop string or the token that
    ended it; `error` the failure behind reason 'error'; `seed` the seed
    that was used, with which the same request gives the same tokens. `satisfied`: whether the answer is all that its
    constraint asks for (None: it has none); one cut by a stop string is not. `mask_costs` tells what that took.
    """

    request_id: int
    reason: FinishReason
    usage: Usage
    timings: Timings
    seed: int
    stop: str | int | None = None
    text: str = ""
    error: Exception | None = None
    speculation: SpeculationStats | None = None
    satisfied: bool | None = None
    mask_costs: MaskCosts | None = None


Event = TokenEvent | FinishEvent
