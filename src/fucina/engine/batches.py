"""What batches of answers are checked for before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fucina.decoding.processors.contract import LogitProcessor
from fucina.errors import BatchLengthMismatch, EmptyBatch, SharedBatchProcessor

T = TypeVar("T")


def checked_size(option: str, given: Sequence[object]) -> int:
    """How many answers are asked for. Raises EmptyBatch."""
    if not given:
        raise EmptyBatch(option, got="none of them", expected="at least one")
    return len(given)


def one_each(option: str, given: T | Sequence[T | None] | None, kind: type[T], n: int) -> Sequence[T | None]:
    """One for each of n answers: the one for all, or the sequence as it came. Raises BatchLengthMismatch."""
    if given is None or isinstance(given, kind):
        return [given] * n
    if not isinstance(given, Sequence) or len(given) != n:
        got = f"{len(given)} of them" if isinstance(given, Sequence) else given
        raise BatchLengthMismatch(option, got=got, expected=f"one, or {n}, one for each answer")
    return given


def own_processors(given: Sequence[LogitProcessor | None] | None, n: int) -> Sequence[LogitProcessor | None]:
    """A processor, or None, for each of n answers. Raises BatchLengthMismatch and SharedBatchProcessor."""
    if given is None:
        return [None] * n
    if not isinstance(given, Sequence) or len(given) != n:
        got = f"{len(given)} of them" if isinstance(given, Sequence) else given
        raise BatchLengthMismatch("processors", got=got, expected=f"{n}, one or None for each answer")
    there = [processor for processor in given if processor is not None]
    if len({id(processor) for processor in there}) < len(there):
        raise SharedBatchProcessor("processors", got="one of them twice", expected="another for each answer")
    return given
