"""The thread that computes for callers who must not wait: order of events, cancelling, holding, failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Event as Signal

import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine.completion import collect
from fucina.engine.events import Event, FinishEvent, TokenEvent
from fucina.engine.model import Model
from fucina.engine.request import Request
from fucina.engine.service import Service
from fucina.errors import Closed, ConfigError, ContextFull, DeadlineExceeded
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

PROMPT = [1, 2, 3]
SHORT, LONG = SamplingParams(max_tokens=5, ignore_eos=True), SamplingParams(ignore_eos=True)


def counting(prefix: Sequence[int]) -> int:
    return 65 + len(prefix) % 26


@pytest.fixture
def scripted() -> ScriptedModel:
    return ScriptedModel(script=counting)


@pytest.fixture
def model(scripted: ScriptedModel) -> Iterator[Model]:
    with Model(scripted, ByteTokenizer()) as model:
        yield model


@pytest.fixture
def service(model: Model) -> Iterator[Service]:
    service = model.service()
    yield service
    service.close()


#: Nothing here takes so long; it turns a wait for ever into a failure.
PATIENCE_S = 120.0


@contextmanager
def waiting(scripted: ScriptedModel, behind: int = 0) -> Iterator[None]:
    """Let no pass end while the block runs, where more than `behind` tokens are known: what is said is heard first."""
    go_on = Signal()

    def script(prefix: Sequence[int]) -> int:
        assert len(prefix) <= behind or go_on.wait(PATIENCE_S)
        return counting(prefix)

    scripted.script = script
    yield
    go_on.set()


class Inbox:
    """Where a request's events arrive."""

    def __init__(self) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()

    def take(self, event: Event) -> None:
        self.events.put(event)

    def rest(self) -> list[Event]:
        events = [self.events.get(timeout=PATIENCE_S)]
        while not isinstance(events[-1], FinishEvent):
            events.append(self.events.get(timeout=PATIENCE_S))
        return events

    def end(self) -> FinishEvent:
        last = self.rest()[-1]
        assert isinstance(last, FinishEvent)
        return last


def test_events_are_those_of_generate(model: Model, service: Service) -> None:
    wanted = model.generate(PROMPT, SHORT)
    inboxes = [Inbox() for _ in range(3)]
    for inbox in inboxes:
        service.submit(model.request(PROMPT, SHORT), inbox.take)
    for inbox in inboxes:
        completion = collect(PROMPT, inbox.rest())
        assert (completion.ids, completion.text) == (wanted.ids, wanted.text)


def test_a_library_call_beside_a_service(model: Model, service: Service) -> None:
    inbox = Inbox()
    ticket = service.submit(model.request(PROMPT, LONG), inbox.take)
    assert model.generate(PROMPT, SHORT).usage.completion_tokens == 5
    ticket.cancel()
    assert inbox.end().reason in ("cancelled", "length")


def test_cancelling_gives_the_blocks_back(model: Model, service: Service, scripted: ScriptedModel) -> None:
    inbox = Inbox()
    with waiting(scripted, behind=len(PROMPT)):
        ticket = service.submit(model.request(PROMPT, LONG), inbox.take)
        inbox.events.get(timeout=PATIENCE_S)
        ticket.hold(held=True)
        ticket.cancel()
    assert inbox.end().reason == "cancelled"
    ticket.cancel()  # nobody hears it
    model.forget_prefixes()
    assert scripted.kv_pool.n_free == scripted.kv_pool.capacity


def test_what_is_held_waits_and_others_do_not(model: Model, service: Service, scripted: ScriptedModel) -> None:
    slow, quick = Inbox(), Inbox()
    with waiting(scripted, behind=len(PROMPT)):
        held = service.submit(model.request(PROMPT, LONG), slow.take)
        slow.events.get(timeout=PATIENCE_S)
        held.hold(held=True)
        service.submit(model.request(PROMPT, SHORT), quick.take)
    assert quick.end().usage.completion_tokens == 5
    assert isinstance(slow.events.get_nowait(), TokenEvent)  # of the pass in which the hold was said
    with pytest.raises(Empty):
        slow.events.get_nowait()
    held.hold(held=False)
    assert slow.end().reason == "length"


def test_a_deadline_passes_while_everything_is_held(model: Model, service: Service, scripted: ScriptedModel) -> None:
    inbox = Inbox()
    with waiting(scripted):
        service.submit(model.request(PROMPT, LONG, deadline_s=0.3), inbox.take).hold(held=True)
    end = inbox.end()
    assert isinstance(end.error, DeadlineExceeded)


def test_what_the_engine_refuses_is_told_as_an_end(service: Service) -> None:
    inbox = Inbox()
    service.submit(Request(prompt_ids=[1] * 100_000), inbox.take)
    assert isinstance(inbox.end().error, ContextFull)


def test_a_failed_pass_ends_what_was_there_and_nothing_after_it(
    model: Model, service: Service, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = scripted.forward
    failures = iter([RuntimeError("the pass failed")])

    def fails_once(batch: object) -> object:
        for failure in failures:
            raise failure
        return forward(batch)  # type: ignore[arg-type]

    monkeypatch.setattr(scripted, "forward", fails_once)
    first, second = Inbox(), Inbox()
    service.submit(model.request(PROMPT, LONG), first.take)
    assert isinstance(first.end().error, RuntimeError)
    service.submit(model.request(PROMPT, SHORT), second.take)
    assert second.end().reason == "length"


def test_a_closed_service_cancels_and_takes_nothing(model: Model) -> None:
    service, inbox = model.service(), Inbox()
    service.submit(model.request(PROMPT, LONG), inbox.take)
    service.close()
    service.close()
    assert inbox.end().reason in ("cancelled", "length")
    with pytest.raises(Closed):
        service.submit(model.request(PROMPT, SHORT), inbox.take)


def test_unknown_options_are_refused_by_name(model: Model) -> None:
    with pytest.raises(TypeError, match="'temprature'"):
        model.generate(PROMPT, temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'references'"):
        model.conversation().send("hi", references=["x"])  # type: ignore[call-overload]


def test_priority_and_deadline_reach_the_request(model: Model) -> None:
    request = model.request(PROMPT, priority=3, deadline_s=1.5, cache_salt="mine")
    assert (request.priority, request.deadline_s, request.salt) == (3, 1.5, "mine")
    with pytest.raises(ConfigError, match="priority"):
        model.generate(PROMPT, priority=1.5)  # type: ignore[arg-type]


def test_closing_with_a_farewell_ends_what_runs_with_that_error(model: Model, scripted: ScriptedModel) -> None:
    service, inbox = model.service(), Inbox()
    farewell = Closed("the end")
    with waiting(scripted):
        service.submit(Request(prompt_ids=PROMPT, params=LONG), inbox.take)
        service.order(lambda: service.close(farewell))
    service.close()
    end = inbox.rest()[-1]
    assert isinstance(end, FinishEvent)
    assert (end.reason, end.error) == ("error", farewell)
    with pytest.raises(Closed):
        service.submit(Request(prompt_ids=PROMPT, params=LONG), inbox.take)
