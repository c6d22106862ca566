"""What an answer grows by, in no dialect."""

from __future__ import annotations

from typing import NamedTuple


class TextDelta(NamedTuple):
    """More of what the model says."""

    text: str


class ReasoningDelta(NamedTuple):
    """More of what it thinks before it answers."""

    text: str


class CallStart(NamedTuple):
    """It calls a tool: the answer's call of that number, from 0."""

    call: int
    id: str
    name: str


class CallArguments(NamedTuple):
    """More of a call's arguments, as JSON text."""

    call: int
    text: str


Delta = TextDelta | ReasoningDelta | CallStart | CallArguments
