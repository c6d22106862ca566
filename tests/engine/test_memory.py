"""When KV blocks run out: requests wait or give way, and come to the same end; only what can never fit is an error."""

from collections.abc import Callable
from typing import Any

import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine.engine import Engine, EngineConfig
from fucina.engine.events import FinishEvent
from fucina.engine.request import Request
from fucina.errors import KvPoolFull
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

PARAMS = SamplingParams(max_tokens=100, ignore_eos=True)
PROMPTS = [[i] * 60 for i in range(1, 5)]


def test_sequences_that_grow_beyond_the_pool_give_way_and_lose_nothing(
    naive: Callable[..., Any], gather: Callable[..., Any]
) -> None:
    # each needs three blocks in the end; the pool has room for one whole sequence and a little
    wanted = [naive(ScriptedModel(), prompt, PARAMS) for prompt in PROMPTS]
    model = ScriptedModel(kv_blocks=4)
    engine = Engine(model, ByteTokenizer())
    ids = [engine.submit(Request(prompt_ids=prompt, params=PARAMS)) for prompt in PROMPTS]
    answers = gather(engine.run())
    assert [answers[request_id] for request_id in ids] == wanted
    assert engine.counters.kv_waits > 0
    assert model.kv_pool.n_free == 4


def test_requests_wait_for_room_in_order() -> None:
    model = ScriptedModel(kv_blocks=3)
    engine = Engine(model, ByteTokenizer())
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    ids = [engine.submit(Request(prompt_ids=[i] * 100, params=params)) for i in (1, 2, 3)]
    ended = [event.request_id for event in engine.run() if isinstance(event, FinishEvent)]
    assert ended == ids
    assert engine.counters.kv_waits == 0, "whoever would not fit is not let in"


def test_what_can_never_fit_is_an_error_and_others_go_on(gather: Callable[..., Any]) -> None:
    model = ScriptedModel(kv_blocks=2)
    engine = Engine(model, ByteTokenizer())
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    small = engine.submit(Request(prompt_ids=[1], params=params))
    large = engine.submit(Request(prompt_ids=[2] * 200, params=params))
    after = engine.submit(Request(prompt_ids=[3], params=params))
    events = list(engine.run())
    answers = gather(events)
    assert [answers[i].reason for i in (small, large, after)] == ["length", "error", "length"]
    error = next(event.error for event in events if isinstance(event, FinishEvent) and event.error)
    assert isinstance(error, KvPoolFull)
    assert "200 tokens" in str(error)
    assert model.kv_pool.n_free == 2


def test_a_sequence_alone_that_outgrows_the_pool_keeps_what_it_gave(
    naive: Callable[..., Any], gather: Callable[..., Any]
) -> None:
    engine = Engine(ScriptedModel(kv_blocks=1), ByteTokenizer())
    request_id = engine.submit(Request(prompt_ids=PROMPTS[0], params=PARAMS))
    answer = gather(engine.run())[request_id]
    assert answer.reason == "error"
    # 64 positions, and the last token needs none
    assert answer.ids == naive(ScriptedModel(), PROMPTS[0], PARAMS).ids[:5]


def test_blocks_held_by_an_idle_cache_count(gather: Callable[..., Any]) -> None:
    model = ScriptedModel(kv_blocks=3)
    engine = Engine(model, ByteTokenizer())
    kv = KvSequence(model.kv_pool)
    kv.reserve(128)
    request_id = engine.submit(Request(prompt_ids=[1] * 100, params=SamplingParams(max_tokens=1)))
    assert gather(engine.run())[request_id].reason == "error"
    kv.close()
    request_id = engine.submit(Request(prompt_ids=[1] * 100, params=SamplingParams(max_tokens=1)))
    assert gather(engine.run())[request_id].reason in ("stop", "length")


def test_a_prompt_that_is_known_and_needs_every_block_finds_room(
    naive: Callable[..., Any], gather: Callable[..., Any]
) -> None:
    """Its last block, found again, is shared with what is kept, and there is no other to copy it to."""
    model = ScriptedModel(kv_blocks=3)
    engine = Engine(model, ByteTokenizer())
    request = Request(prompt_ids=[1] * 150, params=SamplingParams(max_tokens=40, ignore_eos=True))
    for _ in range(2):
        request_id = engine.submit(request)
        events = list(engine.run())
        assert gather(events)[request_id] == naive(ScriptedModel(), [1] * 150, request.params)
    assert events[-1].usage.cached_tokens == 149  # type: ignore[union-attr]


def test_what_had_to_give_way_is_kept_and_sound(naive: Callable[..., Any], gather: Callable[..., Any]) -> None:
    engine = Engine(ScriptedModel(kv_blocks=4), ByteTokenizer())
    first = engine.submit(Request(prompt_ids=PROMPTS[0], params=PARAMS))
    second = engine.submit(Request(prompt_ids=PROMPTS[1], params=PARAMS))
    answers = gather(engine.run())
    assert answers[first] == naive(ScriptedModel(), PROMPTS[0], PARAMS)
    assert answers[second] == naive(ScriptedModel(), PROMPTS[1], PARAMS)
    assert engine.counters.kv_waits > 0
    prompt = [*PROMPTS[1], *answers[second].ids]
    again = engine.submit(Request(prompt_ids=prompt, params=PARAMS))
    events = list(engine.run())
    assert events[-1].usage.cached_tokens == 159  # type: ignore[union-attr]
    assert gather(events)[again].ids[:30] == naive(ScriptedModel(), prompt, PARAMS).ids[:30]


@pytest.mark.parametrize("max_running", [1, 2])
def test_no_more_run_at_once_than_asked(max_running: int) -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer(), EngineConfig(max_running=max_running))
    for prompt in PROMPTS:
        engine.submit(Request(prompt_ids=prompt, params=SamplingParams(max_tokens=4)))
    while not engine.is_idle:
        engine.step()
        assert len(engine._running) <= max_running


def test_who_gave_way_goes_on_before_later_arrivals() -> None:
    engine = Engine(ScriptedModel(kv_blocks=4), ByteTokenizer(), EngineConfig(max_running=2))
    ids = [engine.submit(Request(prompt_ids=prompt, params=PARAMS)) for prompt in PROMPTS[:3]]
    ended = [event.request_id for event in engine.run() if isinstance(event, FinishEvent)]
    assert engine.counters.kv_waits > 0
    assert ended == ids
