"""An answer on its way out: as text while it is made, as one object, as a line of statistics."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from dataclasses import asdict
from typing import Any

from fucina.cli.signals import Interrupt
from fucina.cli.terminal import harmless
from fucina.engine.completion import Completion
from fucina.engine.events import Event, FinishEvent, Timings


def messages(system: str | None, text: str) -> list[dict[str, str]]:
    """A conversation's first turn."""
    opening = [] if system is None else [{"role": "system", "content": system}]
    return [*opening, {"role": "user", "content": text}]


def speak(events: Iterator[Event], interrupt: Interrupt | None = None) -> FinishEvent | None:
    """Write an answer to stdout token by token, then a line end. None if it was interrupted before its end."""
    finish: FinishEvent | None = None
    for event in events:
        sys.stdout.write(harmless(event.text, sys.stdout))
        sys.stdout.flush()
        if isinstance(event, FinishEvent):
            finish = event
        elif interrupt:
            break
    if isinstance(events, Generator):
        events.close()
    print(flush=True)
    return finish


def statistics(finish: FinishEvent, *, sampled: bool) -> str:
    """One line: tokens and speeds of prompt and answer, why it ended, and the seed where one mattered."""
    usage, timings = finish.usage, finish.timings
    cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
    parts = [
        f"{usage.prompt_tokens} prompt tokens{cached}, {timings.prefill_tok_per_s:.1f} tok/s",
        f"{usage.completion_tokens} tokens, {timings.decode_tok_per_s:.1f} tok/s",
        f"ended by {'length' if finish.reason == 'length' else 'stop'}",
    ]
    if sampled:
        parts.append(f"seed {finish.seed}")
    return " | ".join(parts)


def as_object(model: str, completion: Completion) -> dict[str, Any]:
    """A completion ready for JSON; floats keep every bit, since JSON writes their shortest exact form."""
    logprobs = completion.logprobs
    return {
        "model": model,
        "prompt_ids": completion.prompt_ids,
        "ids": completion.ids,
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "stop": completion.stop,
        "logprobs": None
        if logprobs is None
        else [{"id": entry.token, "logprob": entry.logprob, "top": entry.top} for entry in logprobs],
        "usage": asdict(completion.usage),
        "timings": _timings(completion.timings),
        "seed": completion.seed,
    }


def _timings(timings: Timings) -> dict[str, float]:
    rates = {"prefill_tok_per_s": timings.prefill_tok_per_s, "decode_tok_per_s": timings.decode_tok_per_s}
    return {**asdict(timings), **rates}
