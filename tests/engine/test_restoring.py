"""A long stored prefix comes back a little every step, beside those that write; nothing of it can go wrong for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fucina.core.shapes import KV_BLOCK
from fucina.decoding.params import SamplingParams
from fucina.engine.completion import collect
from fucina.engine.engine import Engine
from fucina.engine.events import Event, FinishEvent, TokenEvent
from fucina.engine.request import Request
from fucina.storage.kv.prefix import PrefixCache
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.memory_store import MemoryStore
from fucina.testing.scripted_model import ScriptedModel

PROMPT = [7] * (6 * KV_BLOCK + 10)
PARAMS, LONG = SamplingParams(max_tokens=6, ignore_eos=True), SamplingParams(max_tokens=60, ignore_eos=True)


class Rig:
    """An engine with a writer that runs, and PROMPT in a store. A step has time for one block."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.model = ScriptedModel(**options)
        self.store = MemoryStore(self.model.kv_pool)
        cache = PrefixCache(self.model.kv_pool, store=self.store)
        engine = Engine(self.model, ByteTokenizer(), prefixes=cache)
        engine.submit(Request(prompt_ids=PROMPT, params=SamplingParams(max_tokens=1)))
        list(engine.run())
        cache.reclaim(len(PROMPT))  # everything goes to the store
        monkeypatch.setattr(engine._pacing, "spare_s", lambda _: 0.0)
        self.engine = engine
        self.writing = engine.submit(Request(prompt_ids=[3, 4, 5], params=LONG))
        self.events: list[Event] = []
        self.steps(3)

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.events += self.engine.step()

    def finish(self) -> None:
        self.events += list(self.engine.run())

    def of(self, request_id: int) -> list[Event]:
        return [event for event in self.events if event.request_id == request_id]


def test_those_that_write_give_a_token_a_step_meanwhile(
    monkeypatch: pytest.MonkeyPatch, naive: Callable[..., Any]
) -> None:
    rig = Rig(monkeypatch)
    reading = rig.engine.submit(Request(prompt_ids=PROMPT, params=PARAMS))
    for step in range(6):
        n_before = len(rig.of(rig.writing))
        rig.steps(1)
        assert len(rig.of(rig.writing)) == n_before + 1
        assert rig.store.n_fetched == step + 1
        assert not rig.of(reading)
    rig.finish()
    last = rig.of(reading)[-1]
    assert isinstance(last, FinishEvent) and last.usage.cached_tokens == len(PROMPT) - 1
    for request_id, prompt, params in ((rig.writing, [3, 4, 5], LONG), (reading, PROMPT, PARAMS)):
        assert collect(prompt, rig.of(request_id)).ids == naive(ScriptedModel(), prompt, params).ids


def test_with_nobody_to_wait_it_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.engine.cancel(rig.writing)
    reading = rig.engine.submit(Request(prompt_ids=PROMPT, params=PARAMS))
    rig.steps(1)
    assert rig.store.n_fetched == 7
    assert isinstance(rig.of(reading)[0], TokenEvent)


@pytest.mark.parametrize("n_steps", [1, 3, 6])
def test_cancelled_half_way_it_holds_nothing(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> None:
    rig = Rig(monkeypatch)
    reading = rig.engine.submit(Request(prompt_ids=PROMPT, params=PARAMS))
    rig.steps(n_steps)
    rig.engine.cancel(reading)
    rig.finish()
    assert rig.model.kv_pool.n_free == rig.model.kv_pool.capacity


def test_one_more_important_goes_first(monkeypatch: pytest.MonkeyPatch, naive: Callable[..., Any]) -> None:
    rig = Rig(monkeypatch)
    reading = rig.engine.submit(Request(prompt_ids=PROMPT, params=PARAMS))
    rig.steps(2)
    urgent = rig.engine.submit(Request(prompt_ids=[9, 8], params=PARAMS, priority=1))
    rig.steps(3)
    assert rig.of(urgent) and not rig.of(reading)
    rig.finish()
    assert rig.store.n_fetched == 7, "what was fetched is found in memory"
    assert collect(PROMPT, rig.of(reading)).ids == naive(ScriptedModel(), PROMPT, PARAMS).ids


def test_those_that_write_get_its_blocks_if_they_need_them(
    monkeypatch: pytest.MonkeyPatch, naive: Callable[..., Any]
) -> None:
    rig = Rig(monkeypatch, kv_blocks=8)  # all but one block are wanted
    params = SamplingParams(max_tokens=200, ignore_eos=True)
    rig.engine.cancel(rig.writing)
    growing = rig.engine.submit(Request(prompt_ids=[8] * 50, params=params))
    rig.steps(2)
    reading = rig.engine.submit(Request(prompt_ids=PROMPT, params=PARAMS))
    rig.finish()
    for request_id, prompt, wanted in ((growing, [8] * 50, params), (reading, PROMPT, PARAMS)):
        assert collect(prompt, rig.of(request_id)).ids == naive(ScriptedModel(), prompt, wanted).ids
    assert rig.model.kv_pool.n_free == rig.model.kv_pool.capacity


def test_a_store_that_fails_half_way_costs_time_only(
    monkeypatch: pytest.MonkeyPatch, naive: Callable[..., Any]
) -> None:
    rig = Rig(monkeypatch)
    reading = rig.engine.submit(Request(prompt_ids=PROMPT, params=PARAMS))
    rig.steps(3)
    rig.store.gives = False
    rig.finish()
    last = rig.of(reading)[-1]
    assert isinstance(last, FinishEvent) and last.usage.cached_tokens == 3 * KV_BLOCK
    assert collect(PROMPT, rig.of(reading)).ids == naive(ScriptedModel(), PROMPT, PARAMS).ids
