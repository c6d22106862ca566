"""Token counts as OpenAI's interface tells them, with what speculation and the cache did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fucina.engine.events import FinishEvent
from fucina.server.wire.fields import WireReply


class PromptDetails(WireReply):
    """Of the prompt's tokens, those that were in the cache."""

    cached_tokens: int
    audio_tokens: int = 0


class CompletionDetails(WireReply):
    """Of the answer's tokens, those that were thoughts; drafts found right and wrong."""

    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    audio_tokens: int = 0


class SpeculationUsage(WireReply):
    """What came of drafts."""

    verify_steps: int
    drafted: int
    accepted: int
    forced: int
    bonus: int
    rejected: int
    gate: str | None
    estimated_speedup: float | None


class Timing(WireReply):
    """Milliseconds of an answer, and tokens per second."""

    queue_ms: float
    prefill_ms: float
    decode_ms: float
    prefill_tok_per_s: float
    decode_tok_per_s: float


class UsageReply(WireReply):
    """Tokens that an answer took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails
    speculation: SpeculationUsage | None = None
    timings: Timing | None = None


def usage_of(ends: Sequence[FinishEvent], n_reasoning: int = 0, *, n_each: int | None = None) -> dict[str, Any]:
    """The counts of an answer; of its choices `n_each` in a row share a prompt, or all of them."""
    firsts = ends[:: n_each or len(ends)]
    n_prompt = sum(end.usage.prompt_tokens for end in firsts)
    n_given = sum(end.usage.completion_tokens for end in ends)
    stats = [end.speculation for end in ends if end.speculation is not None]
    n_right, n_drafted = sum(one.accepted for one in stats), sum(one.drafted for one in stats)
    usage: dict[str, Any] = {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_given,
        "total_tokens": n_prompt + n_given,
        "prompt_tokens_details": {"cached_tokens": sum(end.usage.cached_tokens for end in firsts), "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": n_reasoning,
            "accepted_prediction_tokens": n_right,
            "rejected_prediction_tokens": n_drafted - n_right,
            "audio_tokens": 0,
        },
        "timings": _timings(ends[0]),
    }
    if stats:
        usage["speculation"] = {
            "verify_steps": sum(one.verify_steps for one in stats),
            "drafted": n_drafted,
            "accepted": n_right,
            "forced": sum(one.forced for one in stats),
            "bonus": sum(one.bonus for one in stats),
            "rejected": sum(one.rejected for one in stats),
            "gate": stats[0].gate,
            "estimated_speedup": stats[0].estimated_speedup,
        }
    return usage


def _timings(end: FinishEvent) -> dict[str, float]:
    timings = end.timings
    return {
        "queue_ms": round(timings.queue_s * 1e3, 3),
        "prefill_ms": round(timings.prefill_s * 1e3, 3),
        "decode_ms": round(timings.decode_s * 1e3, 3),
        "prefill_tok_per_s": round(timings.prefill_tok_per_s, 2),
        "decode_tok_per_s": round(timings.decode_tok_per_s, 2),
    }
