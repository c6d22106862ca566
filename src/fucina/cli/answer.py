"""An answer on its way out: as text while it is made, as one object, as a line of statistics."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fucina.cli.signals import Interrupt
from fucina.cli.terminal import harmless
from fucina.core.units import format_bytes
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.costs import MaskCosts
from fucina.decoding.speculation.stats import SpeculationStats
from fucina.engine.completion import Completion
from fucina.engine.constraints import UnboundedAnswerWarning
from fucina.engine.events import Event, FinishEvent, Timings
from fucina.engine.structured import incomplete
from fucina.storage.experts.stats import ExpertsLeftOut, ExpertStats

if TYPE_CHECKING:
    from fucina.engine.model import Model


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


def expect_cuts() -> None:
    """Silence the warning of answers that are cut off: `check_whole` raises for them, which says the same.

    What is filtered in a verb ends with it.
    """
    warnings.simplefilter("ignore", UnboundedAnswerWarning)


def check_whole(answer: Completion | FinishEvent, constraint: Constraint | None) -> None:
    """Raise IncompleteAnswer, behind the text that was printed, for a constrained answer that was cut off."""
    if constraint is not None and not answer.satisfied:
        raise incomplete(answer, constraint)


def statistics(finish: FinishEvent, *, sampled: bool) -> list[str]:
    """A line of tokens and speeds, why it ended, and the seed where one mattered; then what came of drafts, if any."""
    usage, timings = finish.usage, finish.timings
    cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
    parts = [
        f"{usage.prompt_tokens} prompt tokens{cached}, {timings.prefill_tok_per_s:.1f} tok/s",
        f"{usage.completion_tokens} tokens, {timings.decode_tok_per_s:.1f} tok/s",
        f"ended by {'length' if finish.reason == 'length' else 'stop'}",
    ]
    if sampled:
        parts.append(f"seed {finish.seed}")
    return [" | ".join(parts), *_speculation_lines(finish.speculation), *_mask_lines(finish.mask_costs)]


def _speculation_lines(stats: SpeculationStats | None) -> list[str]:
    if stats is None or not stats.verify_steps + stats.fallback_steps + stats.off_steps:
        return []
    n_steps = stats.verify_steps + stats.fallback_steps + stats.off_steps
    n_given = stats.fallback_steps + stats.off_steps + stats.accepted + stats.bonus + stats.rejected
    speedup = "" if stats.estimated_speedup is None else f", estimated speed-up {stats.estimated_speedup:.2f}"
    forced = f"forced={stats.forced} " if stats.forced else ""
    line = (
        f"spec: steps={n_steps} (verify {stats.verify_steps}, fallback {stats.fallback_steps}, off {stats.off_steps}) "
        f"committed={n_given} ({n_given / n_steps:.2f} tok/step) drafted={stats.drafted} "
        f"accepted={stats.accepted} ({stats.acceptance:.0%}) {forced}bonus={stats.bonus} rejected={stats.rejected} "
        f"| gate {stats.gate}{speedup}"
    )
    sources = [
        f"{source.name} {source.accepted}/{source.drafted}{' (muted)' if source.is_muted else ''}"
        for source in stats.sources
        if source.drafted or source.is_muted
    ]
    return [line, *(["spec sources: " + ", ".join(sources)] if sources else [])]


def _mask_lines(costs: MaskCosts | None) -> list[str]:
    if costs is None or not costs.masks:
        return []
    each_us = costs.seconds / costs.masks * 1e6
    return [f"constraint: {costs.masks} masks of {each_us:.0f} us, {costs.hidden:.0%} of it hidden behind passes"]


def expert_lines(model: Model) -> list[str]:
    """A line on the experts that were read, if any are, and one on those that were left out."""
    read, left_out = model.experts, model.experts_left_out
    return [
        *([] if read is None else _read_lines(read)),
        *([] if left_out is None else [_left_out_line(left_out)]),
    ]


def _read_lines(stats: ExpertStats) -> list[str]:
    lines = [
        f"experts: {stats.slots} of {stats.experts} in {format_bytes(stats.memory_bytes)}, {stats.pinned} pinned | "
        f"{stats.hit_rate:.1%} there (pinned {stats.pinned_hits}, cached {stats.cache_hits}), {stats.misses} read | "
        f"{format_bytes(stats.bytes_read)} in {stats.busy_s:.1f} s, {stats.overlap:.0%} of it while computing"
    ]
    if stats.foreseeable:
        lines.append(
            f"pilot: {stats.pilot_recall:.1%} foreseen of {stats.foreseeable} | {stats.hinted} read ahead, "
            f"{stats.pilot_usefulness:.0%} of them needed, {stats.hints_dropped} dropped"
        )
    return lines


def _left_out_line(stats: ExpertsLeftOut) -> str:
    n_chosen = stats.used + stats.left_out
    return (
        f"LOSSY: --moe-expert-top-p {stats.top_p:g} left out {stats.left_out} of {n_chosen} uses of experts "
        f"({stats.share:.1%})"
    )


def experts_object(stats: ExpertStats | None) -> dict[str, Any] | None:
    """What reading experts did, ready for JSON."""
    if stats is None:
        return None
    shares = ("hit_rate", "overlap", "pilot_recall", "pilot_usefulness")
    return asdict(stats) | {name: getattr(stats, name) for name in shares}


def left_out_object(stats: ExpertsLeftOut | None) -> dict[str, Any] | None:
    """What leaving out experts did, ready for JSON."""
    if stats is None:
        return None
    return {"top_p": stats.top_p, "used": stats.used, "left_out": stats.left_out, "share": stats.share}


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
        "satisfied": completion.satisfied,
        "logprobs": None
        if logprobs is None
        else [{"id": entry.token, "logprob": entry.logprob, "top": entry.top} for entry in logprobs],
        "usage": asdict(completion.usage),
        "timings": _timings(completion.timings),
        "seed": completion.seed,
        "speculation": None if completion.speculation is None else _speculation(completion.speculation),
    }


def _timings(timings: Timings) -> dict[str, float]:
    rates = {"prefill_tok_per_s": timings.prefill_tok_per_s, "decode_tok_per_s": timings.decode_tok_per_s}
    return {**asdict(timings), **rates}


def _speculation(stats: SpeculationStats) -> dict[str, Any]:
    return {**asdict(stats), "sources": [source._asdict() for source in stats.sources]}
