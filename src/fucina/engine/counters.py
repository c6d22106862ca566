"""Counters of an engine: what it did since it began, and what its memory is used for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class KvUse(NamedTuple):
    """Blocks of keys and values, 64 tokens each: all there is room for; free ones, which can be taken at once, those
    included that are kept for requests to come and nobody uses now; and kept ones, in use or not."""

    blocks: int
    free_blocks: int
    kept_blocks: int


@dataclass(slots=True)
class Counters:
    """Plain numbers that only grow. `failed_passes` are forward passes that raised; `kv_waits` counts the times that a
    sequence sat out a pass for want of KV blocks, `preemptions` those that one gave its blocks away to others. The
    `masks` of constraints took `mask_s` seconds, of which steps waited `mask_wait_s`; they are counted when an answer
    ends. Only `kv` tells of the moment at which they were asked for."""

    requests: int = 0
    passes: int = 0
    failed_passes: int = 0
    rows: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_failures: int = 0
    kv_waits: int = 0
    preemptions: int = 0
    masks: int = 0
    mask_s: float = 0.0
    mask_wait_s: float = 0.0
    kv: KvUse = field(default_factory=lambda: KvUse(0, 0, 0))
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "cancelled": 0, "error": 0})
