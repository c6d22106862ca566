"""What one request gives, and what is refused."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine.engine import Engine, EngineConfig
from fucina.engine.events import Event, FinishEvent, TokenEvent
from fucina.engine.request import Request
from fucina.errors import Closed, ConfigError, ContextFull
from fucina.testing.byte_tokenizer import EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel, follow


def run(engine: Engine, prompt: Sequence[int], **options: Any) -> tuple[list[TokenEvent], FinishEvent]:
    """Submit one request, run it, and give its events."""
    engine.submit(Request(prompt_ids=prompt, params=SamplingParams(**options)))
    *tokens, finish = engine.run()
    assert all(isinstance(event, TokenEvent) for event in tokens)
    assert isinstance(finish, FinishEvent)
    return tokens, finish  # type: ignore[return-value]


def saying(text: str, end: bool = True, **options: Any) -> Engine:
    """An engine whose model continues the prompt [1] with `text`."""
    script = follow([1, *text.encode(), *([EOS] if end else [])])
    return Engine(ScriptedModel(script=script, **options), ByteTokenizer())


def text_of(tokens: Iterable[Event]) -> str:
    return "".join(event.text for event in tokens)


def test_an_end_token_ends_the_answer_and_is_not_text() -> None:
    tokens, finish = run(saying("hello"), [1])
    assert text_of(tokens) == "hello"
    assert [event.token for event in tokens] == [*b"hello", EOS]
    assert (finish.reason, finish.stop, finish.text) == ("stop", EOS, "")
    assert finish.usage.prompt_tokens == 1
    assert finish.usage.completion_tokens == 6
    assert finish.usage.cached_tokens == 0


def test_text_arrives_as_it_becomes_certain() -> None:
    tokens, _ = run(saying("añb"), [1])
    assert [event.text for event in tokens] == ["a", "", "ñ", "b", ""]


def test_a_half_character_at_the_end_is_replaced() -> None:
    tokens, finish = run(saying("añ"), [1], max_tokens=2)
    assert [event.text for event in tokens] == ["a", "�"]
    assert finish.reason == "length"


def test_max_tokens() -> None:
    tokens, finish = run(saying("hello"), [1], max_tokens=3)
    assert text_of(tokens) == "hel"
    assert (finish.reason, finish.stop) == ("length", None)
    assert finish.usage.completion_tokens == len(tokens) == 3


def test_a_stop_wins_over_the_budget_in_the_same_place() -> None:
    assert run(saying("hello"), [1], max_tokens=6)[1].reason == "stop"
    assert run(saying("hello"), [1], max_tokens=5)[1].reason == "length"
    tokens, finish = run(saying("hello"), [1], max_tokens=4, stop=("ll",))
    assert (finish.reason, finish.stop, text_of(tokens)) == ("stop", "ll", "he")
    tokens, finish = run(saying("hello"), [1], max_tokens=3, stop=("ll",))
    assert (finish.reason, finish.stop, text_of(tokens)) == ("length", None, "hel")


def test_the_first_stop_string_to_be_complete_wins() -> None:
    tokens, finish = run(saying("one two three"), [1], stop=("three", "two", "wo"))
    assert (finish.stop, text_of(tokens)) == ("two", "one ")


def test_withheld_text_comes_out_when_it_was_no_stop() -> None:
    tokens, finish = run(saying("EN END"), [1], stop=("ENDE",))
    assert text_of(tokens) == "EN END"
    assert [event.text for event in tokens] == ["", "", "EN ", "", "", "", "END"]
    assert finish.stop == EOS


def test_stop_tokens() -> None:
    tokens, finish = run(saying("hello"), [1], stop_token_ids=frozenset({ord("l")}))
    assert (text_of(tokens), finish.reason, finish.stop) == ("he", "stop", ord("l"))
    tokens, finish = run(saying("hello"), [1], stop_token_ids=frozenset({EOS}), ignore_eos=True)
    assert (text_of(tokens), finish.stop) == ("hello", EOS)


def test_ignore_eos_goes_on() -> None:
    tokens, finish = run(saying("hello"), [1], ignore_eos=True, max_tokens=20)
    assert [event.token for event in tokens][:6] == [*b"hello", EOS]
    assert (finish.reason, len(tokens)) == ("length", 20)


def test_the_context_end_is_a_length() -> None:
    engine = saying("x" * 200, context_length=100)
    tokens, finish = run(engine, [1])
    assert (finish.reason, len(tokens)) == ("length", 99)
    assert engine.is_idle


def test_prompts_leave_room_for_a_token_or_are_refused() -> None:
    engine = saying("", context_length=100)
    tokens, finish = run(engine, [7] * 99)
    assert (len(tokens), finish.reason) == (1, "length")
    with pytest.raises(ContextFull, match="100 tokens"):
        engine.submit(Request(prompt_ids=[7] * 100))
    assert engine.is_idle


def test_a_smaller_context_may_be_asked_for() -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer(), EngineConfig(context=50))
    with pytest.raises(ContextFull):
        engine.submit(Request(prompt_ids=[7] * 50))
    with pytest.raises(ConfigError, match=r"^context"):
        Engine(ScriptedModel(context_length=40), ByteTokenizer(), EngineConfig(context=50))


@pytest.mark.parametrize("ids", [[], [-1], [261], [1.5], ["a"], "text", b"bytes", [None], 7])
def test_prompts_that_cannot_be(ids: Any) -> None:
    engine = saying("")
    with pytest.raises(ConfigError, match=r"^prompt ids"):
        engine.submit(Request(prompt_ids=ids))
    assert engine.is_idle


def test_numpy_ids_are_taken() -> None:
    tokens, _ = run(saying("hi"), np.array([1], np.int32))  # type: ignore[arg-type]
    assert text_of(tokens) == "hi"


@pytest.mark.parametrize("option", ["context", "prefill_chunk", "max_running"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_engine_options_that_cannot_be(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{option}"):
        EngineConfig(**{option: value})


@pytest.mark.parametrize("options", [{}, {"temperature": 50.0, "seed": 3}])
def test_padding_ids_are_never_chosen(options: dict[str, Any]) -> None:
    class Padding(ScriptedModel):
        def forward(self, batch: Any) -> Any:
            logits = super().forward(batch)
            logits[:, ByteTokenizer.vocab_size :] = 1000.0
            return logits

    engine = Engine(Padding(), ByteTokenizer())
    tokens, _ = run(engine, [1], max_tokens=50, logprobs=3, **options)
    assert all(event.token < ByteTokenizer.vocab_size for event in tokens)
    assert all(token < ByteTokenizer.vocab_size for event in tokens for token, _ in event.top)


def test_the_reported_seed_gives_the_same_tokens() -> None:
    engine = Engine(ScriptedModel(), ByteTokenizer())
    first, finish = run(engine, [1], temperature=1.0, max_tokens=30)
    again, same = run(engine, [1], temperature=1.0, max_tokens=30, seed=finish.seed)
    other, _ = run(engine, [1], temperature=1.0, max_tokens=30)
    assert [e.token for e in first] == [e.token for e in again] != [e.token for e in other]
    assert same.seed == finish.seed


def test_logprobs_come_with_each_token() -> None:
    tokens, _ = run(saying("hi"), [1], logprobs=2, max_tokens=2)
    assert all(event.logprob == event.top[0][1] and event.top[0][0] == event.token for event in tokens)
    assert all(len(event.top) == 2 for event in tokens)
    bare, _ = run(saying("hi"), [1], max_tokens=2)
    assert all(event.logprob is None and event.top == () for event in bare)


def test_cancel_before_during_and_after() -> None:
    engine = saying("hello")
    waiting = engine.submit(Request(prompt_ids=[1]))
    engine.cancel(waiting)
    assert [event.reason for event in engine.step() if isinstance(event, FinishEvent)] == ["cancelled"]
    running = engine.submit(Request(prompt_ids=[1]))
    events = [*engine.step(), *engine.step()]
    engine.cancel(running)
    events += engine.step()
    assert text_of(events) == "he"
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    assert (finish.reason, finish.usage.completion_tokens) == ("cancelled", 2)
    engine.cancel(running)
    engine.cancel(999)
    assert engine.is_idle
    assert engine.step() == []


def test_cancelling_releases_withheld_text() -> None:
    engine = saying("ENDING")
    running = engine.submit(Request(prompt_ids=[1], params=SamplingParams(stop=("ENDE",))))
    events = [*engine.step(), *engine.step()]
    assert text_of(events) == ""
    engine.cancel(running)
    assert text_of(engine.step()) == "EN"


def test_memory_comes_back() -> None:
    model = ScriptedModel()
    engine = Engine(model, ByteTokenizer())
    n_free = model.kv_pool.n_free
    run(engine, [7] * 200, max_tokens=5)
    cancelled = engine.submit(Request(prompt_ids=[7] * 200))
    engine.step()
    assert model.kv_pool.n_free < n_free
    engine.cancel(cancelled)
    assert model.kv_pool.n_free == n_free
    engine.submit(Request(prompt_ids=[7] * 200))
    engine.step()
    engine.close()
    assert model.kv_pool.n_free == n_free


def test_closing() -> None:
    engine = saying("hello")
    engine.submit(Request(prompt_ids=[1]))
    engine.step()
    engine.close()
    engine.close()
    assert [event.reason for event in engine.drain() if isinstance(event, FinishEvent)] == ["cancelled"]
    assert engine.counters.requests == 1 and engine.counters.kv == (0, 0, 0)
    for call in (engine.step, lambda: engine.submit(Request(prompt_ids=[1]))):
        with pytest.raises(Closed):
            call()


def test_what_was_said_before_is_continued(naive: Callable[..., Any]) -> None:
    model = ScriptedModel()
    engine = Engine(model, ByteTokenizer())
    first_prompt = [5] * 100
    engine.submit(Request(prompt_ids=first_prompt, params=SamplingParams(max_tokens=8)))
    first = [event.token for event in engine.run() if isinstance(event, TokenEvent)]
    # shares 103 tokens with what was said, then differs
    prompt = [*first_prompt, *first[:3], 9, 9]
    model.n_rows = 0
    engine.submit(Request(prompt_ids=prompt, params=SamplingParams(max_tokens=8)))
    events = list(engine.run())
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    assert finish.usage.cached_tokens == 103
    assert model.n_rows == 2 + 7
    tokens = [event.token for event in events if isinstance(event, TokenEvent)]
    assert tokens == naive(ScriptedModel(), prompt, SamplingParams(max_tokens=8)).ids


def test_a_prompt_that_is_all_cached_still_computes_its_last_token() -> None:
    model = ScriptedModel()
    engine = Engine(model, ByteTokenizer())
    for _ in range(2):
        engine.submit(Request(prompt_ids=[5] * 100, params=SamplingParams(max_tokens=1)))
        events = list(engine.run())
    assert events[-1].usage.cached_tokens == 99  # type: ignore[union-attr]


def test_what_two_requests_may_not_share() -> None:
    model = ScriptedModel()
    engine = Engine(model, ByteTokenizer())

    class Processor:
        def process(self, logits: Any, history: Sequence[int]) -> None: ...

        def commit(self, token: int) -> None: ...

        def reset(self) -> None: ...

    class Source:
        def suggest(self, *_: Any) -> Sequence[int]:
            return ()

        def observe(self, committed: Sequence[int]) -> None: ...

    for shared in ({"processor": Processor()}, {"draft_source": Source()}):
        first = engine.submit(Request(prompt_ids=[1], **shared))  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=f"^{next(iter(shared))}: "):
            engine.submit(Request(prompt_ids=[1], **shared))  # type: ignore[arg-type]
        engine.cancel(first)
        engine.cancel(engine.submit(Request(prompt_ids=[1], **shared)))  # type: ignore[arg-type]


def test_counters() -> None:
    engine = saying("hello")
    run(engine, [1])
    counters = engine.counters
    assert (counters.requests, counters.passes, counters.rows, counters.tokens) == (1, 6, 6, 6)
    assert (counters.prompt_tokens, counters.finished["stop"], counters.failed_passes) == (1, 1, 0)
    counters.finished["stop"] = 99
    assert engine.counters.finished["stop"] == 1


def test_timings_add_up() -> None:
    tokens, finish = run(saying("hello"), [1])
    timings = finish.timings
    assert (timings.prefill_tokens, timings.decode_tokens) == (1, len(tokens) - 1)
    assert timings.queue_s >= 0.0
    assert timings.prefill_s > 0.0
    assert timings.decode_s > 0.0
    assert timings.decode_tok_per_s == pytest.approx(5 / timings.decode_s)
