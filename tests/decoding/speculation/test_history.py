"""What ended sequences leave behind, against a search through them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.speculation.history import SEPARATOR, History


def longest(context: Sequence[int], sequences: Sequence[Sequence[int]]) -> int:
    """The longest end of the context that lies within one of the sequences."""
    for n in range(len(context), 0, -1):
        end = list(context[-n:])
        if any(end == list(s[i : i + n]) for s in sequences for i in range(len(s) - n + 1)):
            return n
    return 0


SEQUENCES = st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=14)


@given(SEQUENCES, st.lists(st.integers(0, 3), min_size=1, max_size=10))
def test_every_sequence_is_found_and_no_match_crosses_two(sequences: list[list[int]], context: list[int]) -> None:
    history = History()
    for sequence in sequences:
        history.add(sequence)
    cursors = [index.cursor() for index in history.indexes()]
    for cursor in cursors:
        cursor.advance(context)
    assert max([0, *(cursor.match_length for cursor in cursors)]) == longest(context, sequences)
    for cursor in cursors:
        draft = cursor.draft(100)
        begin = draft[: draft.index(SEPARATOR)] if SEPARATOR in draft else draft
        if cursor.match_length:
            end = context[-cursor.match_length :]
            assert longest([*end, *begin], sequences) == len(end) + len(begin)


@given(SEQUENCES)
def test_indexes_are_few_and_of_falling_sizes(sequences: list[list[int]]) -> None:
    history = History()
    for sequence in sequences:
        history.add(sequence)
    sizes = [index.n_tokens for index in history.indexes()]
    assert sizes == sorted(set(sizes))  # the latest first, and each older one longer
    assert sum(sizes) == sum(len(sequence) + 1 for sequence in sequences if sequence)


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=20))
def test_it_keeps_the_latest_and_never_more_than_it_may(sequences: list[list[int]]) -> None:
    history = History(max_tokens=40)
    for sequence in sequences:
        history.add(sequence)
        assert sum(index.n_tokens for index in history.indexes()) <= 41
        if sequence:
            cursor = history.indexes()[0].cursor()
            cursor.advance(sequence)
            assert cursor.match_length == len(sequence)


def test_of_a_sequence_that_is_too_long_the_end_is_kept() -> None:
    history = History(max_tokens=3)
    history.add([1, 2, 3, 4, 5])
    (index,) = history.indexes()
    cursor = index.cursor()
    cursor.advance([1, 2, 3, 4, 5])
    assert (cursor.match_length, index.n_tokens) == (3, 4)


def test_nothing_leaves_nothing_behind() -> None:
    history = History()
    history.add([])
    assert history.indexes() == []
