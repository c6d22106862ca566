"""Speculation is lossless on the real models: tokens, log-probabilities and the bits of every row are those without it.

Sources that are perfect, wrong, lying or broken, alone, in a batch, after a fork and over the turns of a chat.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.nativelib import Native, open_native
from fucina.decoding.logprobs import TopLogprobs
from fucina.decoding.params import SamplingParams
from fucina.decoding.speculation.contract import TopKRow
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.decoding.speculation.stats import SourceReport, SpeculationStats
from fucina.engine.completion import Completion, collect
from fucina.engine.counters import Counters
from fucina.engine.engine import Engine
from fucina.engine.events import Event, Usage
from fucina.engine.model import Model
from fucina.engine.pass_costs import PassCosts
from fucina.engine.request import Request
from fucina.engine.speculation import Speculation
from fucina.engine.speech import ModelSpeech
from fucina.models.loader import load_causal_lm
from fucina.ops.native import NativeOps
from fucina.storage.gguf import open_gguf
from fucina.testing.tiny_vocabulary import GEMMA
from fucina.text.template import ChatTemplate
from fucina.text.tokenizer import Tokenizer

pytestmark = pytest.mark.model

REPETITIVE = "red, green, blue, red, green, blue, red, green, blue, red, green, blue, red, green,"
GREEDY = SamplingParams(max_tokens=30, logprobs=3, ignore_eos=True)
SAMPLED = SamplingParams(
    max_tokens=30,
    logprobs=3,
    ignore_eos=True,
    temperature=0.8,
    top_k=40,
    top_p=0.9,
    min_p=0.05,
    repeat_penalty=1.05,
    frequency_penalty=0.02,
    presence_penalty=0.05,
    penalty_window=16,
    seed=7,
)
MODES = {"greedy": GREEDY, "sampled": SAMPLED}


class Outcome(NamedTuple):
    """All that a request gives, and a digest of the bits of every row that its tokens were chosen from."""

    ids: list[int]
    text: str
    reason: str
    stop: str | int | None
    usage: Usage
    logprobs: list[tuple[int, float, TopLogprobs]]
    rows: list[bytes]


class Recorder:
    """A processor that changes nothing and keeps a digest of every row: 30 of Gemma's rows would be 31 megabytes."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:
        assert np.isfinite(logits).all()
        self.rows.append(blake2b(logits.tobytes(), digest_size=16, salt=len(history).to_bytes(8, "little")).digest())

    def commit(self, token: int) -> None: ...

    def reset(self) -> None: ...


class Ran(NamedTuple):
    """Requests that ran in one engine."""

    outcomes: list[Outcome]
    stats: list[SpeculationStats | None]
    counters: Counters

    @property
    def only(self) -> tuple[Outcome, SpeculationStats]:
        (outcome,), (stats,) = self.outcomes, self.stats
        assert stats is not None
        return outcome, stats


class Rig:
    """One real model, computing with and without drafts."""

    def __init__(self, path: Path, costs_file: Path) -> None:
        native = open_native()
        if not isinstance(native, Native):
            pytest.skip("the extension is not built")
        gguf = open_gguf(path)
        tokenizer = Tokenizer.from_metadata(gguf.metadata, path=path)
        ops = NativeOps(native.module, max_rows=96, threads=2, tier=None, repack=True)
        self.lm = load_causal_lm(gguf, ops, context=512, kv_format="f16", kv_capacity_blocks=64)
        metadata = {"tokenizer.chat_template": GEMMA, **gguf.metadata}  # Gemma's file is of a base model, without one
        self.speech = ModelSpeech(tokenizer, ChatTemplate.from_metadata(metadata, tokenizer.vocabulary, path=path))
        # prices given, not measured, so that what is drafted does not depend on who else uses the machine
        costs_file.write_text(json.dumps({"rows_and_costs": [[1, 1.0], [17, 2.0]]}))
        self.costs = PassCosts(self.lm, costs_file)
        self.prompt = self.speech.prompt_ids(REPETITIVE)
        self._plain: dict[SamplingParams, Outcome] = {}

    def speculation(self, options: SpeculationOptions | None = None) -> Speculation:
        return Speculation(self.lm.vocab, self.costs, options)

    def run(self, *requests: Request, known: Sequence[int] = ()) -> Ran:
        """Compute requests together, each with rows recorded, by an engine that has read `known` before."""
        engine = Engine(self.lm, self.speech)
        if known:
            engine.submit(Request(prompt_ids=known, params=replace(GREEDY, max_tokens=1)))
            list(engine.run())
        recorders = [Recorder() for _ in requests]
        events: dict[int, list[Event]] = {}
        if any(request.speculator for request in requests):
            engine.learn_costs(self.speculation().costs)
        for request, recorder in zip(requests, recorders, strict=True):
            events[engine.submit(replace(request, processor=recorder))] = []
        for event in engine.run():
            events[event.request_id].append(event)
        done = [collect(request.prompt_ids, own) for request, own in zip(requests, events.values(), strict=True)]
        outcomes = [outcome(completion, recorder) for completion, recorder in zip(done, recorders, strict=True)]
        engine.close()
        return Ran(outcomes, [completion.speculation for completion in done], engine.counters)

    def plain(self, params: SamplingParams) -> Outcome:
        """The answer to the repetitive prompt without drafts."""
        if params not in self._plain:
            ran = self.run(Request(prompt_ids=self.prompt, params=params))
            assert ran.stats == [None]
            self._plain[params] = ran.outcomes[0]
        return self._plain[params]

    def drafted(self, params: SamplingParams, source: Any) -> tuple[Outcome, SpeculationStats]:
        """The same answer with drafts."""
        return self.run(Request(prompt_ids=self.prompt, params=params, draft_source=source)).only


def outcome(completion: Completion, recorder: Recorder) -> Outcome:
    assert completion.error is None
    entries = completion.logprobs or []
    assert len(entries) == len(recorder.rows) == len(completion.ids)
    return Outcome(
        completion.ids,
        completion.text,
        completion.finish_reason,
        completion.stop,
        completion.usage,
        [(entry.token, entry.logprob, entry.top) for entry in entries],
        recorder.rows,
    )


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    path: Path = request.getfixturevalue(f"{request.param}_path")
    yield Rig(path, tmp_path_factory.mktemp("costs") / "costs.json")


@pytest.fixture(params=list(MODES))
def params(request: pytest.FixtureRequest) -> SamplingParams:
    return MODES[request.param]


class Source:
    """A source with every optional method; what it proposes follows from the call's number and the right answer.

    `raises_in`, `at_call`: the method that fails, and when. It counts its calls.
    """

    def __init__(
        self,
        n_prompt: int,
        answer: Sequence[int],
        propose: Callable[[int, Sequence[int], int], Sequence[int]],
        raises_in: str = "",
        at_call: int = 0,
    ) -> None:
        self.n_prompt, self.answer, self.propose = n_prompt, answer, propose
        self.raises_in, self.at_call = raises_in, at_call
        self.calls = dict.fromkeys(("suggest", "observe", "truncate_pending", "observe_top_k", "sources"), 0)
        self.n_top = 5

    def suggest(self, context: Sequence[int], max_tokens: int) -> Sequence[int]:
        self._called("suggest")
        return self.propose(self.calls["suggest"], self.answer[len(context) - self.n_prompt :], max_tokens)

    def observe(self, committed: Sequence[int]) -> None:
        self._called("observe")
        assert committed

    def truncate_pending(self, n_tokens: int) -> None:
        self._called("truncate_pending")
        assert n_tokens >= 0

    def observe_top_k(self, rows: Sequence[TopKRow]) -> None:
        self._called("observe_top_k")
        assert all(len(row.ids) == 5 for row in rows)

    def sources(self) -> Sequence[SourceReport]:
        self._called("sources")
        return ()

    def _called(self, method: str) -> None:
        self.calls[method] += 1
        if method == self.raises_in and self.calls[method] == self.at_call:
            raise RuntimeError(f"{method} is broken")


def perfect(_: int, rest: Sequence[int], most: int) -> Sequence[int]:
    return rest[:most]


def garbage(call: int, _rest: Sequence[int], _most: int) -> Sequence[int]:
    return [int(token) for token in np.random.default_rng(call).integers(0, 49_000, 4)]


def alternating(call: int, rest: Sequence[int], _: int) -> Sequence[int]:
    """Up to two right ones, a wrong one, then right ones again that must not be taken."""
    n_right = call % 3
    return [token if i != n_right else (token + 1) % 49_000 for i, token in enumerate(rest[:5])]


def lying(call: int, rest: Sequence[int], most: int) -> Sequence[int]:
    """Right tokens, but never as many as asked for; the answer is followed by a long tail."""
    return [*rest, *rest * 20][: (most + 9, 0, 1, 10 * most, 3)[call % 5]]


def half_right(_: int, rest: Sequence[int], _most: int) -> Sequence[int]:
    """Gives every optional method something to do: a wrong third token, and an impossible fourth."""
    return [*rest[:2], (rest[2] + 1) % 49_000 if len(rest) > 2 else 0, -1]


@pytest.mark.parametrize("propose", [perfect, garbage, alternating, lying], ids=lambda propose: propose.__name__)
def test_no_source_shows_in_the_answer(rig: Rig, params: SamplingParams, propose: Any) -> None:
    plain = rig.plain(params)
    source = Source(len(rig.prompt), plain.ids, propose)
    drafted, stats = rig.drafted(params, source)
    assert drafted == plain
    assert stats.drafted > 0
    assert (stats.accepted > 0) == (propose is not garbage)
    if propose is perfect:
        assert stats.accepted == stats.drafted
    if propose is alternating:
        assert stats.rejected > 2
    if propose is lying:
        assert source.calls["truncate_pending"] > 0


@pytest.mark.parametrize("method", ["suggest", "observe", "truncate_pending", "observe_top_k", "sources"])
def test_a_broken_source_does_not_show(rig: Rig, params: SamplingParams, method: str) -> None:
    short = replace(params, max_tokens=16)
    plain = rig.plain(short)
    at_call = 1 if method == "sources" else 2  # it is asked at the end only
    source = Source(len(rig.prompt), plain.ids, half_right, method, at_call)
    drafted, stats = rig.drafted(short, source)
    assert drafted == plain
    assert stats.accepted > 0
    assert source.calls[method] == at_call


def test_the_cascade_behind_its_gate_does_not_show(rig: Rig, params: SamplingParams) -> None:
    speculator = rig.speculation().drafting().speculator
    drafted, stats = rig.run(Request(prompt_ids=rig.prompt, params=params, speculator=speculator)).only
    assert drafted == rig.plain(params)
    assert stats.accepted > 0
    assert stats.gate is not None
    assert speculator.error is None


def test_an_end_inside_an_accepted_draft(rig: Rig, params: SamplingParams) -> None:
    ids = rig.plain(params).ids
    last_new = max(i for i, token in enumerate(ids[:12]) if token not in ids[:i])
    token_end = replace(params, stop_token_ids=frozenset({ids[last_new]}))
    text_end = replace(params, stop=(rig.speech.tokenizer.decode(ids[: last_new + 1])[-5:],))
    for ended in (token_end, text_end):
        plain = rig.plain(ended)
        assert plain.reason == "stop"
        assert plain.stop == (ids[last_new] if ended is token_end else ended.stop[0])
        assert 1 < len(plain.ids) <= last_new + 1
        drafted, stats = rig.drafted(ended, Source(len(rig.prompt), ids, perfect))
        assert drafted == plain
        # the one verify was ended by a right draft, so it gave no token of its own
        assert (stats.verify_steps, stats.bonus, stats.rejected) == (1, 0, 0)
        assert stats.accepted == len(plain.ids) - 1
        assert (stats.drafted > stats.accepted) == (ended is text_end)  # nothing is drafted after an end token


def test_a_budget_inside_a_draft(rig: Rig, params: SamplingParams) -> None:
    ids = rig.plain(params).ids
    for n in (1, 2, 9):
        short = replace(params, max_tokens=n)
        plain = rig.plain(short)
        assert (plain.ids, plain.reason) == (ids[:n], "length")
        drafted, stats = rig.drafted(short, Source(len(rig.prompt), ids, perfect))
        assert drafted == plain
        assert stats.accepted == max(n - 2, 0)


def test_a_batch_of_four_is_each_alone(rig: Rig) -> None:
    prompts = [rig.prompt, rig.prompt[:17], rig.speech.prompt_ids("Once upon a time"), rig.prompt[3:]]
    stop = (rig.plain(GREEDY).text[24:30],)
    each = [GREEDY, SAMPLED, replace(SAMPLED, seed=1), replace(GREEDY, stop=stop)]
    requests = [Request(prompt_ids=ids, params=own) for ids, own in zip(prompts, each, strict=True)]
    alone = [rig.run(request).outcomes[0] for request in requests]
    assert [one.reason for one in alone] == ["length", "length", "length", "stop"]
    cascade = rig.speculation().drafting().speculator
    sources = [Source(len(prompts[i]), alone[i].ids, how) for i, how in ((1, perfect), (3, garbage))]
    ran = rig.run(
        replace(requests[0], speculator=cascade),
        replace(requests[1], draft_source=sources[0]),
        requests[2],
        replace(requests[3], draft_source=sources[1]),
    )
    assert ran.outcomes == alone
    assert ran.counters.passes == 30  # those that the plain one takes: the others joined in them
    assert [stats and stats.accepted > 0 for stats in ran.stats] == [True, True, None, False]
    assert [stats and stats.drafted > 0 for stats in ran.stats] == [True, True, None, True]


def test_after_a_shared_prefix(rig: Rig) -> None:
    endings = [" blue, red,", " yellow, red,"]
    prompts = [[*rig.prompt, *rig.speech.tokenizer.encode(ending)] for ending in endings]
    requests = [Request(prompt_ids=prompt, params=own) for prompt, own in zip(prompts, (GREEDY, SAMPLED), strict=True)]
    alone = [rig.run(request, known=rig.prompt).outcomes[0] for request in requests]
    assert [one.usage.cached_tokens for one in alone] == [len(rig.prompt)] * 2
    ran = rig.run(
        replace(requests[0], speculator=rig.speculation().drafting().speculator),
        replace(requests[1], draft_source=Source(len(prompts[1]), alone[1].ids, alternating)),
        known=rig.prompt,
    )
    assert ran.outcomes == alone
    assert all(stats is not None and stats.accepted > 0 for stats in ran.stats)
    assert rig.lm.kv_pool.n_free == rig.lm.kv_pool.capacity


def test_the_turns_of_a_chat(rig: Rig, params: SamplingParams) -> None:
    turns = ["Repeat after me: red, green, blue, red, green, blue.", "Once more, please.", "Now say: red, green, blue."]

    def said(model: Model) -> tuple[list[Outcome], list[SpeculationStats | None]]:
        outcomes, stats = [], []
        with model.conversation(system="You repeat what you are told.") as talk:
            for turn in (*turns[:2], *turns[1:]):
                if len(outcomes) == 2:
                    talk.rewind()
                recorder = Recorder()
                completion = talk.send(turn, replace(params, max_tokens=20), processor=recorder)
                outcomes.append(outcome(completion, recorder))
                stats.append(completion.speculation)
        return outcomes, stats

    open_gate = SpeculationOptions(min_speedup=0.0)  # whatever the clock says, so that there are drafts in every turn
    plain, nothing = said(Model(rig.lm, rig.speech))
    drafted, stats = said(Model(rig.lm, rig.speech, speculation=rig.speculation(open_gate)))
    assert drafted == plain
    assert nothing == [None] * 4
    assert plain[1].ids == plain[2].ids  # the turn taken back and said again
    assert all(one.usage.cached_tokens > 0 for one in plain[1:])
    assert all(one is not None and one.accepted > 0 for one in stats[1:])  # the first turn has little to copy
