"""Drafts change how fast tokens come and nothing else, whatever the source does."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine.engine import Engine
from fucina.engine.events import FinishEvent, TokenEvent
from fucina.engine.request import Request
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel, follow

PROMPT = [3] * 70
TEXT = [int(c) for c in b"the quick brown fox jumps over the lazy dog, again and again and again"]


def new_engine() -> Engine:
    return Engine(ScriptedModel(script=follow([*PROMPT, *TEXT])), ByteTokenizer())


class Told:
    """A source that proposes what it was given for each number of tokens so far."""

    def __init__(self, tokens: Callable[[int, int], Sequence[Any]]) -> None:
        self.tokens = tokens
        self.kept: list[int] = []
        self.observed: list[list[int]] = []

    def suggest(self, context: Sequence[int], max_tokens: int) -> Sequence[int]:
        return self.tokens(len(context) - len(PROMPT), max_tokens)

    def observe(self, committed: Sequence[int]) -> None:
        self.observed.append(list(committed))

    def truncate_pending(self, n_tokens: int) -> None:
        self.kept.append(n_tokens)


def run(engine: Engine, source: Any, **options: Any) -> tuple[list[int], FinishEvent]:
    engine.submit(Request(prompt_ids=PROMPT, params=SamplingParams(**options), draft_source=source))
    *events, finish = engine.run()
    assert isinstance(finish, FinishEvent)
    return [event.token for event in events if isinstance(event, TokenEvent)], finish


def test_right_drafts_save_passes() -> None:
    engine = new_engine()
    ids, _ = run(engine, Told(lambda done, n: TEXT[done : done + n]), max_tokens=len(TEXT))
    assert ids == TEXT
    counters = engine.counters
    # prompt in two passes, then 70 tokens: the first with the prompt's last row, 17 with each pass of 16 drafts
    assert counters.passes == 2 + 5
    assert counters.accepted == counters.drafted == len(TEXT) - 1 - 5


def test_wrong_drafts_cost_rows_only() -> None:
    engine = new_engine()
    ids, _ = run(engine, Told(lambda _, n: [0] * n), max_tokens=len(TEXT))
    assert ids == TEXT
    assert engine.counters.accepted == 0
    assert engine.counters.drafted > 0


def test_the_source_sees_the_prompt_then_every_token_once() -> None:
    source = Told(lambda done, _: TEXT[done : done + 3])
    run(new_engine(), source, max_tokens=20)
    assert source.observed[0] == [*PROMPT, TEXT[0]]  # before it is asked for the first time
    assert [token for part in source.observed for token in part] == [*PROMPT, *TEXT[:20]]
    assert all(1 <= len(part) <= 4 for part in source.observed[1:])


def test_drafts_are_cut_to_budget_and_vocabulary_and_the_source_is_told() -> None:
    source = Told(lambda done, _: [*TEXT[done : done + 2], 999, 5])
    ids, _ = run(new_engine(), source, max_tokens=7)
    assert ids == TEXT[:7]
    # 7 tokens: one with the prompt, 3 with two drafts, then 2 of the remaining 3 may be drafts
    assert source.kept == [2, 2]
    source = Told(lambda done, n: TEXT[done : done + n + 9])
    ids, _ = run(new_engine(), source, max_tokens=5)
    assert (ids, source.kept) == (TEXT[:5], [3])


@pytest.mark.parametrize(
    "options",
    [
        {"stop": ("fox",)},
        {"stop_token_ids": frozenset({ord("z")})},
        {"logprobs": 3},
        {"repeat_penalty": 1.5, "frequency_penalty": 0.3},
        {"temperature": 9.0, "seed": 11},
        {"temperature": 20.0, "seed": 5, "top_p": 0.9, "stop": ("a",)},
    ],
)
def test_all_else_is_equal(options: dict[str, Any]) -> None:
    params = {"max_tokens": 40, **options}
    plain_engine, engine = new_engine(), new_engine()
    request = Request(prompt_ids=PROMPT, params=SamplingParams(**params))
    plain_engine.submit(request)
    plain = list(plain_engine.run())
    known = [event.token for event in plain if isinstance(event, TokenEvent)]
    source = Told(lambda done, _: [*known[done : done + 4], 7])
    engine.submit(Request(prompt_ids=PROMPT, params=SamplingParams(**params), draft_source=source))
    drafted = list(engine.run())
    tokens = [event for event in drafted if isinstance(event, TokenEvent)]
    assert [event._replace(origin="model") for event in tokens] == plain[:-1]
    assert sum(event.origin == "draft" for event in tokens) == engine.counters.accepted
    assert (drafted[-1].reason, drafted[-1].stop) == (plain[-1].reason, plain[-1].stop)  # type: ignore[union-attr]
    assert engine.counters.accepted > 0


def _raise(*_: Any) -> Any:
    raise RuntimeError("the source is broken")


@pytest.mark.parametrize("method", ["suggest", "observe", "truncate_pending"])
@pytest.mark.parametrize("at_call", [1, 2, 4])
def test_a_source_that_raises_is_dropped(method: str, at_call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Told(lambda done, _: [*TEXT[done : done + 2], -1])
    whole, calls = getattr(source, method), []

    def broken(*arguments: Any) -> Any:
        calls.append(1)
        return _raise() if len(calls) == at_call else whole(*arguments)

    monkeypatch.setattr(source, method, broken)
    engine = new_engine()
    ids, finish = run(engine, source, max_tokens=30)
    assert ids == TEXT[:30]
    assert finish.reason == "length"
    assert engine.counters.draft_failures == 1
    assert len(calls) == at_call, "it is not asked again"


@pytest.mark.parametrize("nonsense", [["x"], [None], None, 5, [1.5, 2.5]])
def test_nonsense_from_a_source_does_no_harm(nonsense: Any) -> None:
    assert run(new_engine(), Told(lambda *_: nonsense), max_tokens=30)[0] == TEXT[:30]


def test_drafts_never_cost_a_sequence_its_blocks() -> None:
    # 128 positions in all: drafts would need a third block near the end, plain decoding does not
    model = ScriptedModel(script=follow([*PROMPT, *TEXT]), kv_blocks=2)
    engine = Engine(model, ByteTokenizer())
    ids, finish = run(engine, Told(lambda done, _: TEXT[done : done + 16]), max_tokens=59)
    assert (ids, finish.reason) == (TEXT[:59], "length")
    assert engine.counters.kv_waits == 0
