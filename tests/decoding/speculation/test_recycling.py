"""The recycled candidates, against rows worked out by hand and against a plain list of lists."""

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.speculation.recycling import Recycling

VOCAB = 12
HOSTILE = [-1, -(2**40), VOCAB, 2**32 - 1, 2**32, 2**64]


def test_the_likeliest_tokens_are_followed() -> None:
    recycling = Recycling(32)
    recycling.update(3, [7, 9])
    recycling.update(7, [5])
    assert recycling.chain(3, 4) == [7, 5]  # after 5 nothing is known
    assert recycling.chain(3, 1) == [7]
    assert recycling.chain(3, 0) == []
    assert recycling.chain(9, 4) == []


def test_a_cycle_is_followed_until_the_draft_is_full() -> None:
    recycling = Recycling(VOCAB)
    recycling.observe(None, [0, VOCAB - 1, 0])
    assert recycling.chain(0, 5) == [11, 0, 11, 0, 11]


@pytest.mark.parametrize(
    ("before", "committed", "after"),
    [
        # row of token 1 before, what is committed, row of token 1 after
        ([], [1, 5], [5]),
        ([5], [1, 5], [5]),
        ([5, 6, 7], [1, 5], [5, 6, 7]),
        ([5, 6, 7], [1, 6], [6, 5, 7]),
        ([5, 6, 7], [1, 7], [7, 5, 6]),
        ([5, 6, 7], [1, 0], [0, 5, 6, 7]),
        ([2, 3, 4, 5, 6, 7, 8, 9], [1, 9], [9, 2, 3, 4, 5, 6, 7, 8]),
        ([2, 3, 4, 5, 6, 7, 8, 9], [1, 0], [0, 2, 3, 4, 5, 6, 7, 8]),
        ([5], [1, 1, 1], [1, 5]),
        ([5], [1, 6, 1, 7], [7, 6, 5]),
        ([5], [6, 1], [5]),
        ([5], [1], [5]),
        ([5], [], [5]),
    ],
)
def test_a_committed_token_moves_to_the_front(before: list[int], committed: list[int], after: list[int]) -> None:
    recycling = Recycling(VOCAB)
    recycling.update(1, before)
    recycling.observe(None, committed)
    assert recycling.candidates(1) == after


def test_the_token_before_the_first_is_the_callers_to_say() -> None:
    recycling = Recycling(VOCAB)
    recycling.observe(None, [4])
    recycling.observe(9, [5])  # another sequence, in between
    recycling.observe(4, [6])
    assert (recycling.candidates(4), recycling.candidates(9), recycling.candidates(5)) == ([6], [5], [])


def test_an_update_replaces_the_whole_row() -> None:
    recycling = Recycling(VOCAB)
    recycling.update(0, [1, 2, 3, 4, 5, 6, 7, 8])
    recycling.update(0, [9, 0])
    assert recycling.candidates(0) == [9, 0]
    recycling.update(0, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2])
    assert recycling.candidates(0) == [11, 10, 9, 8, 7, 6, 5, 4]
    recycling.update(0, [])
    assert recycling.candidates(0) == []


@pytest.mark.parametrize("hostile", HOSTILE)
def test_impossible_ids_change_nothing(hostile: int) -> None:
    recycling = Recycling(VOCAB)
    recycling.update(1, [2])
    recycling.update(hostile, [3])
    recycling.observe(1, [hostile, 4])
    recycling.observe(hostile, [4, hostile])
    recycling.update(5, [hostile, 6, hostile, 7])
    assert [recycling.candidates(token) for token in range(6)] == [[], [2], [], [], [], [6, 7]]
    assert (recycling.candidates(hostile), recycling.chain(hostile, 4)) == ([], [])


class NaiveRecycling:
    """The definition, with a list for every token."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = [[] for _ in range(VOCAB)]

    def update(self, token: int, ids: list[int]) -> None:
        if token in range(VOCAB):
            self.rows[token] = [id_ for id_ in ids if id_ in range(VOCAB)][:8]

    def observe(self, previous: int | None, committed: list[int]) -> None:
        stream = [*([] if previous is None else [previous]), *committed]
        for a, b in pairwise(stream):
            if a in range(VOCAB) and b in range(VOCAB):
                self.rows[a] = [b, *(id_ for id_ in self.rows[a] if id_ != b)][:8]


token_ids = st.one_of(st.integers(0, VOCAB - 1), st.integers(0, 3), st.sampled_from(HOSTILE))
events = st.one_of(
    st.tuples(st.just("update"), token_ids, st.lists(token_ids, unique=True, max_size=10)),
    st.tuples(st.just("observe"), st.none() | token_ids, st.lists(token_ids, max_size=20)),
)


@given(st.lists(events, max_size=30))
def test_every_row_equals_the_naive_one(history: list[tuple[str, int, list[int]]]) -> None:
    recycling, naive = Recycling(VOCAB), NaiveRecycling()
    for name, token, ids in history:
        getattr(recycling, name)(token, ids)
        getattr(naive, name)(token, ids)
        assert [recycling.candidates(row) for row in range(VOCAB)] == naive.rows
    for start in range(VOCAB):
        chain = recycling.chain(start, 9)
        for before, token in pairwise([start, *chain]):
            assert naive.rows[before][0] == token
        assert len(chain) == 9 or not naive.rows[[start, *chain][-1]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm")
def test_a_matrix_that_is_not_written_takes_no_memory() -> None:
    def resident_pages() -> int:
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1])

    before = resident_pages()
    recycling = Recycling(4_000_000)  # 128 MB
    assert recycling.chain(3, 4) == []
    assert (resident_pages() - before) * 4096 < 16_000_000


def test_it_tells_how_often_the_front_was_right() -> None:
    recycling = Recycling(VOCAB)
    assert recycling.observe(None, [1, 2, 1, 2]) == (1, 1)  # 1-2 and 2-1 are new, 1-2 is known
    assert recycling.observe(2, [3]) == (0, 1)  # 2-1 was known
    assert recycling.observe(2, [1, 2, 3]) == (1, 3)  # 2-1 was not in front, 1-2 was, 2-3 was no longer
    assert recycling.observe(None, [7]) == (0, 0)
