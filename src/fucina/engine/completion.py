"""An answer as a whole: what a stream of events amounts to."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from fucina.decoding.grammar.costs import MaskCosts
from fucina.decoding.logprobs import TopLogprobs
from fucina.decoding.speculation.stats import SpeculationStats
from fucina.engine.events import Event, FinishEvent, FinishReason, Timings, TokenEvent, Usage


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The natural log-probability of a given token, and of the most probable ones in its place."""

    token: int
    logprob: float
    top: TopLogprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer.

    `ids` are all tokens the model gave, a stop token included, so there are `usage.completion_tokens` of them; `text`
    is what they say up to the stop. `stop` is the string or token that ended it. `logprobs` has one entry per token if
    they were asked for. `seed` gives the same tokens again. `error` is set with finish_reason 'error' only.
    `speculation` tells what came of drafts, if there could be any. `satisfied`: whether the answer is all that its
    constraint asks for (None: it has none); one cut by a stop string is not. `mask_costs` tells what that took.
    """

    prompt_ids: list[int]
    ids: list[int]
    text: str
    finish_reason: FinishReason
    stop: str | int | None
    logprobs: list[TokenLogprob] | None
    usage: Usage
    timings: Timings
    seed: int
    error: Exception | None = None
    speculation: SpeculationStats | None = None
    satisfied: bool | None = None
    mask_costs: MaskCosts | None = None


def collect(prompt_ids: Sequence[int], events: Iterable[Event]) -> Completion:
    """Read a request's events to the end and put them together."""
    ids: list[int] = []
    texts: list[str] = []
    logprobs: list[TokenLogprob] = []
    finish: FinishEvent | None = None
    for event in events:
        texts.append(event.text)
        if isinstance(event, TokenEvent):
            ids.append(event.token)
            if event.logprob is not None:
                logprobs.append(TokenLogprob(event.token, event.logprob, event.top))
        else:
            finish = event
    assert finish is not None, "every request ends with a FinishEvent"
    return Completion(
        prompt_ids=list(prompt_ids),
        ids=ids,
        text="".join(texts),
        finish_reason=finish.reason,
        stop=finish.stop,
        logprobs=logprobs or None,
        usage=finish.usage,
        timings=finish.timings,
        seed=finish.seed,
        error=finish.error,
        speculation=finish.speculation,
        satisfied=finish.satisfied,
        mask_costs=finish.mask_costs,
    )


def raise_error(completion: Completion) -> Completion:
    """Give the completion back, unless it ended in an error: then raise that."""
    if completion.error is not None:
        raise completion.error
    return completion


def raising(events: Generator[Event, None, None]) -> Generator[Event, None, None]:
    """Pass a request's events on, but raise the error where it ended in one; closing this closes `events`."""
    with closing(events):
        for event in events:
            if isinstance(event, FinishEvent) and event.error is not None:
                raise event.error
            yield event
