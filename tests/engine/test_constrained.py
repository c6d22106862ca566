"""Constraints in the engine: forced drafts, honest accounts, whether an answer is whole, and what may go wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest

from fucina.decoding import picker
from fucina.decoding.grammar import masks
from fucina.decoding.grammar.costs import MaskCosts
from fucina.decoding.grammar.processor import GrammarProcessor, Thinking
from fucina.decoding.params import SamplingParams
from fucina.decoding.scans import open_scans
from fucina.decoding.speculation.costs import CostTable, StepCosts
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.engine.completion import Completion, collect
from fucina.engine.engine import Engine
from fucina.engine.events import Event as EngineEvent
from fucina.engine.events import FinishEvent
from fucina.engine.request import Request
from fucina.engine.speculator import Speculator
from fucina.errors import ConfigError, ConstraintFailed
from fucina.testing.byte_tokenizer import EOS, ByteTokenizer
from fucina.testing.scripted_matcher import ScriptedMatcher
from fucina.testing.scripted_model import ScriptedModel

PROMPT = [3] * 40
#: Long forced spans around few choices: 11 bytes, one of three words, 16 bytes, one of two.
ANSWERS = [
    list(f'{{"name": "{name}", "grown-up": {grown}}}'.encode()) for name in ("Ada", "Bob", "Al") for grown in (1, 22)
]
#: Nothing forced: one of two bytes, eight times.
CHOICES = list(itertools.product(b"xy", repeat=8))
CHEAP = CostTable([(1, 1.0), (65, 1.2)])
DEAR = CostTable([(1, 1.0), (2, 3.0)])
VOCAB = ByteTokenizer.vocab_size


class Source:
    """Proposes what it is told to."""

    def __init__(self, propose: Callable[[Sequence[int], int], Sequence[int]] = lambda *_: ()) -> None:
        self.propose = propose
        self.asked: list[int] = []
        self.kept: list[int] = []
        self.observed: list[int] = []

    def suggest(self, context: Sequence[int], max_tokens: int) -> Sequence[int]:
        self.asked.append(len(context))
        return self.propose(context, max_tokens)

    def observe(self, committed: Sequence[int]) -> None:
        self.observed += committed

    def truncate_pending(self, n_tokens: int) -> None:
        self.kept.append(n_tokens)


def matcher(answers: Sequence[Sequence[int]] = ANSWERS) -> ScriptedMatcher:
    return ScriptedMatcher(answers, vocab=VOCAB, end_ids={EOS})


def grammar(answers: Sequence[Sequence[int]] = ANSWERS, thinking: Thinking | None = None) -> GrammarProcessor:
    return GrammarProcessor(matcher(answers), open_scans(), end_ids={EOS}, thinking=thinking)


def speculator(source: Any = None, table: CostTable = CHEAP, **options: Any) -> Speculator:
    return Speculator(source or Source(), StepCosts(table), SpeculationOptions(**options))


def complete(engine: Engine | None = None, **request: Any) -> Completion:
    engine = engine or Engine(ScriptedModel(), ByteTokenizer())
    engine.submit(Request(prompt_ids=PROMPT, **request))
    return collect(PROMPT, engine.run())


@pytest.fixture(autouse=True)
def always_handed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_WORTH_HANDING_S", 0.0)


# -- forced drafts ---------------------------------------------------------------------------------------------


def test_forced_tokens_are_drafted_and_all_are_right() -> None:
    plain = complete(processor=grammar())
    assert plain.ids[:-1] in ANSWERS
    assert (plain.finish_reason, plain.stop, plain.satisfied, plain.speculation) == ("stop", EOS, True, None)
    engine = Engine(ScriptedModel(), ByteTokenizer())
    drafted = complete(engine, processor=grammar(), speculator=speculator())
    assert drafted.ids == plain.ids
    stats = drafted.speculation
    assert stats is not None
    assert stats.forced == stats.drafted == stats.accepted > 20
    assert stats.rejected == 0
    assert stats.bonus == stats.verify_steps == 3
    assert stats.verify_steps + stats.fallback_steps + stats.off_steps + 1 == engine.counters.passes
    assert stats.accepted + stats.bonus + stats.fallback_steps + stats.off_steps + 1 == len(drafted.ids)
    assert [tuple(source) for source in stats.sources] == [("grammar", stats.forced, stats.forced, False)]
    assert stats.verify_cost == pytest.approx(sum(CHEAP.verify_cost(n) for n in (10, 16, stats.forced - 26)), rel=0.05)


def test_neither_gate_nor_source_hears_of_forced_drafts() -> None:
    source = Source()
    drafting = speculator(source)
    completion = complete(processor=grammar(), speculator=drafting)
    assert completion.speculation is not None
    assert completion.speculation.estimated_speedup is None
    assert drafting._gate is not None
    assert not drafting._gate._window
    assert source.kept == []
    assert source.observed == PROMPT + completion.ids  # but for what was said


def test_forced_tokens_are_drafted_while_the_gate_is_closed_and_the_source_is_silent_or_broken() -> None:
    plain = complete(processor=grammar()).ids

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    for source in (Source(), Source(broken)):
        drafting = speculator(source)
        assert drafting._gate is not None
        drafting._gate._close(1000)
        drafting._n_empty = 1000
        completion = complete(processor=grammar(), speculator=drafting)
        assert completion.ids == plain
        assert completion.speculation is not None
        assert completion.speculation.verify_steps == 3
        assert completion.speculation.gate == "off"


def test_forced_tokens_that_do_not_pay_are_not_drafted() -> None:
    completion = complete(processor=grammar(), speculator=speculator(table=DEAR))
    assert completion.speculation is not None
    assert completion.speculation.drafted == completion.speculation.forced == 0
    assert completion.ids == complete(processor=grammar()).ids


def test_a_forced_span_is_as_long_as_it_pays() -> None:
    steep = CostTable([(1, 1.0), (4, 1.1), (5, 100.0)])
    engine = Engine(ScriptedModel(), ByteTokenizer())
    completion = complete(engine, processor=grammar(), speculator=speculator(table=steep))
    stats = completion.speculation
    assert stats is not None
    assert stats.forced / stats.verify_steps <= 3
    assert stats.forced > 15
    assert completion.ids == complete(processor=grammar()).ids


def test_without_prices_every_forced_token_is_drafted() -> None:
    completion = complete(processor=grammar(), draft_source=Source())
    assert completion.speculation is not None
    assert completion.speculation.verify_steps == 3


def test_other_drafts_end_where_the_grammar_does_and_their_source_knows() -> None:
    plain = complete(processor=grammar(CHOICES))
    source = Source(lambda context, _: [*plain.ids[len(context) - len(PROMPT) :][:2], 0, ord("x")])
    completion = complete(processor=grammar(CHOICES), draft_source=source)
    stats = completion.speculation
    assert completion.ids == plain.ids
    assert stats is not None
    assert stats.forced == 0
    assert set(source.kept) == {2}
    assert stats.drafted == stats.accepted == 2 * len(source.asked)
    assert stats.fallback_steps == 0


def test_a_draft_that_the_grammar_forbids_at_once_is_no_draft() -> None:
    source = Source(lambda *_: [0, 0])
    completion = complete(processor=grammar(CHOICES), draft_source=source)
    stats = completion.speculation
    assert stats is not None
    assert (stats.drafted, stats.verify_steps) == (0, 0)
    assert stats.fallback_steps == len(source.asked) == len(completion.ids) - 1
    assert set(source.kept) == {0}


class Blind(GrammarProcessor):
    """Its look-aheads fail."""

    def forced_tokens(self, max_tokens: int) -> Sequence[int]:  # noqa: ARG002
        raise ConstraintFailed("no forced tokens")


class Half(GrammarProcessor):
    """One of its look-aheads fails."""

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:  # noqa: ARG002
        raise ConstraintFailed("no valid prefix")


class Mad(GrammarProcessor):
    """Forces what cannot be."""

    def forced_tokens(self, max_tokens: int) -> Sequence[int]:
        return [-1, 10**9][: max_tokens + 1]


@pytest.mark.parametrize("kind", [Blind, Half, Mad])
def test_look_aheads_that_fail_or_lie_change_nothing(kind: type[GrammarProcessor]) -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer())
    processor = kind(matcher(CHOICES), open_scans(), end_ids={EOS})
    completion = complete(engine, processor=processor, draft_source=Source(lambda *_: [7]))
    assert completion.ids == complete(processor=grammar(CHOICES)).ids
    assert completion.satisfied is True
    assert engine.counters.draft_failures == (kind is not Mad)


def test_a_full_pool_takes_a_forced_draft_back() -> None:
    prompt = [3] * 62
    engine = Engine(ScriptedModel(kv_blocks=1), ByteTokenizer())
    source = Source()
    engine.submit(
        Request(
            prompt_ids=prompt,
            params=SamplingParams(max_tokens=2),
            processor=grammar(),
            speculator=speculator(source),
        )
    )
    completion = collect(prompt, engine.run())
    assert completion.finish_reason in ("length", "error")
    assert completion.ids == list(b'{"')[: len(completion.ids)]
    assert source.kept == []


# -- the end of an answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafts", [False, True])
def test_the_budget_ends_an_answer_wherever_it_is(drafts: bool) -> None:
    whole = complete(processor=grammar()).ids
    for n in (1, 5, 10, 12, len(whole) - 1, len(whole)):
        completion = complete(
            processor=grammar(),
            params=SamplingParams(max_tokens=n),
            speculator=speculator() if drafts else None,
        )
        assert completion.ids == whole[:n]
        assert completion.finish_reason == ("stop" if n == len(whole) else "length")
        # all of the answer was said, if not its end
        assert completion.satisfied is (n >= len(whole) - 1)


@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize(
    ("params", "text", "stop"),
    [
        (SamplingParams(stop=("na",)), '{"', "na"),
        (
            SamplingParams(
                stop=('": "A', '": "B'),
            ),
            '{"name',
            None,
        ),
        (SamplingParams(stop_token_ids=frozenset({ord("m")})), '{"na', ord("m")),
    ],
)
def test_stops_keep_their_meaning_inside_a_constrained_answer(
    params: SamplingParams, text: str, stop: Any, drafts: bool
) -> None:
    completion = complete(processor=grammar(), params=params, speculator=speculator() if drafts else None)
    assert completion.text == text
    assert completion.finish_reason == "stop"
    assert completion.stop in ((stop,) if stop is not None else params.stop)
    assert completion.satisfied is False


def test_a_stop_token_behind_a_whole_answer_leaves_it_whole() -> None:
    answers = [list(b"yes"), list(b"yes!")]
    model = ScriptedModel(script=lambda prefix: ord("!") if list(prefix[-3:]) == list(b"yes") else None)
    engine = Engine(model, ByteTokenizer())
    params = SamplingParams(stop_token_ids=frozenset({ord("!")}))
    completion = complete(engine, processor=grammar(answers), params=params)
    assert (completion.text, completion.stop, completion.satisfied) == ("yes", ord("!"), True)


def test_an_answer_with_a_constraint_cannot_ignore_ends() -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer())
    with pytest.raises(ConfigError, match=r"ignore_eos.*constraint"):
        engine.submit(Request(prompt_ids=PROMPT, params=SamplingParams(ignore_eos=True), processor=grammar()))
    assert engine.is_idle


def test_without_a_constraint_nothing_is_said_of_one() -> None:
    class Plain:
        def process(self, logits: Any, history: Any) -> None: ...

        def commit(self, token: int) -> None: ...

        def reset(self) -> None: ...

    class Silent(Plain):
        mask_costs: MaskCosts | None = None

        def is_satisfied(self, *, ended: bool) -> bool | None:  # noqa: ARG002
            return None

    for processor in (None, Plain(), Silent()):
        params = SamplingParams(max_tokens=3, ignore_eos=True)
        completion = complete(processor=processor, params=params)
        assert (completion.satisfied, completion.mask_costs) == (None, None)


def test_masks_are_counted() -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer())
    completion = complete(engine, processor=grammar(CHOICES), params=SamplingParams(temperature=1.0, seed=1))
    costs = completion.mask_costs
    assert costs is not None
    assert costs.masks >= len(CHOICES[0])
    assert costs.seconds > 0.0
    counters = engine.counters
    assert (counters.masks, counters.mask_s, counters.mask_wait_s) == (costs.masks, costs.seconds, costs.waited_s)


# -- thinking --------------------------------------------------------------------------------------------------

OPEN, CLOSE = 10, 11


@pytest.mark.parametrize("draft", ["none", "right", "past the marker", "nonsense"])
def test_the_grammar_begins_behind_the_marker_also_inside_a_draft(draft: str) -> None:
    thoughts = [OPEN, *b"hmm, let me see", CLOSE]

    def script(prefix: Sequence[int]) -> int | None:
        n = len(prefix) - len(PROMPT)
        if n < len(thoughts):
            return thoughts[n]
        return ord("`")  # it would rather begin with a fence

    def propose(context: Sequence[int], _: int) -> Sequence[int]:
        n = len(context) - len(PROMPT)
        if draft == "nonsense":
            return [99, EOS]
        if draft == "right":
            return thoughts[n : n + 5]
        return [*thoughts, *b'```json\n{"'][n : n + 20] if n < len(thoughts) else []

    for is_open in (False, True):
        if is_open:
            thoughts = thoughts[1:]
        thinking = Thinking(OPEN, CLOSE, is_open)
        engine = Engine(ScriptedModel(script=script), ByteTokenizer())
        source = Source(propose) if draft != "none" else None
        completion = complete(engine, processor=grammar(thinking=thinking), draft_source=source)
        assert completion.ids[: len(thoughts)] == thoughts
        assert completion.ids[len(thoughts) : -1] in ANSWERS
        assert (completion.satisfied, completion.stop) == (True, EOS)
        if draft in ("right", "past the marker"):
            assert completion.speculation is not None
            assert completion.speculation.accepted - completion.speculation.forced >= len(thoughts) - 5
            assert engine.counters.passes < len(completion.ids) / 2


def test_thoughts_cannot_end_the_answer() -> None:
    ends = lambda prefix: EOS if len(prefix) < len(PROMPT) + 9 else CLOSE  # noqa: E731
    engine = Engine(ScriptedModel(script=ends), ByteTokenizer())
    completion = complete(engine, processor=grammar(thinking=Thinking(OPEN, CLOSE, True)))
    assert completion.ids[9] == CLOSE
    assert EOS not in completion.ids[:-1]
    assert completion.satisfied is True
    cut = complete(
        Engine(ScriptedModel(script=ends), ByteTokenizer()),
        processor=grammar(thinking=Thinking(OPEN, CLOSE, True)),
        params=SamplingParams(max_tokens=5),
    )
    assert (cut.finish_reason, cut.satisfied) == ("length", False)


# -- what may go wrong -----------------------------------------------------------------------------------------


class Fragile(ScriptedMatcher):
    """Fails in a method once so many tokens were consumed."""

    fails_in, at = "masks", 10

    def masks(self, drafts: Sequence[int], out: Any) -> int:
        self._may_fail("masks")
        return super().masks(drafts, out)

    def take(self, token: int) -> bool:
        self._may_fail("take")
        return super().take(token)

    def copy(self) -> Fragile:
        other = type(self)(self._answers, vocab=VOCAB, end_ids=self._end_ids)
        other.fails_in, other.consumed = self.fails_in, self.consumed
        return other

    def _may_fail(self, method: str) -> None:
        if method == self.fails_in and len(self.consumed) == self.at:
            raise ConstraintFailed(f"{method} is broken")


@pytest.mark.parametrize("fails_in", ["masks", "take"])
@pytest.mark.parametrize("drafts", [False, True])
def test_a_broken_constraint_ends_its_own_answer_only(
    fails_in: str, drafts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker, "_MOST_TRIED", 1)  # so that a mask is needed
    alone = complete(processor=grammar()).ids
    engine = Engine(ScriptedModel(), ByteTokenizer())
    fragile = Fragile(ANSWERS, vocab=VOCAB, end_ids={EOS})
    fragile.fails_in = fails_in
    processors = [grammar(), GrammarProcessor(fragile, open_scans(), end_ids={EOS}), grammar()]
    events: dict[int, list[EngineEvent]] = {
        engine.submit(Request(prompt_ids=PROMPT, processor=processor, speculator=speculator() if drafts else None)): []
        for processor in processors
    }
    for event in engine.run():
        events[event.request_id].append(event)
    done = [collect(PROMPT, own) for own in events.values()]
    assert [completion.finish_reason for completion in done] == ["stop", "error", "stop"]
    assert done[0].ids == done[2].ids == alone
    assert isinstance(done[1].error, ConstraintFailed)
    assert done[1].ids == alone[: len(done[1].ids)]
    assert len(done[1].ids) == 10
    assert [completion.satisfied for completion in done] == [True, False, True]


def test_a_processor_that_fails_before_the_pass_ends_its_own_answer_only() -> None:
    class Unready(GrammarProcessor):
        def prepare(self, drafts: Sequence[int]) -> None:
            super().prepare(drafts)
            if len(self._masks.matcher.copy().consumed) == 10:  # type: ignore[attr-defined]
                raise ConstraintFailed("not ready")

    engine = Engine(ScriptedModel(), ByteTokenizer())
    events: dict[int, list[EngineEvent]] = {
        engine.submit(Request(prompt_ids=PROMPT, processor=processor)): []
        for processor in (grammar(), Unready(matcher(), open_scans(), end_ids={EOS}))
    }
    for event in engine.run():
        events[event.request_id].append(event)
    good, bad = (collect(PROMPT, own) for own in events.values())
    assert (good.finish_reason, good.satisfied) == ("stop", True)
    assert (bad.finish_reason, bad.satisfied, len(bad.ids)) == ("error", False, 10)
    assert isinstance(bad.error, ConstraintFailed)


def test_a_cancel_while_a_mask_is_computed_disturbs_nobody() -> None:
    go_on, began = Event(), Event()

    class Slow(ScriptedMatcher):
        def masks(self, drafts: Sequence[int], out: Any) -> int:
            began.set()
            assert go_on.wait(10.0)
            return super().masks(drafts, out)

        def copy(self) -> Slow:
            return Slow(self._answers, vocab=VOCAB, end_ids=self._end_ids)

    class Failing(ScriptedModel):
        def forward(self, batch: Any) -> Any:  # noqa: ARG002
            assert began.wait(10.0)  # a mask is being computed now
            raise MemoryError("no memory for this pass")

    engine = Engine(Failing(), ByteTokenizer())
    processor = GrammarProcessor(Slow(CHOICES, vocab=VOCAB, end_ids={EOS}), open_scans(), end_ids={EOS})
    request = Request(prompt_ids=PROMPT, processor=processor)
    slow = engine.submit(request)
    with pytest.raises(MemoryError):
        engine.step()
    go_on.set()
    engine.cancel(slow)
    (finish,) = engine.drain()
    assert isinstance(finish, FinishEvent)
    assert (finish.reason, finish.satisfied) == ("cancelled", False)
    # the processor serves another answer at once
    assert complete(processor=processor).ids == complete(processor=grammar(CHOICES)).ids


def test_a_pass_that_failed_is_tried_again_with_the_same_masks() -> None:
    class Unlucky(ScriptedModel):
        fails = 0

        def forward(self, batch: Any) -> Any:
            self.fails += 1
            if self.fails % 2:
                raise MemoryError("no memory for this pass")
            return super().forward(batch)

    engine = Engine(Unlucky(), ByteTokenizer())
    engine.submit(Request(prompt_ids=PROMPT, processor=grammar(), speculator=speculator()))
    events: list[EngineEvent] = []
    while not engine.is_idle:
        try:
            events += engine.step()
        except MemoryError:
            continue
    assert collect(PROMPT, events).ids == complete(processor=grammar()).ids


def test_many_constrained_sequences_at_once_are_as_alone() -> None:
    params = [
        replace(SamplingParams(seed=seed), temperature=0.0 if seed % 2 else 9.0, logprobs=2) for seed in range(24)
    ]
    alone = [complete(processor=grammar(), params=one) for one in params]
    engine = Engine(ScriptedModel(kv_blocks=64), ByteTokenizer())
    events: dict[int, list[EngineEvent]] = {}
    for seed, one in enumerate(params):
        drafting = speculator() if seed % 3 else None
        request = Request(prompt_ids=PROMPT, processor=grammar(), params=one, speculator=drafting)
        events[engine.submit(request)] = []
    for event in engine.run():
        events[event.request_id].append(event)
    for own, expected in zip(events.values(), alone, strict=True):
        got = collect(PROMPT, own)
        assert (got.ids, got.logprobs, got.satisfied) == (expected.ids, expected.logprobs, True)
    assert len({tuple(one.ids) for one in alone}) > 2


def test_nobody_looks_ahead_for_a_processor_that_cannot() -> None:
    class Bans:
        def process(self, logits: Any, history: Any) -> None:  # noqa: ARG002
            logits[EOS] = -np.inf

        def commit(self, token: int) -> None: ...

        def reset(self) -> None: ...

    drafting = speculator()
    completion = complete(processor=Bans(), speculator=drafting, params=SamplingParams(max_tokens=5))
    assert drafting._structure is None
    assert completion.speculation is not None
    assert completion.speculation.sources == ()


def wishing(tokens: Sequence[int]) -> Engine:
    """An engine whose model wants these tokens behind the prompt, whatever it had to say before."""
    script = {len(PROMPT) + i: token for i, token in enumerate(tokens)}
    return Engine(ScriptedModel(script=lambda prefix: script.get(len(prefix))), ByteTokenizer())


class Masked:
    """The same grammar, of which nobody knows that it does nothing but forbid."""

    def __init__(self, processor: GrammarProcessor) -> None:
        self.process, self.commit, self.reset = processor.process, processor.commit, processor.reset


@pytest.mark.parametrize("answers", [ANSWERS, CHOICES], ids=["forced", "free"])
@pytest.mark.parametrize("thinking", [None, Thinking(200, 201), Thinking(200, 201, is_open=True)], ids=repr)
def test_the_greatest_logit_is_taken_without_a_mask_where_a_mask_would_leave_it(
    answers: Sequence[Sequence[int]], thinking: Thinking | None
) -> None:
    params = SamplingParams(max_tokens=60, logprobs=2)
    wishes = [list(answer) for answer in answers[1::3]]
    for wish in wishes:
        # it wants to say this behind its prompt, and what it wants elsewhere is mostly forbidden
        said = [
            complete(wishing(wish[: len(wish) // 2]), processor=processor, params=params)
            for processor in (grammar(answers, thinking), Masked(grammar(answers, thinking)))
        ]
        assert (said[0].ids, said[0].logprobs, said[0].text) == (said[1].ids, said[1].logprobs, said[1].text)


def test_no_mask_is_computed_for_a_model_that_says_what_it_may() -> None:
    wish = [*CHOICES[77], EOS]
    completion = complete(wishing(wish), processor=grammar(CHOICES))
    assert (completion.ids, completion.satisfied) == (wish, True)
    assert completion.mask_costs is not None
    assert completion.mask_costs.masks <= 1  # begun ahead of the first token
