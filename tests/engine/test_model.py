"""The Model facade on a scripted model."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine.engine import EngineConfig
from fucina.engine.events import FinishEvent, TokenEvent
from fucina.engine.model import Model
from fucina.errors import AllTokensMasked, Closed, ConfigError, ContextFull
from fucina.testing.byte_tokenizer import ASSISTANT, BOS, EOS, USER, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

ANSWER = [*b"as you say", EOS]


def polite(prefix: Sequence[int]) -> int | None:
    """Answers everything after <assistant> or a newline with 'as you say'."""
    last = max((i for i, token in enumerate(prefix) if token in (ASSISTANT, 10)), default=None)
    said = len(prefix) - 1 - last if last is not None else len(ANSWER)
    return ANSWER[said] if said < len(ANSWER) else None


@pytest.fixture
def scripted() -> ScriptedModel:
    return ScriptedModel(script=polite)


@pytest.fixture
def model(scripted: ScriptedModel) -> Iterator[Model]:
    with Model(scripted, ByteTokenizer()) as model:
        yield model


def test_generate_from_text(model: Model) -> None:
    completion = model.generate("hello\n")
    assert completion.prompt_ids == [BOS, *b"hello\n"]
    assert completion.ids == ANSWER
    assert completion.text == "as you say"
    assert (completion.finish_reason, completion.stop, completion.error) == ("stop", EOS, None)
    assert completion.usage.completion_tokens == len(completion.ids)
    assert completion.logprobs is None


def test_generate_from_ids_adds_nothing(model: Model) -> None:
    assert model.generate([10]).prompt_ids == [10]


def test_stop_strings_and_logprobs(model: Model) -> None:
    completion = model.generate("x\n", SamplingParams(stop=("say",), logprobs=1))
    assert (completion.text, completion.stop) == ("as you ", "say")
    assert completion.ids == [*b"as you say"]
    assert completion.logprobs is not None
    assert [entry.token for entry in completion.logprobs] == completion.ids
    assert all(entry.top == ((entry.token, entry.logprob),) for entry in completion.logprobs)


def test_stream_joins_to_generate(model: Model) -> None:
    *tokens, finish = model.stream("hello\n")
    assert all(isinstance(event, TokenEvent) for event in tokens)
    assert isinstance(finish, FinishEvent)
    assert "".join(event.text for event in tokens) == "as you say"


def test_chat_writes_out_the_template(model: Model) -> None:
    completion = model.chat("hi")
    assert completion.prompt_ids == [BOS, USER, *b"hi", EOS, ASSISTANT]
    assert completion.text == "as you say"
    messages = [{"role": "user", "content": "hi"}]
    assert model.chat(messages).ids == completion.ids
    assert "".join(event.text for event in model.stream_chat(messages)) == "as you say"


def test_many_together_are_as_each_alone(model: Model, scripted: ScriptedModel) -> None:
    prompts = ["one\n", [7, 8, 9], "a longer one, of more than a block of sixty-four positions in the cache"]
    params = SamplingParams(temperature=1.0, seed=5, max_tokens=12)
    alone = [model.generate(prompt, params).ids for prompt in prompts]
    before = scripted.n_forwards
    together = model.generate_batch(prompts, params)
    assert [completion.ids for completion in together] == alone
    assert scripted.n_forwards - before < 20
    each = model.generate_batch(prompts, [SamplingParams(max_tokens=n) for n in (1, 2, 3)])
    assert [len(completion.ids) for completion in each] == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"^params"):
        model.generate_batch(prompts, [params])


def test_one_impossible_prompt_stops_all_before_anything_runs(model: Model, scripted: ScriptedModel) -> None:
    with pytest.raises(ConfigError):
        model.generate_batch(["fine\n", [9999]])
    assert scripted.n_forwards == 0
    assert model.counters.requests == 0


class MaskAll:
    """A processor that forbids everything after three tokens."""

    def process(self, logits: Any, history: Sequence[int]) -> None:
        if len(history) > 8:
            logits[:] = -np.inf

    def commit(self, token: int) -> None: ...

    def reset(self) -> None: ...


def test_a_failed_answer_raises_its_error(model: Model) -> None:
    with pytest.raises(AllTokensMasked):
        model.generate("hello\n", processor=MaskAll())
    events = model.stream("hello\n", processor=MaskAll())
    with pytest.raises(AllTokensMasked):
        list(events)
    assert model.generate("hello\n").text == "as you say"


def test_refusals_come_before_the_first_event(model: Model) -> None:
    with pytest.raises(ContextFull):
        model.stream("x" * 600)
    with pytest.raises(ConfigError):
        model.stream([])


def test_an_abandoned_stream_gives_its_memory_back(model: Model, scripted: ScriptedModel) -> None:
    events = model.stream("hello\n")
    next(events)
    assert scripted.kv_pool.n_free < scripted.kv_pool.capacity
    events.close()  # type: ignore[attr-defined]
    assert scripted.kv_pool.n_free == scripted.kv_pool.capacity
    model.stream("hello\n")  # never begun: never submitted
    assert model.counters.requests == 1


def test_logits_are_the_same_for_every_chunk(model: Model, scripted: ScriptedModel) -> None:
    ids = [int(t) for t in np.random.default_rng(0).integers(0, 256, 130)]
    whole = model.logits(ids)
    assert whole.shape == (130, scripted.vocab)
    assert whole.dtype == np.float32
    for chunk in (1, 7, 64):
        assert np.array_equal(model.logits(ids, chunk=chunk), whole)
    starts = [start for start, _ in model.iter_logits(ids, chunk=50)]
    assert starts == [0, 50, 100]
    assert scripted.kv_pool.n_free == scripted.kv_pool.capacity


def test_logits_may_fill_the_context_but_not_more(model: Model) -> None:
    assert model.logits([1] * 512).shape[0] == 512
    with pytest.raises(ContextFull, match="exceeds the context 512"):
        model.logits([1] * 513)
    for ids, chunk in (([], 1), ([1], 0), ([9999], 1)):
        with pytest.raises(ConfigError):
            model.iter_logits(ids, chunk=chunk)


def test_logits_beside_a_running_stream(model: Model) -> None:
    want = model.logits([1, 2, 3])
    events = model.stream("hello\n")
    text = ""
    for event in events:
        text += event.text
        assert np.array_equal(model.logits([1, 2, 3], chunk=2), want)
    assert text == "as you say"


def test_logits_row_and_generate_agree(model: Model) -> None:
    row = model.logits([10])[-1, : ByteTokenizer.vocab_size]
    assert model.generate([10], SamplingParams(max_tokens=1)).ids == [int(row.argmax())]


def test_closed_models_say_so(scripted: ScriptedModel) -> None:
    model = Model(scripted, ByteTokenizer())
    stream = model.stream("hello\n")
    next(stream)
    model.close()
    model.close()
    assert next(stream).reason == "cancelled"  # type: ignore[union-attr]
    for call in (
        lambda: model.generate("x"),
        lambda: model.stream("x"),
        lambda: model.chat("x"),
        lambda: model.logits([1]),
        lambda: model.conversation(),
    ):
        with pytest.raises(Closed):
            call()


def test_the_context_asked_for_holds(scripted: ScriptedModel) -> None:
    model = Model(scripted, ByteTokenizer(), EngineConfig(context=20))
    assert model.context == 20
    assert len(model.generate([10], SamplingParams(ignore_eos=True)).ids) == 19
    assert model.tokenizer.decode(model.tokenizer.encode("é")) == "é"
