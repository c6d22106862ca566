"""The passes of vs_llama_cpp.py, grouped by the state of the cache that they start from."""

from __future__ import annotations

import random
from dataclasses import dataclass

from work import Rows

PREFILL_ROWS = (1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 33, 64, 127, 128, 129, 512)
DRAFTS = range(1, 17)
SEQUENCES = (1, 2, 4, 8, 16)
BEHIND = 128
LONG = (8192, 32768)

_RNG = random.Random(0)
#: Ids that every vocabulary has; sequence s begins at s * BEHIND.
IDS = [_RNG.randrange(100, 40_000) for _ in range(max(SEQUENCES) * BEHIND + 512)]


@dataclass(frozen=True, slots=True)
class Group:
    """Passes that one state of the cache serves: `prompts` computed, then sequence 0 stretched to so many positions.

    `repeats`: how often this group is repeated for every repeat that is asked for.
    """

    cases: dict[str, list[Rows]]
    prompts: list[list[Rows]]
    context: int = 1024
    sequences: int = 1
    stretch: int = 0
    repeats: int = 1


def decode(sequence: int = 0, start: int = BEHIND, drafts: int = 0) -> Rows:
    """One row, and its drafts, behind `start` positions."""
    first = BEHIND * (sequence + 1)
    return Rows(sequence, IDS[first : first + 1 + drafts], start, 1 + drafts)


def prompt(sequence: int = 0, rows: int = BEHIND) -> list[Rows]:
    """The pass that begins a sequence."""
    return [Rows(sequence, IDS[BEHIND * sequence :][:rows], 0, 1)]


def _long(start: int) -> Group:
    cases = {f"behind {start}": [decode(start=start)]}
    return Group(cases, [prompt(rows=512)], context=start + 512, stretch=start)


NAMES: dict[str, list[Group]] = {
    "decode": [Group({"decode": [decode()]}, [prompt()], repeats=3)],
    "prefill": [Group({f"prefill {rows}": prompt(rows=rows) for rows in PREFILL_ROWS}, [])],
    "batch": [
        Group(
            {f"batch {n}": [decode(s) for s in range(n)] for n in SEQUENCES},
            [prompt(s) for s in range(max(SEQUENCES))],
            context=256,
            sequences=max(SEQUENCES),
        )
    ],
    "verify": [Group({f"verify {k}": [decode(drafts=k)] for k in (0, *DRAFTS)}, [prompt()])],
    "long": [_long(start) for start in LONG],
}
