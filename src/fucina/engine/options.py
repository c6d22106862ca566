"""What may be asked of an answer besides how its tokens are chosen: the options that several methods share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.processors.contract import LogitProcessor

#: A prompt: text, encoded with the model's begin token and its markers; or token ids, taken as they are.
Prompt = str | Sequence[int]


class TurnOptions(TypedDict, total=False):
    """Options of an answer. Each may be left out.

    constraint   what the answer must look like; its `satisfied` tells whether it came to a whole one.
    processor    changes logits before a token is chosen; it serves no other request at the same time.
    priority     a whole number; requests of a higher one are let in, computed and kept in memory before others. 0.
    deadline_s   seconds after which an answer that has not ended does so with DeadlineExceeded. None: never.
    """

    constraint: Constraint | None
    processor: LogitProcessor | None
    priority: int
    deadline_s: float | None


class AnswerOptions(TurnOptions, total=False):
    """Options of an answer that belongs to no conversation. Each may be left out.

    references   texts, or tokens, that the answer may quote: drafts are taken from them. None.
    speculate    False: no drafts, which changes speed only. True.
    cache_salt   requests share keys and values, and what drafts are made from; those of different salts do not. "".
    """

    references: Sequence[Prompt]
    speculate: bool
    cache_salt: str


def refuse_unknown(names: Iterable[str], options: type[TurnOptions]) -> None:
    """Raise TypeError for a name that is none of these options, as Python does for other arguments."""
    unknown = next((name for name in names if name not in options.__annotations__), None)
    if unknown is not None:
        known = ", ".join(sorted(options.__annotations__))
        raise TypeError(f"there is no option '{unknown}'; there are {known}")
