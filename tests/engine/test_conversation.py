"""Turns of a chat: warm equals cold, and what was delivered stays."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine.events import TokenEvent
from fucina.engine.model import Model
from fucina.errors import AllTokensMasked, Closed, ConfigError, ContextFull
from fucina.testing.byte_tokenizer import ASSISTANT, EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel


def answer_for(prefix: Sequence[int]) -> int | None:
    """Answers with a word that depends on all that was said, so that stale context shows."""
    last = max(i for i, token in enumerate(prefix) if token == ASSISTANT)
    word = [97 + (sum(prefix[: last + 1]) * (i + 3)) % 26 for i in range(5)]
    said = len(prefix) - 1 - last
    return [*word, EOS][said] if said <= 5 else None


@pytest.fixture
def scripted() -> ScriptedModel:
    return ScriptedModel(script=answer_for)


@pytest.fixture
def model(scripted: ScriptedModel) -> Iterator[Model]:
    with Model(scripted, ByteTokenizer()) as model:
        yield model


def test_each_turn_costs_only_its_own_tokens(model: Model, scripted: ScriptedModel) -> None:
    talk = model.conversation(system="Be brief.")
    first = talk.send("one")
    assert first.usage.cached_tokens == 0
    before = scripted.n_rows
    second = talk.send("two")
    # <bos> and system message, first turn with its <eos>: all but the last token were computed
    assert second.usage.cached_tokens == first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert scripted.n_rows - before == second.usage.prompt_tokens - second.usage.cached_tokens + 5
    assert talk.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": second.text},
    ]


def test_warm_equals_cold(model: Model) -> None:
    talk = model.conversation()
    for turn in ("one", "two", "three"):
        warm = talk.send(turn)
        cold = model.chat(talk.messages[:-1])
        assert (warm.prompt_ids, warm.ids, warm.text) == (cold.prompt_ids, cold.ids, cold.text)


def test_rewind_and_reset_leave_no_trace(model: Model) -> None:
    talk = model.conversation(system="s")
    once = [talk.send(turn).ids for turn in ("one", "two", "three")]
    talk.rewind(2)
    assert [talk.send(turn).ids for turn in ("two", "three")] == once[1:]
    talk.reset()
    assert talk.messages == [{"role": "system", "content": "s"}]
    assert [talk.send(turn).ids for turn in ("one", "two", "three")] == once
    talk.rewind(0)
    assert len(talk.messages) == 7
    for wrong in (4, -1, True, 1.0):
        with pytest.raises(ConfigError, match=r"^n_turns"):
            talk.rewind(wrong)  # type: ignore[arg-type]


def test_an_interrupted_turn_keeps_what_was_delivered(model: Model) -> None:
    talk = model.conversation()
    talk.send("one")
    events = talk.stream("two")
    heard = "".join(next(events).text for _ in range(3))
    events.close()  # type: ignore[attr-defined]
    assert talk.messages[-2:] == [{"role": "user", "content": "two"}, {"role": "assistant", "content": heard}]
    warm = talk.send("three")
    assert warm.usage.cached_tokens > 0
    assert warm.ids == model.chat(talk.messages[:-1]).ids


def test_a_turn_stopped_before_its_first_word_is_undone(model: Model) -> None:
    talk = model.conversation()
    first = talk.send("one")
    before = talk.messages
    events = talk.stream("two", SamplingParams(stop=("zzzz",)))
    events.close()  # type: ignore[attr-defined]
    assert talk.messages == before
    talk.reset()
    assert talk.send("one").ids == first.ids


def test_an_interrupt_in_the_middle_of_a_pass(
    model: Model, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = model.conversation()
    talk.send("one")
    whole, calls = scripted.forward, []

    def interrupted(batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(batch)

    with monkeypatch.context() as patch:
        patch.setattr(scripted, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            talk.send("two")
    assert len(talk.messages[-1]["content"]) == 2
    assert talk.send("three").ids == model.chat(talk.messages[:-1]).ids


def test_a_failed_turn_is_undone_and_the_talk_goes_on(model: Model) -> None:
    class MaskAll:
        def process(self, logits: Any, _: Sequence[int]) -> None:
            logits[:] = float("-inf")

        def commit(self, token: int) -> None: ...

        def reset(self) -> None: ...

    talk = model.conversation()
    talk.send("one")
    before = talk.messages
    with pytest.raises(AllTokensMasked):
        talk.send("two", processor=MaskAll())
    with pytest.raises(ContextFull):
        talk.send("x" * 600)
    assert talk.messages == before
    assert talk.send("two").ids == model.chat(talk.messages[:-1]).ids


def test_one_turn_at_a_time(model: Model) -> None:
    talk = model.conversation()
    events = talk.stream("one")
    next(events)
    with pytest.raises(ConfigError, match="still being answered"):
        talk.send("two")
    late = talk.stream("two")
    assert "".join(event.text for event in events) != ""
    with pytest.raises(ConfigError, match="overtaken"):
        next(late)
    assert [message["content"] for message in talk.messages[::2]] == ["one"]


def test_conversations_do_not_see_each_other(model: Model) -> None:
    alone = [model.conversation().send(turn).ids for turn in ("one", "two")]
    talks = [model.conversation(), model.conversation()]
    streams = [talk.stream(turn) for talk, turn in zip(talks, ("one", "two"), strict=True)]
    heard: list[list[int]] = [[], []]
    for pair in zip(*streams, strict=True):
        for index, event in enumerate(pair):
            if isinstance(event, TokenEvent):
                heard[index].append(event.token)
    assert heard == alone


def test_memory_comes_back_when_closed_or_dropped(model: Model, scripted: ScriptedModel) -> None:
    pool = scripted.kv_pool
    with model.conversation() as talk:
        talk.send("one")
        assert talk.cached_tokens > 0
    assert pool.n_free == pool.capacity
    with pytest.raises(Closed):
        talk.send("two")
    talk = model.conversation()
    talk.send("one")
    talk = model.conversation()
    assert pool.n_free == pool.capacity
    events = talk.stream("one")
    next(events)
    talk.close()
    assert [event.reason for event in events] == ["cancelled"]  # type: ignore[union-attr]
    assert pool.n_free == pool.capacity
