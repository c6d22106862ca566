"""A fault at every call of every operation: the invariant holds, others do not notice, and going on gives equal ids."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from fucina.decoding.params import SamplingParams
from fucina.decoding.picker import Picker
from fucina.engine.engine import Engine, EngineConfig
from fucina.engine.events import Event, FinishEvent
from fucina.engine.request import Request
from fucina.errors import AllTokensMasked, BadLogits, InvalidDecodeState
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.byte_tokenizer import ByteStream, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel


class Injected(Exception):
    """The fault."""


class BanLast:
    """A processor without state of its own."""

    def process(self, logits: Any, history: Sequence[int]) -> None:
        logits[history[-1]] = float("-inf")

    def commit(self, token: int) -> None: ...

    def reset(self) -> None: ...


class Knows:
    """A source of drafts, the second of which is often wrong."""

    def __init__(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        self.n_prompt, self.answer = len(prompt), answer

    def suggest(self, context: Sequence[int], _: int) -> Sequence[int]:
        done = len(context) - self.n_prompt
        return [*self.answer[done : done + 1], 7]

    def observe(self, committed: Sequence[int]) -> None: ...


JOBS = [
    ([1, 2, 3], SamplingParams(max_tokens=9, ignore_eos=True)),
    ([5] * 70, SamplingParams(max_tokens=9, ignore_eos=True, temperature=1.0, seed=4)),
    ([9] * 20, SamplingParams(max_tokens=9, ignore_eos=True, repeat_penalty=1.4, stop=("@@",))),
]
POINTS: dict[str, tuple[Any, str]] = {
    "reserve": (KvSequence, "reserve"),
    "advance": (KvSequence, "advance"),
    "forward": (ScriptedModel, "forward"),
    "pick": (Picker, "pick"),
    "process": (BanLast, "process"),
    "commit": (BanLast, "commit"),
    "detokenize": (ByteStream, "push"),
    "flush": (ByteStream, "flush"),
    "reset": (BanLast, "reset"),
}


@pytest.fixture(scope="module")
def wanted(naive: Callable[..., Any]) -> list[Any]:
    return [naive(ScriptedModel(), p, params, BanLast() if i == 2 else None) for i, (p, params) in enumerate(JOBS)]


def request_for(index: int, wanted: list[Any], done: int = 0) -> Request:
    prompt, params = JOBS[index]
    options = {name: getattr(params, name) for name in SamplingParams.__slots__}
    return Request(
        prompt_ids=[*prompt, *wanted[index].ids[:done]],
        params=SamplingParams(**{**options, "max_tokens": 9 - done}),
        processor=BanLast() if index == 2 else None,
        draft_source=Knows(prompt, wanted[index].ids) if index == 0 and not done else None,
    )


def hold_invariant(engine: Engine) -> None:
    for session in engine._running.values():
        assert session.kv.length <= len(session.history) - 1
        if len(session.history) > session.n_prompt:
            assert session.kv.length == len(session.history) - 1


def events_through_faults(engine: Engine, fault: type[BaseException]) -> Iterator[Event]:
    """Step until idle, stepping again where a step raised the fault."""
    while not engine.is_idle:
        with contextlib.suppress(fault):
            yield from engine.step()
        hold_invariant(engine)


def break_nth(monkeypatch: pytest.MonkeyPatch, point: str, nth: int, fault: BaseException, late: bool) -> list[int]:
    """Make the nth call raise, before or after doing its work; gives the list that counts the calls."""
    owner, name = POINTS[point]
    whole: Callable[..., Any] = getattr(owner, name)
    calls: list[int] = []

    def broken(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == nth and not late:
            raise fault
        result = whole(*arguments)
        if len(calls) == nth:
            raise fault
        return result

    monkeypatch.setattr(owner, name, broken)
    return calls


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_a_fault_anywhere(
    point: str, late: bool, wanted: list[Any], gather: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    n_faults = 0
    for nth in range(1, 200):
        with monkeypatch.context() as patch:
            model = ScriptedModel(max_rows=16)
            engine = Engine(model, ByteTokenizer(), EngineConfig(prefill_chunk=12))
            ids = [engine.submit(request_for(index, wanted)) for index in range(3)]
            calls = break_nth(patch, point, nth, Injected(), late)
            events = list(events_through_faults(engine, Injected))
            if len(calls) < nth:
                break
        n_faults += 1
        answers = gather(events)
        failed = [event for event in events if isinstance(event, FinishEvent) and event.reason == "error"]
        assert len(failed) <= 1
        assert all(isinstance(event.error, Injected) for event in failed)
        if point in ("forward", "advance"):
            assert not failed, "a failed pass is tried again"
        for index, request_id in enumerate(ids):
            if answers[request_id].reason == "error":
                done = len(answers[request_id].ids)
                assert answers[request_id].ids == wanted[index].ids[:done]
                if done < 9:
                    again = engine.submit(request_for(index, wanted, done))
                    assert gather(engine.run())[again].ids == wanted[index].ids[done:]
            else:
                assert answers[request_id] == wanted[index]
        assert model.kv_pool.n_free == model.kv_pool.capacity
    assert n_faults >= (1 if point == "reset" else 3 if point == "flush" else 9)


@pytest.mark.parametrize("point", ["reserve", "forward", "pick"])
def test_an_interrupted_step_can_be_tried_again(
    point: str, wanted: list[Any], gather: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for nth in range(1, 40, 3):
        with monkeypatch.context() as patch:
            model = ScriptedModel(max_rows=16)
            engine = Engine(model, ByteTokenizer(), EngineConfig(prefill_chunk=12))
            ids = [engine.submit(request_for(index, wanted)) for index in range(3)]
            break_nth(patch, point, nth, KeyboardInterrupt(), late=False)
            answers = gather(list(events_through_faults(engine, KeyboardInterrupt)))
        assert [answers[request_id] for request_id in ids] == wanted


def test_a_model_that_says_nan_ends_its_own_sequence_only(wanted: list[Any], gather: Callable[..., Any]) -> None:
    class Damaged(ScriptedModel):
        def forward(self, batch: Any) -> Any:
            logits = super().forward(batch)
            for row, span in enumerate(s for s in batch.spans if s.n_logits):
                if span.start >= 75:
                    logits[row, 3] = float("nan")
            return logits

    engine = Engine(Damaged(), ByteTokenizer())
    ids = [engine.submit(request_for(index, wanted)) for index in (1, 2)]
    events = list(engine.run())
    answers = gather(events)
    assert answers[ids[1]] == wanted[2]
    assert answers[ids[0]].reason == "error"
    assert answers[ids[0]].ids == wanted[1].ids[:6]
    errors = [event.error for event in events if isinstance(event, FinishEvent) and event.error is not None]
    assert len(errors) == 1
    assert isinstance(errors[0], BadLogits)


def test_a_processor_that_masks_all_ends_its_own_sequence_only(wanted: list[Any], gather: Callable[..., Any]) -> None:
    class Closing(BanLast):
        def process(self, logits: Any, history: Sequence[int]) -> None:
            if len(history) > 5:
                logits[:] = float("-inf")

    engine = Engine(ScriptedModel(), ByteTokenizer())
    masked = engine.submit(Request(prompt_ids=[1, 2, 3], processor=Closing()))
    other = engine.submit(request_for(1, wanted))
    events = list(engine.run())
    answers = gather(events)
    assert answers[other] == wanted[1]
    assert (answers[masked].reason, len(answers[masked].ids)) == ("error", 3)
    assert any(isinstance(event, FinishEvent) and isinstance(event.error, AllTokensMasked) for event in events)


@pytest.mark.parametrize("wrong", ["longer", "shorter"])
def test_history_and_cache_that_disagree_are_a_named_bug(
    wrong: str, wanted: list[Any], gather: Callable[..., Any]
) -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer())
    ids = [engine.submit(request_for(index, wanted)) for index in (1, 2)]
    events = [*engine.step(), *engine.step(), *engine.step()]
    kv = engine._running[ids[0]].kv
    if wrong == "longer":
        kv.reserve(1)
        kv.advance(1)
    else:
        kv.truncate(kv.length - 1)
    events += engine.run()
    failed = [event for event in events if isinstance(event, FinishEvent) and event.reason == "error"]
    assert [event.request_id for event in failed] == ids[:1]
    assert isinstance(failed[0].error, InvalidDecodeState)
    assert gather(events)[ids[1]] == wanted[2]
