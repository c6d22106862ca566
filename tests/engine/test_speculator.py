"""The Speculator: what a source may say, what is counted of it, and how its gate opens and closes."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fucina.decoding.params import SamplingParams
from fucina.decoding.speculation.contract import BestLength, TopKRow
from fucina.decoding.speculation.costs import CostTable, StepCosts
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.decoding.speculation.stats import SourceReport, SpeculationStats
from fucina.engine.engine import Engine
from fucina.engine.events import FinishEvent, TokenEvent
from fucina.engine.request import Request
from fucina.engine.speculator import Speculator
from fucina.ops.batch import Batch, Span
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.byte_tokenizer import EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel, follow

PROMPT = [3] * 70
TEXT = list(b"the quick brown fox jumps over the lazy dog, again and again and again")
#: A pass of k more rows takes k plain steps more: speculation can only lose.
DEAR = CostTable([(1, 1.0), (2, 2.0)])


class Plain:
    """The least that a source must do: it proposes what it is told to, and remembers."""

    def __init__(self, propose: Callable[[Sequence[int], int], Any]) -> None:
        self.propose = propose
        self.observed: list[list[int]] = []
        self.asked: list[int] = []

    def suggest(self, context: Sequence[int], max_tokens: int) -> Any:
        self.asked.append(max_tokens)
        return self.propose(context, max_tokens)

    def observe(self, committed: Sequence[int]) -> None:
        self.observed.append(list(committed))


class Able(Plain):
    """A source with every optional method that a source without prices can have."""

    n_top = 4

    def __init__(self, propose: Callable[[Sequence[int], int], Any]) -> None:
        super().__init__(propose)
        self.kept: list[int] = []
        self.shown: list[list[TopKRow]] = []
        self.restarts = 0

    def truncate_pending(self, n_tokens: int) -> None:
        self.kept.append(n_tokens)

    def observe_top_k(self, rows: Sequence[TopKRow]) -> None:
        self.shown.append(list(rows))

    def restart(self) -> None:
        self.restarts += 1

    def sources(self) -> Any:
        return [SourceReport("told", 4 * len(self.asked), len(self.asked), False)]


class Priced(Plain):
    """A source that heeds the price, with a fixed probability of being right."""

    probability = 0.9

    def suggest_priced(self, context: Sequence[int], max_tokens: int, best_length: BestLength) -> Any:
        self.asked.append(max_tokens)
        return list(self.propose(context, max_tokens))[: best_length(self.probability, max_tokens)]


def run(engine: Engine, **request: Any) -> tuple[list[int], FinishEvent]:
    engine.submit(Request(prompt_ids=PROMPT, **request))
    *events, finish = engine.run()
    assert isinstance(finish, FinishEvent)
    return [event.token for event in events if isinstance(event, TokenEvent)], finish


def new_engine() -> Engine:
    return Engine(ScriptedModel(script=follow([*PROMPT, *TEXT])), ByteTokenizer())


# -- begin and end ---------------------------------------------------------------------------------------------


def test_a_common_prefix_is_not_observed_again() -> None:
    source = Able(lambda *_: ())
    speculator = Speculator(source)
    history = [1, 2, 3]
    speculator.begin(history)
    speculator.suggest(4, 100, ())
    assert source.observed == [[1, 2, 3]]
    history += [4, 5]
    speculator.end()
    assert source.observed == [[1, 2, 3], [4, 5]]
    speculator.begin([1, 2, 3, 4, 5, 6, 7])
    speculator.suggest(4, 100, ())
    assert source.observed == [[1, 2, 3], [4, 5], [6, 7]]
    assert source.restarts == 0


@pytest.mark.parametrize("changed", [[1, 2, 9, 10], [1, 2], [9]])
@pytest.mark.parametrize("kind", [Plain, Able])
def test_another_sequence_is_observed_from_its_start(kind: type[Plain], changed: list[int]) -> None:
    source = kind(lambda *_: ())
    speculator = Speculator(source)
    speculator.begin([1, 2, 3])
    speculator.end()
    speculator.begin(changed)
    speculator.suggest(4, 100, ())
    assert source.observed == [[1, 2, 3], changed]
    if isinstance(source, Able):
        assert source.restarts == 1


def test_a_request_that_never_ran_tells_nothing_of_the_one_before() -> None:
    engine = new_engine()
    speculator = Speculator(Able(lambda context, n: TEXT[len(context) - len(PROMPT) :][:n]))
    assert run(engine, params=SamplingParams(max_tokens=9), speculator=speculator)[1].speculation is not None
    engine.cancel(engine.submit(Request(prompt_ids=PROMPT, speculator=speculator)))
    (finish,) = engine.drain()
    assert isinstance(finish, FinishEvent)
    assert (finish.reason, finish.speculation) == ("cancelled", None)


# -- budget ----------------------------------------------------------------------------------------------------


def test_a_new_request_is_asked_for_drafts_at_once() -> None:
    speculator = Speculator(Plain(lambda *_: ()), StepCosts(CostTable([(1, 1.0), (17, 1.1)])))
    speculator.begin([1])
    asked = []
    for _ in range(40):
        asked.append(speculator.budget(1) > 0)
        if asked[-1]:
            assert speculator.suggest(4, 300, ()) == []
    assert asked[:4] == [True] * 4
    assert 0 < sum(asked[4:]) < 10
    speculator.begin([1, 2])
    assert [speculator.budget(1) > 0 for _ in range(3)] == [True] * 3


def test_without_prices_every_step_may_draft_as_much_as_allowed() -> None:
    speculator = Speculator(Plain(lambda *_: ()), options=SpeculationOptions(max_draft=5))
    speculator.begin([1])
    for _ in range(40):
        assert speculator.budget(1) == 5
        speculator.verified(5, 0, 1)
    stats = speculator.end()
    assert (stats.off_steps, stats.gate, stats.verify_cost, stats.estimated_speedup) == (0, None, 0.0, None)


def test_a_closed_gate_counts_its_steps_off() -> None:
    speculator = Speculator(Plain(lambda *_: ()), StepCosts(DEAR), SpeculationOptions(reprobe_after=10, reprobe_max=40))
    speculator.begin([1])
    assert speculator.budget(1) == 16
    speculator.verified(16, 0, 1)  # one verify is too few to judge
    assert speculator.budget(1) == 2
    speculator.verified(2, 0, 1)  # two tokens for 17 + 3 plain steps
    assert [speculator.budget(1) for _ in range(9)] == [0] * 9
    assert speculator.budget(1) == 16
    stats = speculator.end()
    assert (stats.off_steps, stats.verify_steps, stats.gate) == (9, 2, "probing")


@pytest.mark.parametrize(("n_rows", "most"), [(1, 7), (8, 0)])
def test_the_price_of_a_draft_is_that_of_its_pass(n_rows: int, most: int) -> None:
    # alone, seven drafts fit into the cheap rows; in a pass of eight rows each draft costs a pass of its own
    table = CostTable([(1, 1.0), (8, 1.1), (9, 2.2)])
    speculator = Speculator(Priced(lambda *_: range(16)), StepCosts(table))
    speculator.begin([1])
    assert len(speculator.suggest(speculator.budget(n_rows), 100, ())) == most


# -- suggest ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proposed", "tried", "kept"),
    [
        ([1, 2, 3], [1, 2, 3], []),
        ([1, 2, -1, 3], [1, 2], [2]),
        ([1, 100, 3], [1], [1]),
        ([100], [], [0]),
        ([1, 50, 3], [1, 50], [2]),
        ([1, 50], [1, 50], []),
        ([50, 50], [50], [1]),
        (list(range(9)), list(range(6)), [6]),
        (range(6), list(range(6)), []),
        (np.array([7, 8], np.uint32), [7, 8], []),
        ([], [], []),
    ],
)
def test_suggestions_are_cut_where_they_cannot_go_on(proposed: Any, tried: list[int], kept: list[int]) -> None:
    source = Able(lambda *_: proposed)
    speculator = Speculator(source)
    speculator.begin([1])
    drafts = speculator.suggest(6, 100, {50})
    assert list(drafts) == tried
    assert all(type(token) is int for token in drafts)
    assert (source.kept, source.asked, speculator.error) == (kept, [6], None)
    assert speculator.end().fallback_steps == (not tried)


@pytest.mark.parametrize(
    ("proposed", "tried", "kept"),
    [([1, 2], [], [0]), ([1, 2, -1], [], [0]), ([1, 50, 3, 4], [], [0]), ([1, 2, 3], [1, 2, 3], []), ([], [], [])],
)
def test_a_short_draft_is_not_tried(proposed: list[int], tried: list[int], kept: list[int]) -> None:
    source = Able(lambda *_: proposed)
    speculator = Speculator(source, options=SpeculationOptions(min_draft=3))
    speculator.begin([1])
    assert list(speculator.suggest(6, 100, {50})) == tried
    assert source.kept == kept
    assert speculator.end().fallback_steps == (not tried)


def test_where_nothing_may_be_drafted_nobody_is_asked() -> None:
    source = Able(lambda *_: [1])
    speculator = Speculator(source)
    speculator.begin([1])
    assert list(speculator.suggest(0, 100, ())) == list(speculator.suggest(-1, 100, ())) == []
    assert (source.asked, source.observed) == ([], [])
    assert speculator.end().fallback_steps == 0


def test_drafts_without_room_are_withdrawn() -> None:
    # 128 positions in all: 70 of the prompt, then 58 tokens, for the last of which nothing needs to be cached
    source = Able(lambda context, _: [*TEXT, *TEXT][len(context) - len(PROMPT) :][:16])
    answer = [*TEXT[:57], EOS]
    engine = Engine(ScriptedModel(script=follow([*PROMPT, *answer]), kv_blocks=2), ByteTokenizer())
    ids, finish = run(engine, draft_source=source)
    assert (ids, finish.reason) == (answer, "stop")
    # three verifies reach 70 + 1 + 3 * 17 = 122 tokens, and 16 drafts more would end at 138
    assert source.kept == [0] * 6
    assert engine.counters.drafted == engine.counters.accepted == 48


# -- counts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_drafted", "n_accepted", "n_committed", "bonus", "rejected"),
    [
        (4, 4, 5, 1, 0),  # all right, and one more
        (4, 1, 2, 0, 1),  # a mismatch, and the token in its place
        (4, 0, 1, 0, 1),
        (4, 4, 4, 0, 0),  # ended by the last draft
        (4, 2, 2, 0, 0),  # ended by a right draft
        (4, 0, 0, 0, 0),  # the picker failed
    ],
)
def test_verifies_are_counted(n_drafted: int, n_accepted: int, n_committed: int, bonus: int, rejected: int) -> None:
    speculator = Speculator(Plain(lambda *_: ()))
    speculator.begin([1])
    for _ in range(2):
        speculator.verified(n_drafted, n_accepted, n_committed)
    assert speculator.end() == SpeculationStats(
        verify_steps=2, drafted=2 * n_drafted, accepted=2 * n_accepted, bonus=2 * bonus, rejected=2 * rejected
    )
    speculator.begin([1])
    assert speculator.end() == SpeculationStats()


def test_what_sources_did_is_told_of_each_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Able(lambda *_: [1])
    speculator = Speculator(source)
    for n_asked in (3, 2):
        speculator.begin([1])
        for _ in range(n_asked):
            speculator.suggest(4, 100, ())
        assert speculator.end().sources == (SourceReport("told", 4 * n_asked, n_asked, False),)
    another = SourceReport("told", 7, 3, True)  # which took the name of one that is gone
    speculator.begin([1])
    monkeypatch.setattr(source, "sources", lambda: [another])
    assert speculator.end().sources == (another,)


def test_reports_are_of_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Able(lambda *_: ())
    monkeypatch.setattr(source, "sources", lambda: list(told))
    told = [SourceReport("old", 10, 4, False)]
    speculator = Speculator(source)
    speculator.begin([1])
    assert speculator.end().sources == (SourceReport("old", 10, 4, False),)
    speculator.begin([1, 2])
    told = [SourceReport("old", 16, 5, True), SourceReport("new", 3, 2, False)]
    assert speculator.end().sources == (SourceReport("old", 6, 1, True), SourceReport("new", 3, 2, False))
    speculator.begin([1, 2, 3])
    assert speculator.end().sources == (SourceReport("old", 0, 0, True), SourceReport("new", 0, 0, False))


def test_who_has_nothing_is_asked_less_often() -> None:
    found: list[int] = []
    source = Plain(lambda *_: found)
    speculator = Speculator(source, StepCosts(CostTable([(1, 1.0), (17, 2.0)])))
    speculator.begin([1])

    def asked_at(n_steps: int) -> list[int]:
        """The steps, counted from 1, in which the source was asked."""
        asked = []
        for step in range(1, n_steps + 1):
            before = len(source.asked)
            if budget := speculator.budget(1):
                speculator.suggest(budget, 100, ())
            if len(source.asked) > before:
                asked.append(step)
        return asked

    assert asked_at(16) == [1, 2, 3, 4, 8, 12, 16]
    found.append(1)
    assert asked_at(8) == [4, 5, 6, 7, 8]
    assert speculator.end().fallback_steps == 16 + 3
    assert speculator.error is None


def test_what_verifies_should_have_taken_is_added_up_from_the_table() -> None:
    costs = StepCosts(CostTable([(1, 2.0), (3, 3.0), (5, 6.0)]))  # in plain steps 1, 1.5 and 3
    costs.scale = 3.0  # as they are just now
    speculator = Speculator(Plain(lambda *_: ()), costs)
    speculator.begin([1])
    for n_rows, n_drafts in ((1, 2), (1, 4), (3, 2)):
        speculator.budget(n_rows)
        speculator.verified(n_drafts, n_drafts, n_drafts + 1)
    # alone C(1 + k); with two others a step is worth C(3) / 3 = 0.5, and a row takes (C(11) - C(3)) / 8 = 0.75
    assert speculator.end().verify_cost == 1.5 + 3.0 + (1.0 + 2 * 0.75 / 0.5)


# -- the model's own candidates --------------------------------------------------------------------------------


def top_of(prefix: Sequence[int], n_top: int) -> list[int]:
    """The likeliest tokens after a prefix, computed apart."""
    model = ScriptedModel(script=follow([*PROMPT, *TEXT]), max_rows=len(prefix))
    kv = KvSequence(model.kv_pool)
    kv.reserve(len(prefix))
    row = model.forward(Batch((Span(list(prefix), 0, kv.blocks, 1),)))[0, : ByteTokenizer.vocab_size]
    return [int(token) for token in np.argsort(-row, kind="stable")[:n_top]]


def test_the_rows_behind_the_first_wrong_draft_are_shown() -> None:
    def propose(context: Sequence[int], _: int) -> Sequence[int]:
        done = len(context) - len(PROMPT)
        return [*TEXT[done : done + 2], 7, 8, TEXT[done + 4]] if done == 1 else TEXT[done : done + 2]

    source = Able(propose)
    ids, finish = run(new_engine(), params=SamplingParams(max_tokens=20), draft_source=source)
    assert ids == TEXT[:20]
    assert finish.speculation is not None
    assert finish.speculation.rejected == 1
    right = [*PROMPT, *TEXT[:3]]
    wrong = [7, 8, TEXT[5]]
    assert [[row.token for row in rows] for rows in source.shown] == [wrong]
    assert [list(row.ids) for row in source.shown[0]] == [top_of([*right, *wrong[:n]], 4) for n in (1, 2, 3)]


def test_nothing_is_shown_to_who_wants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Able(lambda *_: [7, 8])
    monkeypatch.setattr(source, "n_top", 0)
    engine = new_engine()
    ids, finish = run(engine, params=SamplingParams(max_tokens=9), draft_source=source)
    assert (ids, source.shown) == (TEXT[:9], [])
    assert finish.speculation is not None
    assert finish.speculation.rejected == finish.speculation.verify_steps == 7


# -- failures --------------------------------------------------------------------------------------------------


class Broken(Able):
    """It fails at the first call of one method; it would fail at each."""

    def __init__(self, at: str) -> None:
        super().__init__(lambda context, _: [*TEXT[len(context) - len(PROMPT) :][:1], 7, -1])
        self.failures = 0
        setattr(self, at, self._fail)

    def _fail(self, *_: Any) -> Any:
        self.failures += 1
        raise RuntimeError("broken")


@pytest.mark.parametrize("at", ["suggest", "observe", "truncate_pending", "observe_top_k", "sources", "restart"])
def test_a_failing_source_is_dropped_once(at: str) -> None:
    source, engine = Broken(at), new_engine()
    speculator = Speculator(source)
    if at == "restart":  # from the turn of another conversation
        speculator.begin([1, 2])
        speculator.end()
    ids, finish = run(engine, params=SamplingParams(max_tokens=20), speculator=speculator)
    assert (ids, finish.reason) == (TEXT[:20], "length")
    assert isinstance(speculator.error, RuntimeError)
    assert source.failures == 1
    assert engine.counters.draft_failures == 1
    assert finish.speculation is not None
    assert finish.speculation.sources == ()
    n_asked, n_observed = len(source.asked), len(source.observed)
    assert run(engine, params=SamplingParams(max_tokens=5), speculator=speculator)[0] == TEXT[:5]
    assert (len(source.asked), len(source.observed), source.failures) == (n_asked, n_observed, 1)
    assert speculator.budget(1) == 0


@pytest.mark.parametrize("nonsense", [None, 5, [5], [SimpleNamespace(name="told")]])
@pytest.mark.parametrize("from_call", [1, 2, 3])
def test_a_report_that_is_none_does_no_harm(nonsense: Any, from_call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Able(lambda context, n: TEXT[len(context) - len(PROMPT) :][:n])
    reports = [source.sources()] * (from_call - 1) + [nonsense] * 9
    monkeypatch.setattr(source, "sources", lambda: reports.pop(0))
    speculator = Speculator(source)
    # asked at the end of the first, and at both ends of the second
    for n_tokens in (20, 9):
        ids, finish = run(new_engine(), params=SamplingParams(max_tokens=n_tokens), speculator=speculator)
        assert (ids, finish.reason) == (TEXT[:n_tokens], "length")
        assert finish.speculation is not None
        assert finish.speculation.accepted == finish.speculation.drafted
    assert speculator.error is not None


def test_candidates_that_cannot_be_counted_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Able(lambda *_: [7, 8])
    monkeypatch.setattr(source, "n_top", "many")
    engine = new_engine()
    assert run(engine, params=SamplingParams(max_tokens=9), draft_source=source)[0] == TEXT[:9]
    assert (engine.counters.draft_failures, engine.counters.drafted) == (1, 2)


def test_a_number_of_candidates_that_raises_does_no_harm() -> None:
    class Unsure(Able):
        @property
        def n_top(self) -> int:  # type: ignore[override]
            raise RuntimeError("broken")

    engine = new_engine()
    assert run(engine, params=SamplingParams(max_tokens=9), draft_source=Unsure(lambda *_: [7, 8]))[0] == TEXT[:9]
    assert engine.counters.draft_failures == 1


# -- the gate of a whole engine --------------------------------------------------------------------------------


def test_the_gate_closes_on_garbage_and_looks_again() -> None:
    source = Priced(lambda _, n: [7] * n)
    source.suggest_priced = lambda context, most, _: source.suggest(context, most)  # type: ignore[method-assign]
    speculator = Speculator(source, StepCosts(DEAR))
    engine = Engine(ScriptedModel(script=lambda _: 65, context_length=1024), ByteTokenizer())
    # one token with the prompt, two verifies, then 127 plain steps before a probe; it fails after two verifies more,
    # and the next comes after twice as many
    n_tokens = 1 + 2 + 127 + 2 + 255 + 2 + 20
    ids, finish = run(engine, params=SamplingParams(max_tokens=n_tokens), speculator=speculator)
    assert ids == [65] * n_tokens
    stats = finish.speculation
    assert stats is not None
    assert (stats.verify_steps, stats.off_steps, stats.fallback_steps) == (6, 127 + 255 + 20, 0)
    assert source.asked == [16, 2] * 3  # the second of each pair is cut, as nothing was right
    assert (stats.drafted, stats.accepted, stats.rejected, stats.gate) == (54, 0, 6, "off")
    assert stats.verify_cost == 3 * (17.0 + 3.0)
    assert speculator.error is None


def test_the_gate_stays_open_for_what_wins() -> None:
    source = Priced(lambda context, n: TEXT[len(context) - len(PROMPT) :][:n])
    source.probability = 0.98
    speculator = Speculator(source, StepCosts(CostTable([(1, 1.0), (17, 2.0)])))
    ids, finish = run(new_engine(), params=SamplingParams(max_tokens=1 + 4 * 17), speculator=speculator)
    stats = finish.speculation
    assert ids == TEXT[:69]
    assert stats is not None
    assert (stats.off_steps, stats.gate, stats.verify_steps) == (0, "on", 4)
    assert (stats.drafted, stats.accepted, stats.bonus) == (64, 64, 4)
    assert stats.estimated_speedup == 17 / 2.0
