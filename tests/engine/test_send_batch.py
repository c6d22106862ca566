"""Turns of several conversations in one batch, and the batches that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.params import SamplingParams
from fucina.engine.conversation import Conversation
from fucina.engine.model import Model
from fucina.errors import (
    AllTokensMasked,
    BatchLengthMismatch,
    ConfigError,
    ContextFull,
    DuplicateBatchConversation,
    EmptyBatch,
    MixedBatchModels,
    SharedBatchProcessor,
)
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

WARM = SamplingParams(temperature=1.0, seed=3, max_tokens=12)
TEXTS = ["hello", "a second one, longer than the first, so that it takes another block of positions", "three"]


@pytest.fixture
def model() -> Iterator[Model]:
    with Model(ScriptedModel(), ByteTokenizer()) as model:
        yield model


class Masks:
    """A processor that forbids everything from the third token on, or nothing at all."""

    def __init__(self, everything: bool) -> None:
        self.everything, self.n = everything, 0

    def process(self, logits: Any, _: Sequence[int]) -> None:
        if self.everything and self.n >= 2:
            logits[:] = -np.inf

    def commit(self, _: int) -> None:
        self.n += 1

    def reset(self) -> None:
        self.n = 0


def talks(model: Model, n: int = 3) -> list[Conversation]:
    return [model.conversation(f"system {i}") for i in range(n)]


def test_every_turn_is_as_it_is_alone(model: Model) -> None:
    each = [WARM, SamplingParams(max_tokens=5), SamplingParams(temperature=2.0, seed=9, max_tokens=20)]
    alone, together = talks(model), talks(model)
    for _ in range(3):
        want = [talk.send(text, own) for talk, text, own in zip(alone, TEXTS, each, strict=True)]
        before = model.counters.passes
        got = Conversation.send_batch(together, TEXTS, each)
        assert [(one.ids, one.text, one.finish_reason) for one in got] == [
            (one.ids, one.text, one.finish_reason) for one in want
        ]
        assert [talk.messages for talk in together] == [talk.messages for talk in alone]
        assert model.counters.passes - before <= 30  # one after another they take 37 at least
    assert all(one.usage.cached_tokens > 0 for one in got)


def test_one_setting_for_all_and_constraints(model: Model) -> None:
    got = Conversation.send_batch(talks(model), TEXTS, WARM, constraints=[None, Constraint.regex("yes|no"), None])
    assert got[1].text in ("yes", "no")
    same = Conversation.send_batch(talks(model), TEXTS, WARM, constraints=Constraint.regex("yes|no"))
    assert all(one.text in ("yes", "no") for one in same)


def test_an_error_of_one_leaves_the_others_whole(model: Model) -> None:
    alone, together = talks(model), talks(model)
    want = [talk.send(text, WARM) for talk, text in zip(alone, TEXTS, strict=True)]
    processors = [Masks(False), Masks(True), Masks(False)]
    got = Conversation.send_batch(together, TEXTS, WARM, processors=processors)
    assert [one.finish_reason for one in got] == ["length", "error", "length"]
    assert isinstance(got[1].error, AllTokensMasked)
    assert [got[0].ids, got[1].ids, got[2].ids] == [want[0].ids, want[1].ids[:2], want[2].ids]
    again = Conversation.send_batch(together, TEXTS, WARM)
    assert [one.error for one in again] == [None] * 3


def test_a_prompt_that_does_not_fit_leaves_all_unsaid(model: Model) -> None:
    three = talks(model)
    before = [talk.messages for talk in three]
    with pytest.raises(ContextFull):
        Conversation.send_batch(three, ["fits", "x" * 600, "fits"], WARM)
    assert [talk.messages for talk in three] == before
    assert [one.finish_reason for one in Conversation.send_batch(three, TEXTS, WARM)] == ["length"] * 3


def test_a_failed_pass_leaves_conversations_usable(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    three = talks(model)

    def fails(*_: Any) -> Any:
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(ScriptedModel, "forward", fails)
        with pytest.raises(MemoryError):
            Conversation.send_batch(three, TEXTS, WARM)
    assert all(len(talk.messages) == 1 for talk in three)
    assert [one.finish_reason for one in Conversation.send_batch(three, TEXTS, WARM)] == ["length"] * 3


BAD: list[tuple[type[ConfigError], str, Callable[[Model], Any]]] = [
    (EmptyBatch, "conversations", lambda _: Conversation.send_batch([], [])),
    (EmptyBatch, "prompts", lambda model: model.generate_batch([])),
    (BatchLengthMismatch, "texts", lambda model: Conversation.send_batch(talks(model), TEXTS[:2])),
    (BatchLengthMismatch, "texts", lambda model: Conversation.send_batch(talks(model), "abc")),
    (BatchLengthMismatch, "params", lambda model: Conversation.send_batch(talks(model), TEXTS, [WARM])),
    (BatchLengthMismatch, "params", lambda model: model.generate_batch(TEXTS, [WARM] * 4)),
    (BatchLengthMismatch, "constraints", lambda model: model.generate_batch(TEXTS, constraints=[None])),
    (BatchLengthMismatch, "processors", lambda model: model.generate_batch(TEXTS, processors=[None])),
    (
        SharedBatchProcessor,
        "processors",
        lambda model: model.generate_batch(["a", "b"], processors=[one := Masks(False), one]),
    ),
    (
        SharedBatchProcessor,
        "processors",
        lambda model: Conversation.send_batch(talks(model), TEXTS, processors=[one := Masks(False), None, one]),
    ),
    (
        DuplicateBatchConversation,
        "conversations",
        lambda model: Conversation.send_batch([one := model.conversation(), one], ["a", "b"]),
    ),
    (
        MixedBatchModels,
        "conversations",
        lambda model: Conversation.send_batch(
            [model.conversation(), Model(ScriptedModel(), ByteTokenizer()).conversation()], ["a", "b"]
        ),
    ),
]


@pytest.mark.parametrize(("error", "option", "call"), BAD)
def test_batches_that_cannot_be(
    model: Model, error: type[ConfigError], option: str, call: Callable[[Model], Any]
) -> None:
    with pytest.raises(error, match=f"^{option}: "):
        call(model)
    assert model.counters.requests == 0


def test_processors_of_a_batch(model: Model) -> None:
    got = model.generate_batch(["a", "b"], WARM, processors=[Masks(True), None])
    assert [one.finish_reason for one in got] == ["error", "length"]
    assert got[1].ids == model.generate("b", WARM).ids
