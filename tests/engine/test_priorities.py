"""Who comes first, who gives way, and when a request has no more time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine import arrivals
from fucina.engine.arrivals import Arrivals
from fucina.engine.engine import Engine, EngineConfig
from fucina.engine.events import Event, FinishEvent, TokenEvent
from fucina.engine.request import Request
from fucina.errors import ConfigError, DeadlineExceeded
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

LONG = SamplingParams(max_tokens=100, ignore_eos=True)
SHORT = SamplingParams(max_tokens=5, ignore_eos=True)


class Clock:
    """The time of deadlines, which passes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(arrivals, "monotonic", clock)
    return clock


def ended(events: list[Event]) -> list[int]:
    return [event.request_id for event in events if isinstance(event, FinishEvent)]


def test_higher_priorities_are_let_in_first() -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer(), EngineConfig(max_running=1))
    ids = [engine.submit(Request(prompt_ids=[1], params=SHORT, priority=p)) for p in (0, 5, -1, 5)]
    assert ended(list(engine.run())) == [ids[1], ids[3], ids[0], ids[2]]


@pytest.mark.parametrize("config", [EngineConfig(max_running=1), EngineConfig()])
def test_lower_priorities_give_way_to_a_higher_one_and_lose_nothing(
    naive: Callable[..., Any], gather: Callable[..., Any], config: EngineConfig
) -> None:
    engine = Engine(ScriptedModel(kv_blocks=4), ByteTokenizer(), config)
    low = engine.submit(Request(prompt_ids=[1] * 100, params=LONG))
    events = [event for _ in range(10) for event in engine.step()]
    high = engine.submit(Request(prompt_ids=[2] * 200, params=SHORT, priority=1))
    events += list(engine.run())
    assert ended(events) == [high, low]
    assert engine.counters.preemptions == 1
    answers = gather(events)
    assert answers[low] == naive(ScriptedModel(), [1] * 100, LONG)
    assert answers[high] == naive(ScriptedModel(), [2] * 200, SHORT)


def test_equal_priorities_do_not_push_each_other_out() -> None:
    engine = Engine(ScriptedModel(kv_blocks=4), ByteTokenizer())
    first = engine.submit(Request(prompt_ids=[1] * 100, params=SHORT, priority=1))
    engine.step()
    second = engine.submit(Request(prompt_ids=[2] * 200, params=SHORT, priority=1))
    assert ended(list(engine.run())) == [first, second]
    assert engine.counters.preemptions == 0


def test_the_least_important_gives_way_when_memory_runs_out(
    naive: Callable[..., Any], gather: Callable[..., Any]
) -> None:
    model = ScriptedModel(kv_blocks=4)
    engine = Engine(model, ByteTokenizer())
    ids = [engine.submit(Request(prompt_ids=[i] * 60, params=LONG, priority=i)) for i in (2, 1, 3)]
    events = list(engine.run())
    assert ended(events) == [ids[2], ids[0], ids[1]]
    assert engine.counters.preemptions > 0
    answers = gather(events)
    for request_id, prompt in zip(ids, ([2] * 60, [1] * 60, [3] * 60), strict=True):
        assert answers[request_id] == naive(ScriptedModel(), prompt, LONG)


def test_a_short_prompt_behind_a_long_one_starts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(ScriptedModel(context_length=4096, max_rows=512), ByteTokenizer())
    monkeypatch.setattr(engine._pacing, "record", lambda *_: None)  # prompts go by the table, not by the clock
    writing = engine.submit(Request(prompt_ids=[1], params=SamplingParams(ignore_eos=True)))
    engine.step()
    long = engine.submit(Request(prompt_ids=[2] * 4000, params=SHORT))
    engine.step()
    short = engine.submit(Request(prompt_ids=[3] * 8, params=SHORT))
    first: dict[int, int] = {}
    for step in range(40):
        for event in engine.step():
            first.setdefault(event.request_id, step)
    assert first[writing] == 0
    assert first[short] < 10
    assert first.get(long, 40) > first[short] + 5
    engine.close()


@pytest.mark.parametrize("priority", [True, 1.0, "high", None])
def test_priorities_that_cannot_be(priority: Any) -> None:
    with pytest.raises(ConfigError, match=r"^priority: "):
        Request(prompt_ids=[1], priority=priority)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), True, "soon"])
def test_deadlines_that_cannot_be(seconds: Any) -> None:
    with pytest.raises(ConfigError, match=r"^deadline_s: "):
        Request(prompt_ids=[1], deadline_s=seconds)


def test_a_deadline_ends_an_answer_and_keeps_what_was_given(naive: Callable[..., Any], clock: Clock) -> None:
    model = ScriptedModel()
    engine = Engine(model, ByteTokenizer())
    late = engine.submit(Request(prompt_ids=[1], params=LONG, deadline_s=0.05))
    other = engine.submit(Request(prompt_ids=[2], params=LONG))
    events = engine.step()
    clock.seconds += 0.06
    events += engine.step()
    finish = next(event for event in events if isinstance(event, FinishEvent))
    assert (finish.request_id, finish.reason) == (late, "error")
    assert isinstance(finish.error, DeadlineExceeded)
    assert "0.05 s" in str(finish.error)
    given = [event.token for event in events if isinstance(event, TokenEvent) and event.request_id == late]
    assert given == naive(ScriptedModel(), [1], LONG).ids[:1]
    events += list(engine.run())
    tokens = [event.token for event in events if isinstance(event, TokenEvent) and event.request_id == other]
    assert tokens == naive(ScriptedModel(), [2], LONG).ids
    assert model.kv_pool.n_free == model.kv_pool.capacity


def test_a_deadline_counts_while_a_request_waits(clock: Clock) -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer(), EngineConfig(max_running=1))
    first = engine.submit(Request(prompt_ids=[1], params=LONG))
    late = engine.submit(Request(prompt_ids=[2], params=LONG, deadline_s=0.01))
    engine.step()
    clock.seconds += 0.02
    assert ended(engine.step()) == [late]
    assert ended(list(engine.run())) == [first]


def test_a_deadline_that_is_kept_does_nothing(clock: Clock) -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer())
    engine.submit(Request(prompt_ids=[1], params=SHORT, deadline_s=0.2))
    finish = list(engine.run())[-1]
    assert isinstance(finish, FinishEvent)
    assert finish.reason == "length"
    clock.seconds += 0.21
    assert engine.step() == []


def test_those_that_leave_the_queue_are_forgotten() -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer(), EngineConfig(max_running=1))
    engine.submit(Request(prompt_ids=[1], params=LONG))
    engine.step()
    keeps = engine.submit(Request(prompt_ids=[1], params=SHORT))
    for _ in range(1000):
        engine.cancel(engine.submit(Request(prompt_ids=[1], params=SHORT)))
    assert len(engine._waiting._order) < 100
    assert isinstance(engine._waiting, Arrivals)
    assert engine._waiting.first().id == keeps
    engine.close()
