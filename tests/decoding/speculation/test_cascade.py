"""The cascade against traces worked out by hand, and against its definition over brute-force search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.speculation.acceptance import Acceptance
from fucina.decoding.speculation.cascade import Cascade, Index
from fucina.decoding.speculation.contract import CutListener, PricedSource, TopKListener, TopKRow
from fucina.decoding.speculation.recycling import Recycling
from fucina.decoding.speculation.stats import SourceReport
from fucina.decoding.speculation.suffix_automaton import SuffixAutomaton
from fucina.errors import TokenOutOfRange

VOCAB = 1000


def ends(text: Sequence[int], suffix: Sequence[int], before: int) -> list[int]:
    """Where in `text` the suffix ends, up to `before`."""
    n = len(suffix)
    return [end for end in range(n, before + 1) if list(text[end - n : end]) == list(suffix)]


def longest_suffix(stream: Sequence[int], text: Sequence[int], before: int) -> int:
    return max(n for n in range(len(stream) + 1) if n == 0 or ends(text, stream[-n:], before))


class BruteIndex:
    """What a suffix automaton knows, by trying everything."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.is_degraded = False

    def append(self, tokens: Sequence[int]) -> None:
        if any(token < 0 for token in tokens):
            self.is_degraded = True
            raise ValueError("a token below zero")
        self.tokens += tokens

    @property
    def match_length(self) -> int:
        return longest_suffix(self.tokens, self.tokens, len(self.tokens) - 1)

    def draft(self, max_tokens: int) -> list[int]:
        n = self.match_length
        end = ends(self.tokens, self.tokens[-n:], len(self.tokens) - 1)[-1] if n else len(self.tokens)
        return self.tokens[end : end + max_tokens]

    def freeze(self) -> BruteFrozen:
        return BruteFrozen(self.tokens)


class BruteFrozen:
    def __init__(self, text: list[int]) -> None:
        self.text = text

    def cursor(self) -> BruteCursor:
        return BruteCursor(self.text)


class BruteCursor:
    def __init__(self, text: list[int]) -> None:
        self.text, self.stream = text, list[int]()

    def advance(self, tokens: Sequence[int]) -> None:
        self.stream += tokens

    @property
    def match_length(self) -> int:
        return longest_suffix(self.stream, self.text, len(self.text))

    def draft(self, max_tokens: int) -> list[int]:
        n = self.match_length
        end = ends(self.text, self.stream[-n:], len(self.text))[-1] if n else len(self.text)
        return self.text[end : end + max_tokens]


both = pytest.mark.parametrize("new_index", [BruteIndex, SuffixAutomaton])


class Scripted:
    """An index, a frozen one and a cursor in one, that says what it is told to."""

    def __init__(self, match_length: int = 0, tokens: Sequence[int] = ()) -> None:
        self.match_length, self.tokens = match_length, list(tokens)
        self.is_degraded = False
        self.seen: list[int] = []

    def append(self, tokens: Sequence[int]) -> None:
        self.seen += tokens

    advance = append

    def freeze(self) -> Scripted:
        return self

    def cursor(self) -> Scripted:
        self.seen = []
        return self

    def draft(self, max_tokens: int) -> list[int]:
        return self.tokens[:max_tokens]


class Trace:
    """A cascade over scripted sources. Token 1 is committed, and its recycled chain is 400, 401, 402 and so on."""

    def __init__(self, conversation: int, *references: int, min_draft: int = 1) -> None:
        self.recycling, self.acceptance = Recycling(VOCAB), Acceptance()
        self.conversation = Scripted(conversation, range(100, 200))
        self.cascade = Cascade(self.recycling, self.acceptance, lambda: self.conversation, min_draft)
        self.references = [Scripted(match, range(100 * n, 100 * n + 90)) for n, match in enumerate(references, 2)]
        for reference in self.references:
            self.cascade.share_reference(reference)
        self.context = [1]
        self.cascade.observe([1])
        self.recycling.observe(1, range(400, 500))

    def suggest(self, max_tokens: int = 16) -> list[int]:
        return self.cascade.suggest(self.context, max_tokens)

    def observe(self, *committed: int) -> None:
        self.context += committed
        self.cascade.observe(committed)

    def counts(self) -> list[tuple[int, int]]:
        return [(report.drafted, report.accepted) for report in self.cascade.sources()]


def test_it_is_what_the_engine_asks_for() -> None:
    cascade = Trace(0).cascade
    assert isinstance(cascade, CutListener)
    assert isinstance(cascade, TopKListener)
    assert isinstance(cascade, PricedSource)


@pytest.mark.parametrize(
    ("conversation", "references", "first"),
    [
        # match of the conversation, matches of the references, first token drafted: 100 the conversation's,
        # 200 and 300 the references', 400 the recycled one's
        (0, [], 400),
        (1, [], 400),
        (2, [], 100),
        (1, [1], 400),
        (1, [2], 200),
        (2, [2], 100),
        (2, [3], 200),
        (3, [2], 100),
        (0, [4, 4], 200),
        (0, [4, 5], 300),
        (0, [5, 4], 200),
        (4, [5, 6], 300),
        (6, [5, 6], 100),
    ],
)
def test_the_longest_match_wins(conversation: int, references: list[int], first: int) -> None:
    assert Trace(conversation, *references).suggest()[0] == first


@pytest.mark.parametrize(
    ("match", "max_tokens", "n_drafted"),
    [(2, 100, 6), (3, 100, 8), (7, 100, 16), (40, 100, 82), (7, 15, 15), (2, 5, 5), (2, 1, 1), (2, 0, 0), (2, -3, 0)],
)
def test_a_longer_match_drafts_more(match: int, max_tokens: int, n_drafted: int) -> None:
    assert Trace(match).suggest(max_tokens) == list(range(100, 100 + n_drafted))
    assert Trace(0, match).suggest(max_tokens) == list(range(200, 200 + n_drafted))


@pytest.mark.parametrize(("max_tokens", "n_drafted"), [(100, 8), (8, 8), (3, 3), (0, 0)])
def test_a_recycled_chain_has_at_most_8(max_tokens: int, n_drafted: int) -> None:
    assert Trace(0).suggest(max_tokens) == list(range(400, 400 + n_drafted))


def test_a_match_with_nothing_behind_it_falls_through_to_the_recycled() -> None:
    trace = Trace(2, 9)
    trace.references[0].tokens = []
    assert trace.suggest(4) == [400, 401, 402, 403]
    trace.observe(400)
    assert trace.counts() == [(0, 0), (0, 0), (4, 1)]


def test_a_context_that_was_not_observed_gets_nothing() -> None:
    trace = Trace(5)
    assert trace.cascade.suggest([1, 2], 8) == []
    assert trace.cascade.suggest([], 8) == []
    assert trace.cascade.suggest([2, 1], 8) != []
    fresh = Cascade(Recycling(VOCAB), Acceptance(), lambda: Scripted(5, [1]))
    assert fresh.suggest([1], 8) == []
    trace.cascade.restart()
    assert trace.cascade.suggest([1], 8) == []


def test_a_degraded_index_is_neither_asked_nor_fed() -> None:
    trace = Trace(9, 2)
    trace.conversation.is_degraded = True
    assert trace.suggest(3) == [200, 201, 202]
    trace.observe(5)
    assert trace.conversation.seen == [1]
    assert trace.references[0].seen == [1, 5]


@both
def test_the_other_sources_outlive_a_failed_append(new_index: Callable[[], Index]) -> None:
    cascade = Cascade(Recycling(VOCAB), Acceptance(), new_index)
    cascade.observe([5, 6, 7, 5, 6])
    cascade.observe([-1])  # poisons the index
    cascade.observe([5, 6, 7, 8])
    assert cascade.suggest([8], 4) == []
    cascade.observe([5])
    assert cascade.suggest([5], 2) == [6, 7]
    assert cascade.sources()[1].name == "recycling"
    cascade.observe([6, 7])
    assert cascade.sources() == [
        SourceReport("conversation", 0, 0, False),
        SourceReport("recycling", 2, 2, False),
    ]


def test_an_index_that_fails_without_being_degraded_is_not_hidden() -> None:
    class Broken(Scripted):
        def append(self, tokens: Sequence[int]) -> None:
            raise ZeroDivisionError(tokens)

    with pytest.raises(ZeroDivisionError):
        Cascade(Recycling(VOCAB), Acceptance(), Broken).observe([1])


@pytest.mark.parametrize(
    ("n_drafted", "committed", "counted"),
    [
        # the draft is 100, 101, 102, ...; what is committed; drafted and accepted
        (4, [100, 101, 102, 103, 9], (4, 4)),
        (4, [100, 101, 102, 103], (4, 4)),
        (4, [100, 101, 9], (4, 2)),
        (4, [100, 101, 9, 103], (4, 2)),
        (4, [9], (4, 0)),
        (4, [9, 100, 101], (4, 0)),
        (4, [100], (4, 1)),
        (2, [100, 9], (2, 1)),
        (1, [100, 9], (0, 0)),
        (4, [], (0, 0)),
        (70, [*range(100, 170), 9], (64, 64)),
    ],
)
def test_a_draft_is_settled_by_what_is_committed_next(
    n_drafted: int, committed: list[int], counted: tuple[int, int]
) -> None:
    trace = Trace(50, min_draft=2)
    assert len(trace.suggest(n_drafted)) == n_drafted
    trace.observe(*committed)
    trace.observe(100)
    assert trace.counts() == [counted, (0, 0)]


@pytest.mark.parametrize(
    ("n_tried", "counted"), [(6, (6, 3)), (9, (6, 3)), (4, (4, 3)), (2, (2, 2)), (1, (0, 0)), (0, (0, 0))]
)
def test_what_is_not_tried_does_not_count(n_tried: int, counted: tuple[int, int]) -> None:
    trace = Trace(2, min_draft=2)
    assert len(trace.suggest()) == 6
    trace.cascade.truncate_pending(n_tried)
    trace.observe(100, 101, 102, 9)
    assert trace.counts()[0] == counted


def test_a_new_suggestion_replaces_the_one_before() -> None:
    #  suggested by      then            drafted, accepted: conversation, reference, recycling
    trace = Trace(2, 1)
    trace.suggest()  # 100..105
    trace.references[0].match_length = 3
    trace.suggest()  # 200..207
    trace.observe(200, 201, 9)
    assert trace.counts() == [(0, 0), (8, 2), (0, 0)]
    trace.suggest()
    assert trace.cascade.suggest([1, 2, 3], 8) == []  # no draft, and none is pending any more
    trace.observe(200)
    assert trace.counts() == [(0, 0), (8, 2), (0, 0)]


def test_acceptance_is_learned_by_source_and_match() -> None:
    trace = Trace(2)
    trace.suggest()  # six drafted: two hits, one miss
    trace.observe(100, 101, 9)
    assert trace.acceptance.probability("conversation", 2) == pytest.approx((2 + 1.4) / (3 + 4), abs=1e-12)
    trace.conversation.match_length = 7
    trace.suggest(5)  # the sequence ended inside the draft: two hits, no miss
    trace.observe(100, 101)
    assert trace.acceptance.probability("conversation", 7) == pytest.approx((2 + 3) / (2 + 4), abs=1e-12)
    assert trace.acceptance.probability("reference", 2) == pytest.approx(0.35, abs=1e-12)


def test_what_recycling_would_have_drafted_counts_whether_it_was_asked_or_not() -> None:
    trace = Trace(0)  # whose stream is [1], and 400 follows 1
    # pairs of 1 5 1 5 1: 1-5 where 400 was known, 5-1 where nothing was, 1-5 and 5-1 as known: two of three
    trace.observe(5, 1, 5, 1)
    assert trace.acceptance.probability("recycling", 0) == pytest.approx((2 + 1) / (3 + 4), abs=1e-12)
    assert trace.suggest(1) == [5]
    trace.observe(7)  # 1-5 is known, 1-7 came: counted once, although it was drafted too
    assert trace.acceptance.probability("recycling", 0) == pytest.approx((2 * 0.97 + 1) / (3 * 0.97 + 1 + 4), abs=1e-12)


def test_a_source_that_is_mostly_wrong_is_muted_and_asked_again() -> None:
    trace = Trace(7, 6)
    # drafted  right  in the window of the conversation
    for n_right, is_muted in [(12, False), (0, False), (0, False), (0, True)]:  # 16, 32, 48, 64 of which 12 right
        assert trace.suggest(16)[0] == 100
        trace.observe(*range(100, 100 + n_right), 9)
        assert trace.cascade.sources()[0].is_muted == is_muted
    # The token that settled the last draft was the first of the 128.
    assert trace.suggest(2) == [200, 201]  # the reference, although its match is shorter
    trace.observe(*[9] * 126)
    assert trace.suggest(2)[0] == 200
    trace.observe(200)
    assert trace.suggest(2) == [100, 101]
    # It went on learning meanwhile.
    assert trace.conversation.seen == trace.context


def test_13_of_64_are_enough() -> None:
    trace = Trace(7)
    for n_right in (13, 0, 0, 0):
        trace.suggest(16)
        trace.observe(*range(100, 100 + n_right), 9)
    assert trace.cascade.sources()[0] == SourceReport("conversation", 64, 13, False)


def test_muted_recycling_drafts_nothing_wants_nothing_and_learns() -> None:
    trace = Trace(0)
    assert trace.cascade.n_top == 8
    for _ in range(8):
        trace.recycling.observe(trace.context[-1], range(400, 408))
        assert len(trace.suggest()) == 8
        trace.observe(9)
    trace.acceptance.count("recycling", 0, 50, 50)  # as if it would have been right elsewhere
    assert trace.cascade.n_top == 0
    assert trace.suggest() == []
    trace.observe(9, 30, 9)
    assert trace.recycling.chain(9, 2) == [30, 9]
    assert trace.suggest() == []
    trace.observe(*[9] * 124)
    assert trace.cascade.n_top == 8
    assert trace.suggest(3) == [9, 9, 9]


def test_candidates_are_not_looked_for_where_they_are_mostly_wrong() -> None:
    trace = Trace(0)
    assert trace.cascade.n_top == 8
    trace.acceptance.count("recycling", 0, 0, 1)  # (0 + 1) / (1 + 4) is still 0.2
    assert trace.cascade.n_top == 8
    trace.acceptance.count("recycling", 0, 0, 1)
    assert trace.cascade.n_top == 0
    trace.acceptance.count("recycling", 0, 5, 5)
    assert trace.cascade.n_top == 8


def test_a_muted_reference_lets_the_next_one_draft() -> None:
    trace = Trace(2, 9, 3)
    for _ in range(4):
        assert trace.suggest(16)[0] == 200
        trace.observe(9)
    assert trace.suggest(16)[0] == 300
    assert [report.is_muted for report in trace.cascade.sources()] == [False, True, False, False]
    trace.observe(*[9] * 126)
    assert trace.suggest(16)[0] == 300
    trace.observe(9)
    assert trace.suggest(16)[0] == 200


def test_the_price_decides_how_much_is_drafted() -> None:
    asked: list[tuple[float, int]] = []

    def best_length(probability: float, most: int) -> int:
        asked.append((round(probability, 12), most))
        return answers.pop(0)

    trace = Trace(2)
    answers = [3, 99, 0, 5, 0, 0, -1, 2]
    #   asked: probability, most   answer   drafted
    # 1 0.35, 6                    3        100 101 102
    # 2 0.35, 6                    99       100..105
    # 3 0.35, 6 / 0.25, 8          0 / 5    400..404: the match is refused, the recycled are asked
    # 4 0.35, 6 / 0.25, 8          0 / 0    nothing
    # 5 0.35, 4 / 0.25, 4          -1 / 2   400 401
    drafts = [trace.cascade.suggest_priced([1], most, best_length) for most in (16, 16, 16, 16, 4)]
    assert drafts == [[100, 101, 102], [*range(100, 106)], [*range(400, 405)], [], [400, 401]]
    assert asked == [(0.35, 6), (0.35, 6), (0.35, 6), (0.25, 8), (0.35, 6), (0.25, 8), (0.35, 4), (0.25, 4)]
    assert trace.cascade.suggest_priced([1], 0, best_length) == []
    assert len(asked) == 8


def test_a_refused_source_is_thought_better_of_in_time() -> None:
    trace = Trace(2)
    for _ in range(100):
        trace.acceptance.record("conversation", 2, 0, 1)
    drafts = [trace.cascade.suggest_priced([1], 16, lambda p, most: most if p > 0.3 else 0) for _ in range(500)]
    assert not any(drafts[:50])
    assert drafts[499]


def test_a_late_reference_catches_up() -> None:
    trace = Trace(0)
    trace.observe(7, 8)
    late = Scripted(2, [50])
    trace.cascade.share_reference(late)
    assert late.seen == [1, 7, 8]
    trace.observe(9)
    assert late.seen == [1, 7, 8, 9]


@both
def test_references_come_and_go(new_index: Callable[[], Index]) -> None:
    cascade = Cascade(Recycling(VOCAB), Acceptance(), new_index)
    cascade.observe([3, 10, 11])
    frozen = cascade.add_reference([9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 10, 11, 20])
    assert cascade.suggest([11], 8) == [20]  # the most recent occurrence in the document
    cascade.observe([12])
    assert cascade.suggest([12], 8) == [13, 14, 15, 16, 17, 18, 10, 11]  # three matched, eight allowed
    other = Cascade(Recycling(VOCAB), Acceptance(), new_index)
    other.share_reference(frozen)
    other.observe([13, 14])
    assert other.suggest([14], 2) == [15, 16]
    cascade.clear_references()
    cascade.observe([13])
    assert [report.name for report in cascade.sources()] == ["conversation", "recycling"]
    assert cascade.suggest([13], 8) == []
    cascade.add_reference([12, 13, 4])
    assert cascade.suggest([13], 8) == [4]
    cascade.observe([4])
    assert cascade.sources()[1] == SourceReport("reference 1", 1, 1, False)


def test_clearing_the_references_forgets_the_last_suggestion() -> None:
    trace = Trace(2)
    trace.suggest()
    trace.cascade.clear_references()
    trace.observe(100)
    assert trace.counts() == [(0, 0), (0, 0)]


@both
def test_a_document_that_cannot_be_indexed_changes_nothing(new_index: Callable[[], Index]) -> None:
    cascade = Cascade(Recycling(VOCAB), Acceptance(), new_index)
    with pytest.raises((ValueError, TokenOutOfRange)):
        cascade.add_reference([1, -5])
    assert len(cascade.sources()) == 2


@both
def test_a_new_conversation_keeps_what_was_learned_of_the_sources(new_index: Callable[[], Index]) -> None:
    recycling = Recycling(VOCAB)
    cascade = Cascade(recycling, Acceptance(), new_index)
    cascade.add_reference([30, 31, 32])
    cascade.observe([5, 6, 7, 5, 6])
    assert cascade.suggest([6], 8) == [7, 5, 6]
    cascade.observe([7])
    assert cascade.suggest([7], 1) == [5]
    cascade.restart()
    cascade.observe([31])  # the draft of the old conversation is not compared with the new one
    assert cascade.sources()[0] == SourceReport("conversation", 3, 1, False)
    assert cascade.suggest([31], 8) == []  # 30 was seen in the document only
    assert recycling.candidates(7) == [5]  # and 31 does not follow the old conversation's last token
    cascade.observe([5])
    assert cascade.suggest([5], 2) == [6, 7]  # no match of two, but recycled
    cascade.observe([30, 31])
    assert cascade.suggest([31], 2) == [32]
    assert cascade.sources()[1].name == "reference 1"


@both
def test_a_new_conversation_is_matched_from_its_start(new_index: Callable[[], Index]) -> None:
    cascade = Cascade(Recycling(VOCAB), Acceptance(), new_index)
    cascade.add_reference([30, 31, 32])
    cascade.observe([30])
    cascade.restart()
    cascade.observe([31])
    assert cascade.suggest([31], 8) == []
    cascade.observe([30, 31])
    assert cascade.suggest([31], 8) == [32]


def test_committed_tokens_stand_before_what_the_model_thought_likely() -> None:
    trace = Trace(0)
    #  input token   likely next   committed next
    #  1             20 21 22      21
    #  21            23 24         30
    trace.cascade.observe_top_k([TopKRow(1, [20, 21, 22]), TopKRow(21, [23, 24])])
    trace.observe(21, 30)
    assert trace.recycling.candidates(1) == [21, 20, 22]
    assert trace.recycling.candidates(21) == [30, 23, 24]
    assert trace.recycling.candidates(30) == []


def test_impossible_rows_are_ignored() -> None:
    trace = Trace(0)
    trace.cascade.observe_top_k([TopKRow(-1, [3]), TopKRow(2**40, [3]), TopKRow(5, [-1, VOCAB, 2**32]), TopKRow(6, [])])
    trace.cascade.observe_top_k([])
    assert (trace.recycling.candidates(5), trace.recycling.candidates(6)) == ([], [])
    assert trace.suggest(2) == [400, 401]


@both
def test_conversations_share_what_is_recycled(new_index: Callable[[], Index]) -> None:
    recycling, acceptance = Recycling(VOCAB), Acceptance()
    one, two = (Cascade(recycling, acceptance, new_index) for _ in range(2))
    one.observe([4])
    two.observe([8])
    one.observe([5, 6])
    two.observe([4])
    assert two.suggest([4], 8) == [5, 6]
    assert recycling.candidates(8) == [4]  # each knows the token before its own


def expected(stream: list[int], references: list[list[int]], max_tokens: int) -> list[int]:
    """The cascade's definition, without mutes."""
    end_of = [(longest_suffix(stream, stream, len(stream) - 1), stream, len(stream) - 1)]
    end_of += [(longest_suffix(stream, text, len(text)), text, len(text)) for text in references]
    length, text, before = max(end_of, key=lambda entry: entry[0])  # the first of equal ones
    if length >= 2:
        end = ends(text, stream[-length:], before)[-1]
        drafts = text[end:][: min(max_tokens, 2 * (1 + length))]
        if drafts:
            return drafts
    drafts, last = [], stream[-1]
    while len(drafts) < min(max_tokens, 8) and last in stream[:-1]:
        last = stream[max(i for i, token in enumerate(stream[:-1]) if token == last) + 1]
        drafts.append(last)
    return drafts


texts = st.lists(st.integers(0, 3), max_size=25)


@given(
    st.lists(texts, max_size=6).filter(any),
    st.lists(st.tuples(st.integers(0, 5), texts), max_size=3),
    st.integers(1, 20),
)
def test_every_draft_equals_the_definition(
    chunks: list[list[int]], references: list[tuple[int, list[int]]], max_tokens: int
) -> None:
    cascade = Cascade(Recycling(4), Acceptance(), BruteIndex)
    stream: list[int] = []
    added: list[list[int]] = []
    for step, chunk in enumerate(chunks):
        for when, text in references:
            if when == step:
                cascade.add_reference(text)
                added.append(text)
        stream += chunk
        cascade.observe(chunk)
        if stream:
            assert cascade.suggest(stream, max_tokens) == expected(stream, added, max_tokens)
            cascade.observe([])  # nothing is pending: no source is ever muted here


def test_what_ended_comes_after_documents_and_stays_when_they_go() -> None:
    trace = Trace(2)
    earlier, document = Scripted(4, [700, 701]), Scripted(4, [600, 601])
    trace.cascade.share_history(earlier)
    trace.cascade.share_reference(document)
    assert [report.name for report in trace.cascade.sources()] == [
        "conversation",
        "reference 1",
        "history 1",
        "recycling",
    ]
    assert trace.suggest(2) == [600, 601]  # equal matches: the document, although it came later
    document.match_length = 3
    assert trace.suggest(2) == [700, 701]
    trace.observe(700, 701)
    assert trace.acceptance.probability("history", 4) == pytest.approx((2 + 0.55 * 4) / (2 + 4), abs=1e-12)
    trace.cascade.clear_references()
    assert [report.name for report in trace.cascade.sources()] == ["conversation", "history 1", "recycling"]
    assert trace.suggest(1) == [700]
