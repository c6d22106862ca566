"""The suffix automaton, native and plain, against a search through the whole stream after every append."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fucina.core.nativelib import Native, open_native
from fucina.decoding.speculation.reference_suffix_automaton import MAX_TOKENS, ReferenceAutomaton
from fucina.decoding.speculation.suffix_automaton import Cursor, SuffixAutomaton, open_automaton
from fucina.errors import IndexDegraded, IndexFrozen, SpeculationError, StreamTooLong, TokenOutOfRange

NATIVE = open_native()
ALL = 1 << 40
HIGHEST = (1 << 32) - 1


def new_index(kind: str, max_tokens: int = MAX_TOKENS) -> SuffixAutomaton:
    if kind == "reference":
        return SuffixAutomaton(max_tokens, ReferenceAutomaton(max_tokens))
    if not isinstance(NATIVE, Native):
        pytest.skip(NATIVE.reason)
    return SuffixAutomaton(max_tokens, NATIVE.module.Automaton(max_tokens))


def step(index: SuffixAutomaton, tokens: Sequence[int], max_tokens: int) -> tuple[int, list[int]]:
    index.append(tokens)
    return index.match_length, index.draft(max_tokens)


KINDS = ["reference", "native"] if isinstance(NATIVE, Native) else ["reference"]


@pytest.fixture(params=["reference", "native"])
def kind(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    new_index(name)
    return name


class Search:
    """For every position of a text: how long a suffix of the stream seen so far ends there."""

    def __init__(self, text: Sequence[int]) -> None:
        self.text = np.array(text, np.int64)
        self.lengths = np.zeros(len(text), np.int64)

    def see(self, token: int) -> None:
        before = np.concatenate([[0], self.lengths[:-1]])
        self.lengths = np.where(self.text == token, before + 1, 0)

    def longest(self, end: int) -> int:
        """The longest suffix that ends before position `end`."""
        return int(self.lengths[:end].max(initial=0))


def check_stream(indices: Sequence[SuffixAutomaton], tokens: Sequence[int]) -> None:
    """Append one by one; after each, every index must say what the search says, and all must say the same."""
    search = Search(tokens)
    last_ends: dict[tuple[int, ...], int] = {}
    for end, token in enumerate(tokens):
        search.see(token)
        length = search.longest(end)
        drafts = []
        for index in indices:
            index.append([token])
            drafts.append(index.draft(ALL))
            assert index.match_length == length
            assert index.n_tokens == end + 1
            assert index.last_token == token
            assert index.n_states <= 2 * index.n_tokens + 1
            assert index.n_transitions <= 3 * index.n_tokens
            assert index.draft(3) == drafts[-1][:3]
            assert index.draft(0) == []
        assert all(draft == drafts[0] for draft in drafts)
        assert len({(index.n_states, index.n_transitions) for index in indices}) == 1
        # a draft starts after an earlier end of the match
        sampled = end - len(drafts[0])
        assert drafts[0] == list(tokens[sampled + 1 : end + 1])
        if length == 0:
            assert drafts[0] == []
            continue
        assert drafts[0] != []
        assert search.lengths[sampled] >= length
        # and no earlier than where the same match was made the last time
        match = tuple(tokens[end + 1 - length : end + 1])
        assert sampled >= last_ends.get(match, 0)
        last_ends[match] = end


def morphic(rules: dict[int, list[int]], n_tokens: int) -> list[int]:
    """The fixed point of a substitution, from 0."""
    word = [0]
    while len(word) < n_tokens:
        word = [out for token in word for out in rules[token]]
    return word[:n_tokens]


def de_bruijn(alphabet: int, length: int) -> list[int]:
    """A word with all words of a length in it, greedily: the greatest token that makes a new one."""
    word = [0] * length
    seen = {tuple(word)}
    while True:
        for token in reversed(range(alphabet)):
            window = (*word[len(word) - length + 1 :], token)
            if window not in seen:
                seen.add(window)
                word.append(token)
                break
        else:
            return word


ADVERSARIAL = {
    "one token": [7] * 200,
    "two in turn": [HIGHEST, 0] * 100,
    "three in turn": [0, 1, 2] * 70,
    "one token, then another": [0] * 100 + [1] * 100 + [0] * 60,
    "most states": [0] + [1] * 200,
    "most transitions": [0] + [1] * 200 + [2],
    "Fibonacci": morphic({0: [0, 1], 1: [0]}, 300),
    "Thue-Morse": morphic({0: [0, 1], 1: [1, 0]}, 300),
    "period doubling": morphic({0: [0, 1], 1: [0, 0]}, 300),
    "de Bruijn 2": de_bruijn(2, 7) * 2,
    "de Bruijn 5": de_bruijn(5, 3) * 2,
    "all different": list(range(150)),
    "twice, with one error": [*range(60), *range(30), 99, *range(31, 60), *range(60)],
    "a growing period": [token for n in range(20) for token in range(n)],
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_adversarial_streams(name: str) -> None:
    check_stream([new_index(kind) for kind in KINDS], ADVERSARIAL[name])


@given(st.sampled_from([2, 5, 31]).flatmap(lambda n: st.lists(st.integers(0, n - 1), max_size=150)))
@settings(max_examples=80)
def test_any_stream(tokens: list[int]) -> None:
    check_stream([new_index(kind) for kind in KINDS], tokens)


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=25),
)
@settings(max_examples=50)
def test_any_stream_of_repeated_phrases(phrases: list[list[int]], order: list[int]) -> None:
    check_stream(
        [new_index(kind) for kind in KINDS], [token for i in order for token in phrases[i % len(phrases)]][:200]
    )


@pytest.mark.parametrize("alphabet", [2, 31, 5000])
def test_native_and_plain_agree_on_long_streams(alphabet: int) -> None:
    source = random.Random(alphabet)
    tokens = [source.randrange(alphabet) for _ in range(6000)]
    tokens += tokens[1000:3000]
    answers = []
    for kind in KINDS:
        index = new_index(kind)
        answers.append([step(index, tokens[i : i + 7], 5) for i in range(0, len(tokens), 7)])
        answers[-1].append((index.n_states, [index.n_transitions]))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][-2][0] >= 2000


def test_it_is_the_smallest_automaton(kind: str) -> None:
    """A state for each set of end positions, a transition for each token that leads from one to another."""
    for tokens in itertools.product(range(3), repeat=6):
        ends: dict[tuple[int, ...], frozenset[int]] = {}
        for begin, end in itertools.combinations(range(len(tokens) + 1), 2):
            word = tokens[begin:end]
            ends[word] = ends.get(word, frozenset()) | {end}
        ends[()] = frozenset(range(len(tokens) + 1))
        index = new_index(kind)
        index.append(tokens)
        assert index.n_states == len(set(ends.values()))
        assert index.n_transitions == len({(ends[word[:-1]], word[-1]) for word in ends if word})


def test_the_most_recent_match_is_continued(kind: str) -> None:
    index = new_index(kind)
    index.append([1, 2, 50, 1, 2, 60, 1, 2])
    assert index.match_length == 2
    assert index.draft(8) == [60, 1, 2]
    index.append([70, 1, 2])
    assert index.draft(8) == [70, 1, 2]


def test_samples_as_computed_by_hand(kind: str) -> None:
    index = new_index(kind)
    seen = [step(index, [token], 9) for token in [1, 2, 1, 1, 2, 1, 2]]
    assert seen == [
        (0, []),
        (0, []),
        (1, [2, 1]),  # state of "1", created at 0
        (1, [1]),  # the cursor was there a step ago, and left 2
        (2, [1, 1, 2]),  # "1 2", created at 1
        (3, [1, 2, 1]),  # "1 2 1", created at 2
        (2, [1, 2]),  # "1 2": the cursor was there at 4
    ]


def test_tokens_may_be_any_integers_of_any_sequence(kind: str) -> None:
    index = new_index(kind)
    index.append(np.array([5, 6], np.int32))  # type: ignore[arg-type]
    index.append((np.uint32(5), True))
    assert (index.match_length, index.draft(4), index.last_token) == (0, [], 1)
    index.append(range(5, 7))
    assert (index.match_length, index.draft(4)) == (2, [5, 1, 5, 6])
    with pytest.raises(TypeError):
        index.append(["5"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        index.append([5.0])  # type: ignore[list-item]
    assert not index.is_degraded
    assert index.n_tokens == 6


def check_degraded(index: SuffixAutomaton) -> None:
    assert index.is_degraded
    assert (index.match_length, index.draft(9), index.last_token) == (0, [], None)
    assert (index.n_tokens, index.n_states, index.n_transitions) == (0, 0, 0)
    assert index.n_bytes < 100
    for attempt in (lambda: index.append([1]), index.freeze):
        with pytest.raises(IndexDegraded, match="start a new one"):
            attempt()


@pytest.mark.parametrize("bad", [-1, 1 << 32, 1 << 70, -(1 << 70)])
def test_a_token_out_of_range_poisons(kind: str, bad: int) -> None:
    index = new_index(kind)
    index.append([1, 2, HIGHEST, 1, 2])
    assert index.draft(9) == [HIGHEST, 1, 2]
    with pytest.raises(TokenOutOfRange, match="vocabulary"):
        index.append([1, bad, 2])
    check_degraded(index)


def test_a_stream_that_grows_too_long_poisons(kind: str) -> None:
    index = new_index(kind, max_tokens=4)
    index.append([1, 2])
    index.append([1, 2])
    assert index.match_length == 2
    with pytest.raises(StreamTooLong, match="at most 4 tokens"):
        index.append([1])
    check_degraded(index)


def test_memory_that_ran_out_poisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain index; native/tests/automaton.cpp refuses memory to the native one, at every request that it makes."""
    index = new_index("reference")
    index.append([1, 2, 1])

    def fail(*_: object) -> int:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(ReferenceAutomaton, "_new_state", fail)
        with pytest.raises(IndexDegraded, match="no memory"):
            index.append([2])
    check_degraded(index)


def test_a_frozen_index_takes_nothing_and_stays_sound(kind: str) -> None:
    index = new_index(kind)
    index.append([1, 2, 3, 1])
    frozen = index.freeze()
    with pytest.raises(IndexFrozen, match="new one"):
        index.append([-1])
    assert not index.is_degraded
    assert (index.match_length, frozen.n_tokens) == (1, 4)
    assert frozen.n_bytes == index.n_bytes > 0
    cursor = frozen.cursor()
    del index, frozen  # the cursor keeps what it reads
    cursor.advance([9, 1, 2])
    assert (cursor.match_length, cursor.draft(9)) == (2, [3, 1])


def test_an_empty_document_matches_nothing(kind: str) -> None:
    cursor = new_index(kind).freeze().cursor()
    cursor.advance([1, 2])
    assert (cursor.match_length, cursor.draft(3)) == (0, [])


@given(
    st.sampled_from([2, 5]).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, n - 1), max_size=60), st.lists(st.integers(-1, n), max_size=60), st.integers(0, 60)
        )
    )
)
@settings(max_examples=80)
def test_cursors_find_the_longest_suffix_in_the_document(case: tuple[list[int], list[int], int]) -> None:
    document, conversation, quoted_from = case
    conversation = conversation + document[quoted_from:] + conversation[:5]
    cursors = []
    for kind in KINDS:
        index = new_index(kind)
        index.append(document)
        cursors.append(index.freeze().cursor())
    search = Search(document)
    for token in conversation:
        search.see(token)
        for cursor in cursors:
            cursor.advance([token])
        check_cursors(cursors, search)


def check_cursors(cursors: Sequence[Cursor], search: Search) -> None:
    """What all cursors say of the document, and the search finds in it."""
    n_tokens = len(search.text)
    length = search.longest(n_tokens)
    drafts = [cursor.draft(ALL) for cursor in cursors]
    assert all(cursor.match_length == length for cursor in cursors)
    assert all(draft == drafts[0] for draft in drafts)
    sampled = n_tokens - 1 - len(drafts[0])
    assert drafts[0] == search.text[sampled + 1 :].tolist() or length == 0
    if length == 0:
        assert drafts[0] == []
    elif not drafts[0]:
        assert np.flatnonzero(search.lengths >= length).tolist() == [n_tokens - 1]
    else:
        assert search.lengths[sampled] >= length


class Automata(RuleBasedStateMachine):
    """Both implementations through any order of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.indices = [new_index(kind, 60) for kind in KINDS]
        self.stream: list[int] = []
        self.is_degraded = self.is_frozen = False
        self.cursors: list[Cursor] = []
        self.search = Search([])

    @rule(tokens=st.lists(st.sampled_from([0, 1, 2, HIGHEST, HIGHEST + 1]), max_size=9), max_tokens=st.integers(0, 4))
    def take(self, tokens: list[int], max_tokens: int) -> None:
        expected: type[SpeculationError] | None = None
        if self.is_degraded:
            expected = IndexDegraded
        elif self.is_frozen:
            expected = IndexFrozen
        elif HIGHEST + 1 in tokens:
            expected = TokenOutOfRange
        elif len(self.stream) + len(tokens) > 60:
            expected = StreamTooLong
        for index in self.indices:
            if expected is None:
                match_length, draft = step(index, tokens, max_tokens)
                assert (match_length, draft) == (index.match_length, index.draft(max_tokens))
            else:
                with pytest.raises(expected):
                    index.append(tokens)
        if expected is None:
            self.stream += tokens
        elif expected is not IndexFrozen:
            self.is_degraded, self.stream = True, []

    @precondition(lambda self: not self.is_degraded and self.stream)
    @rule()
    def freeze(self) -> None:
        self.is_frozen = True
        self.cursors = [index.freeze().cursor() for index in self.indices]
        self.search = Search(self.stream)

    @precondition(lambda self: self.cursors)
    @rule(tokens=st.lists(st.sampled_from([0, 1, 2, -1, HIGHEST, HIGHEST + 1]), max_size=9))
    def advance(self, tokens: list[int]) -> None:
        for cursor in self.cursors:
            cursor.advance(tokens)
        for token in tokens:
            self.search.see(token)
        check_cursors(self.cursors, self.search)

    @invariant()
    def all_say_what_a_search_says(self) -> None:
        search = Search(self.stream)
        for token in self.stream:
            search.see(token)
        for index in self.indices:
            assert index.is_degraded == self.is_degraded
            assert index.n_tokens == len(self.stream)
            assert index.last_token == (self.stream[-1] if self.stream else None)
            assert index.match_length == search.longest(len(self.stream) - 1 if self.stream else 0)
            assert index.draft(60) == self.indices[0].draft(60)


TestAutomata = Automata.TestCase
TestAutomata.settings = settings(max_examples=40, stateful_step_count=25)


def test_the_native_one_is_used_where_it_is() -> None:
    assert isinstance(open_automaton(), ReferenceAutomaton) != isinstance(NATIVE, Native)


@pytest.mark.skipif(not isinstance(NATIVE, Native), reason="the plain one estimates only")
def test_memory_a_token() -> None:
    """At every thousand tokens, so that no growth is avoided by luck."""
    source = random.Random(1)
    for alphabet in (2, 5, 50_000):
        index = new_index("native")
        for _ in range(60):
            index.append([source.randrange(alphabet) for _ in range(1000)])
            assert index.n_bytes <= 120 * index.n_tokens
