"""What was computed for one request serves the next ones: exactly, to the token, and only where it may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fucina.core.shapes import KV_BLOCK
from fucina.decoding.params import SamplingParams
from fucina.engine.completion import collect
from fucina.engine.engine import Engine
from fucina.engine.events import FinishEvent
from fucina.engine.model import Model
from fucina.engine.request import Request
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

SYSTEM = [7] * (4 * KV_BLOCK + 10)
PARAMS, LONG = SamplingParams(max_tokens=6), SamplingParams(max_tokens=40)


def finish(engine: Engine, request: Request) -> FinishEvent:
    engine.submit(request)
    last = list(engine.run())[-1]
    assert isinstance(last, FinishEvent)
    return last


def test_a_prompt_is_shared_while_its_answer_is_written(naive: Callable[..., Any]) -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer())
    first = engine.submit(Request(prompt_ids=[*SYSTEM, 1], params=LONG))
    events = [event for _ in range(6) for event in engine.step()]
    second = engine.submit(Request(prompt_ids=[*SYSTEM, 2], params=PARAMS))
    events += list(engine.run())
    for request_id, user, params, n_cached in ((first, 1, LONG, 0), (second, 2, PARAMS, 4 * KV_BLOCK)):
        prompt = [*SYSTEM, user]
        answer = collect(prompt, [event for event in events if event.request_id == request_id])
        assert answer.usage.cached_tokens == n_cached
        assert answer.ids == naive(ScriptedModel(), prompt, params).ids


def test_sequences_share_memory() -> None:
    model = ScriptedModel()
    engine = Engine(model, ByteTokenizer())
    for user in range(5):
        finish(engine, Request(prompt_ids=[*SYSTEM, user], params=SamplingParams(max_tokens=1)))
    assert engine.prefixes.n_blocks == 4 + 5  # the whole blocks once, an ending for each


def test_salts_keep_apart() -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer())
    finish(engine, Request(prompt_ids=SYSTEM, params=PARAMS, salt="one"))
    assert finish(engine, Request(prompt_ids=SYSTEM, params=PARAMS, salt="two")).usage.cached_tokens == 0
    assert finish(engine, Request(prompt_ids=SYSTEM, params=PARAMS)).usage.cached_tokens == 0
    assert finish(engine, Request(prompt_ids=SYSTEM, params=PARAMS, salt="one")).usage.cached_tokens == len(SYSTEM) - 1


def test_what_was_kept_makes_room() -> None:
    engine = Engine(ScriptedModel(kv_blocks=8), ByteTokenizer())
    for start in range(20):
        end = finish(engine, Request(prompt_ids=[start] * 300, params=PARAMS))
        assert end.reason in ("stop", "length")
    assert engine.prefixes.n_blocks <= 8


def test_a_cancelled_prompt_is_kept_as_far_as_it_was_read() -> None:
    model = ScriptedModel()
    engine = Engine(model, ByteTokenizer())
    request_id = engine.submit(Request(prompt_ids=SYSTEM, params=PARAMS))
    engine.step()
    engine.cancel(request_id)
    list(engine.run())
    assert finish(engine, Request(prompt_ids=SYSTEM, params=PARAMS)).usage.cached_tokens == model.max_rows


def test_forgetting() -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer())
    finish(engine, Request(prompt_ids=SYSTEM, params=PARAMS))
    engine.prefixes.clear()
    assert engine.prefixes.n_blocks == 0
    assert finish(engine, Request(prompt_ids=SYSTEM, params=PARAMS)).usage.cached_tokens == 0


@pytest.fixture
def model() -> Model:
    """It says x whatever it is asked."""
    return Model(ScriptedModel(context_length=2048, kv_blocks=12, script=lambda _: ord("x")), ByteTokenizer())


def test_a_turn_tells_why_it_had_to_read_again(model: Model) -> None:
    talk = model.conversation()
    talk.send("a" * 200, PARAMS)
    assert talk.send("b", PARAMS).usage.cache_loss is None
    talk.rewind()
    assert talk.send("c", PARAMS).usage.cache_loss == "edited"
    model.forget_prefixes()
    assert talk.send("d", PARAMS).usage.cache_loss == "evicted"
    assert talk.send("e", PARAMS).usage.cache_loss is None


def test_a_template_that_rewrites_turns_is_named(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = model.conversation()
    talk.send("a" * 200, PARAMS)
    monkeypatch.setattr(ByteTokenizer, "chat_ids", lambda _, messages: [1] * (100 + len(messages)))
    assert talk.send("b", PARAMS).usage.cache_loss == "rewritten"


def test_conversations_with_one_system_message_share_it(model: Model) -> None:
    first, second = model.conversation("s" * 300), model.conversation("s" * 300)
    first.send("one", PARAMS)
    assert second.send("two", PARAMS).usage.cached_tokens >= 4 * KV_BLOCK
    assert first.send("three", PARAMS).usage.cache_loss is None


def test_conversations_with_salts_of_their_own_share_nothing(model: Model) -> None:
    first, second = model.conversation("s" * 300, cache_salt="a"), model.conversation("s" * 300, cache_salt="b")
    first.send("one", PARAMS)
    assert second.send("two", PARAMS).usage.cached_tokens == 0
