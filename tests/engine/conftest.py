"""A naive decoder, written without the engine, against which every schedule is measured."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pytest

from fucina.decoding.params import SamplingParams
from fucina.decoding.picker import Picker
from fucina.decoding.processors.contract import LogitProcessor
from fucina.engine.events import Event, FinishEvent, TokenEvent
from fucina.ops.batch import Batch, Span
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel


@dataclass
class Answer:
    """What one request gives."""

    ids: list[int]
    text: str
    reason: str
    stop: str | int | None


def naive_answer(
    model: ScriptedModel,
    prompt: Sequence[int],
    params: SamplingParams,
    processor: LogitProcessor | None = None,
) -> Answer:
    """One token a pass in a cache of its own; text and stops found anew from the whole answer after each token."""
    tokenizer = ByteTokenizer()
    assert params.seed is not None or params.is_greedy
    picker = Picker(params, params.seed or 0, processor)
    if processor is not None:
        processor.reset()
    kv = KvSequence(model.kv_pool)
    history = list(prompt)
    ids: list[int] = []
    stop_tokens = params.stop_token_ids | (frozenset() if params.ignore_eos else tokenizer.eog_ids)
    while True:
        for token in history[kv.length :]:
            kv.reserve(1)
            row = model.forward(Batch((Span([token], kv.length, kv.blocks, 1),)))[0, : tokenizer.vocab_size].copy()
            kv.advance(1)
        token = picker.pick(row, history).token
        history.append(token)
        ids.append(token)
        answer = _ended(ids, tokenizer, params, stop_tokens, len(history) >= model.context_length)
        if answer is not None:
            kv.close()
            return answer


def _ended(
    ids: list[int], tokenizer: ByteTokenizer, params: SamplingParams, stop_tokens: frozenset[int], full: bool
) -> Answer | None:
    whole = tokenizer.decode(ids)
    at_stop_token = ids[-1] in stop_tokens
    at_end = full or len(ids) == params.max_tokens
    raw = b"".join(tokenizer.token_bytes(token) for token in ids)
    certain = codecs.getincrementaldecoder("utf-8")("replace").decode(raw)
    text = whole if at_stop_token or at_end else certain
    for end in range(1, len(text) + 1):
        complete = [stop for stop in params.stop if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return Answer(list(ids), text[: end - len(longest)], "stop", longest)
    if at_stop_token:
        return Answer(list(ids), whole, "stop", ids[-1])
    if at_end:
        return Answer(list(ids), whole, "length", None)
    return None


def answers_of(events: Iterable[Event]) -> dict[int, Answer]:
    """Put the events of several requests together; no event may follow a request's end."""
    answers: dict[int, Answer] = {}
    for event in events:
        answer = answers.setdefault(event.request_id, Answer([], "", "", None))
        assert answer.reason == "", "an event after the end"
        answer.text += event.text
        if isinstance(event, TokenEvent):
            answer.ids.append(event.token)
        elif isinstance(event, FinishEvent):
            answer.reason, answer.stop = event.reason, event.stop
            assert event.usage.completion_tokens == len(answer.ids)
    return answers


@pytest.fixture(scope="session")
def naive() -> Callable[..., Answer]:
    return naive_answer


@pytest.fixture(scope="session")
def gather() -> Callable[[Iterable[Event]], dict[int, Answer]]:
    return answers_of
