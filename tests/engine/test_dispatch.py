"""Several readers of one engine: threads, and half-read streams."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine.dispatch import Dispatcher
from fucina.engine.engine import Engine
from fucina.engine.events import FinishEvent
from fucina.engine.request import Request
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

PARAMS = SamplingParams(max_tokens=30, ignore_eos=True, temperature=1.0, seed=1)


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def dispatcher(model: ScriptedModel) -> Dispatcher:
    return Dispatcher(Engine(model, ByteTokenizer()))


def request(i: int) -> Request:
    return Request(prompt_ids=[i] * (10 * i + 1), params=PARAMS)


def test_threads_share_one_engine(
    dispatcher: Dispatcher, naive: Callable[..., Any], gather: Callable[..., Any]
) -> None:
    got: dict[int, Any] = {}
    start = threading.Barrier(6)

    def ask(i: int) -> None:
        start.wait()
        for _ in range(5):
            (answer,) = gather(dispatcher.events(dispatcher.submit(request(i)))).values()
            got.setdefault(i, []).append(answer)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(6):
        want = naive(ScriptedModel(), list(request(i).prompt_ids), PARAMS)
        assert got[i] == [want] * 5


def test_interleaved_streams_run_in_one_batch(
    dispatcher: Dispatcher, model: ScriptedModel, gather: Callable[..., Any]
) -> None:
    streams = [dispatcher.events(dispatcher.submit(request(i))) for i in (1, 2)]
    events = []
    for pair in zip(*streams, strict=True):
        events += pair
    assert sorted(len(answer.ids) for answer in gather(events).values()) == [30, 30]
    # two prompts of 11 and 21 tokens fit one pass, then both decode together
    assert model.n_forwards == 30


def test_closing_a_stream_cancels_it_and_leaves_the_others(dispatcher: Dispatcher, model: ScriptedModel) -> None:
    dropped, kept = (dispatcher.events(dispatcher.submit(request(i))) for i in (1, 2))
    next(dropped)
    next(kept)
    dropped.close()
    rest = list(kept)
    assert len(rest) == 30  # 29 tokens and the end
    assert dispatcher.counters().finished == {"stop": 0, "length": 1, "cancelled": 1, "error": 0}
    assert model.kv_pool.n_free == model.kv_pool.capacity


def test_a_stream_never_begun_is_cancelled_by_abandon(dispatcher: Dispatcher) -> None:
    request_id = dispatcher.submit(request(1))
    dispatcher.abandon(request_id)
    list(dispatcher.events(dispatcher.submit(request(2))))
    assert dispatcher.counters().finished["cancelled"] == 1


def test_cancel_from_outside_is_told_to_the_reader(dispatcher: Dispatcher) -> None:
    request_id = dispatcher.submit(request(1))
    events = dispatcher.events(request_id)
    next(events)
    dispatcher.cancel(request_id)
    (last,) = events
    assert isinstance(last, FinishEvent)
    assert last.reason == "cancelled"


def test_close_ends_every_stream(dispatcher: Dispatcher) -> None:
    events = dispatcher.events(dispatcher.submit(request(1)))
    next(events)
    dispatcher.close()
    (last,) = events
    assert isinstance(last, FinishEvent)
    assert last.reason == "cancelled"


def test_a_failed_pass_reaches_its_reader_and_frees_its_memory(
    dispatcher: Dispatcher, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = dispatcher.events(dispatcher.submit(request(3)))
    next(events)

    def failing(*_: Any) -> Any:
        raise RuntimeError("no arithmetic today")

    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", failing)
        with pytest.raises(RuntimeError, match="no arithmetic"):
            next(events)
    assert model.kv_pool.n_free == model.kv_pool.capacity
    assert len(list(dispatcher.events(dispatcher.submit(request(3))))) == 31


def test_a_stream_that_is_collected_in_the_middle_of_a_step(
    dispatcher: Dispatcher, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten, kept = [dispatcher.events(dispatcher.submit(request(i))) for i in (1, 2)]
    next(forgotten)
    whole = model.forward

    def collecting(batch: Any) -> Any:
        forgotten.close()  # as the garbage collector would
        return whole(batch)

    monkeypatch.setattr(model, "forward", collecting)
    assert len(list(kept)) == 31
    assert dispatcher.counters().finished == {"stop": 0, "length": 1, "cancelled": 1, "error": 0}
    assert model.kv_pool.n_free == model.kv_pool.capacity
