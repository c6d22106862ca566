"""Constraints and the law: an answer held to a form has the same tokens and log-probabilities on every schedule.

Plain, with drafts of every kind, with and without forced spans, in a batch, after a fork, while thinking.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fucina.core.nativelib import Native, open_native
from fucina.decoding.grammar import masks
from fucina.decoding.grammar.compiler import Compiler
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.contract import Matcher
from fucina.decoding.grammar.processor import GrammarProcessor, Thinking
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.decoding.params import SamplingParams
from fucina.decoding.reference_scans import ReferenceScans
from fucina.decoding.scans import RowScans, open_scans
from fucina.decoding.speculation.stats import SpeculationStats
from fucina.engine import engine as engine_module
from fucina.engine.completion import Completion, collect
from fucina.engine.engine import Engine
from fucina.engine.events import Event
from fucina.engine.pass_costs import PassCosts
from fucina.engine.request import Request
from fucina.engine.speculation import Speculation
from fucina.engine.speculator import Speculator
from fucina.engine.speech import ModelSpeech
from fucina.models.loader import load_causal_lm
from fucina.ops.native import NativeOps
from fucina.storage.gguf import open_gguf
from fucina.testing.scripted_matcher import ScriptedMatcher
from fucina.testing.tiny_gguf import tiny_model
from fucina.testing.tiny_vocabulary import GEMMA
from fucina.text.template import ChatTemplate
from fucina.text.tokenizer import Tokenizer

PROMPT = "Describe a person as JSON, with a name, an age and a list of tags:\n"
GREEDY = SamplingParams(max_tokens=60, logprobs=3)
SAMPLED = SamplingParams(
    max_tokens=60,
    logprobs=3,
    temperature=0.9,
    top_k=60,
    top_p=0.95,
    repeat_penalty=1.05,
    presence_penalty=0.1,
    penalty_window=32,
    seed=11,
)
MODES = {"greedy": GREEDY, "sampled": SAMPLED}
PERSON = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 8},
        "age_in_years": {"type": "integer", "minimum": 0, "maximum": 120},
        "is_a_member": {"type": "boolean"},
        "favorite_color": {"enum": ["red", "green", "blue"]},
    },
    "required": ["first_name", "age_in_years", "is_a_member", "favorite_color"],
    "additionalProperties": False,
}


class Outcome(NamedTuple):
    """All that a constrained request gives."""

    ids: list[int]
    text: str
    reason: str
    stop: str | int | None
    logprobs: Any
    satisfied: bool | None


class WithoutLooks:
    """A grammar that cannot look ahead, so that no span is forced and no draft is cut."""

    def __init__(self, inner: GrammarProcessor) -> None:
        self.process, self.commit, self.reset = inner.process, inner.commit, inner.reset
        self.is_satisfied = inner.is_satisfied
        self.mask_costs = None


class Source:
    """Proposes the right answer with wrong tokens in it: every third, none, or all."""

    def __init__(self, n_prompt: int, answer: Sequence[int], kind: str) -> None:
        self.n_prompt, self.answer, self.kind, self.calls = n_prompt, answer, kind, 0

    def suggest(self, context: Sequence[int], max_tokens: int) -> Sequence[int]:
        self.calls += 1
        rest = list(self.answer[len(context) - self.n_prompt :][: min(max_tokens, 7)])
        if self.kind == "garbage":
            return [(token + 1 + self.calls) % 200 for token in rest]
        if self.kind == "mixed" and len(rest) > self.calls % 3:
            rest[self.calls % 3] = (rest[self.calls % 3] + 1) % 200
        return rest

    def observe(self, committed: Sequence[int]) -> None:
        assert committed


class Rig:
    """One model, computing constrained answers on every schedule."""

    def __init__(self, path: Path, costs_file: Path) -> None:
        native = open_native()
        if not isinstance(native, Native):
            pytest.skip("the extension is not built")
        gguf = open_gguf(path)
        tokenizer = Tokenizer.from_metadata(gguf.metadata, path=path)
        ops = NativeOps(native.module, max_rows=96, threads=2, tier=None, repack=True)
        self.lm = load_causal_lm(gguf, ops, context=512, kv_format="f16", kv_capacity_blocks=64)
        metadata = {"tokenizer.chat_template": GEMMA, **gguf.metadata}
        self.speech = ModelSpeech(tokenizer, ChatTemplate.from_metadata(metadata, tokenizer.vocabulary, path=path))
        costs_file.write_text(json.dumps({"rows_and_costs": [[1, 1.0], [17, 1.2]]}))
        self.costs = PassCosts(self.lm, costs_file)
        self.prompt = self.speech.prompt_ids(PROMPT)
        self.compiler = Compiler(GrammarVocabulary(tokenizer))
        self.matchers: dict[str, Callable[[], Matcher]] = {
            "schema": lambda: self.compiler.matcher(Constraint.json_schema(PERSON)),
            "regex": lambda: self.compiler.matcher(Constraint.regex("(The answer is (yes|no|perhaps)\\. ){1,3}")),
            "scripted": self._scripted,
        }
        self._plain: dict[tuple[str, SamplingParams, Thinking | None], Outcome] = {}

    def _scripted(self) -> Matcher:
        words = ("yes", "no", "perhaps"), (" and", " or", " but not"), (" tomorrow", " today"), ("!", ", I think.")
        answers = [self.encode("".join(choice)) for choice in itertools.product(*words)]
        return ScriptedMatcher(answers, vocab=self.speech.vocab_size, end_ids=self.speech.eog_ids)

    def encode(self, text: str) -> list[int]:
        return self.speech.tokenizer.encode(text)

    def speculator(self) -> Speculator:
        return Speculation(self.lm.vocab, self.costs).drafting().speculator

    def processor(
        self, matcher: str, scans: RowScans | None = None, thinking: Thinking | None = None
    ) -> GrammarProcessor:
        return GrammarProcessor(
            self.matchers[matcher](), scans or open_scans(), end_ids=self.speech.eog_ids, thinking=thinking
        )

    def run(self, *requests: Request, known: Sequence[int] = ()) -> tuple[list[Outcome], list[SpeculationStats | None]]:
        """Compute requests together, by an engine that has read `known` before."""
        engine = Engine(self.lm, self.speech)
        if known:
            engine.submit(Request(prompt_ids=known, params=replace(GREEDY, max_tokens=1, ignore_eos=True)))
            list(engine.run())
        events: dict[int, list[Event]] = {engine.submit(request): [] for request in requests}
        for event in engine.run():
            events[event.request_id].append(event)
        done = [collect(request.prompt_ids, own) for request, own in zip(requests, events.values(), strict=True)]
        engine.close()
        return [outcome(one) for one in done], [one.speculation for one in done]

    def one(self, **request: Any) -> tuple[Outcome, SpeculationStats | None]:
        (got,), (stats,) = self.run(Request(**{"prompt_ids": self.prompt, **request}))
        return got, stats

    def plain(self, matcher: str, params: SamplingParams, thinking: Thinking | None = None) -> Outcome:
        """The answer without drafts."""
        key = matcher, params, thinking
        if key not in self._plain:
            self._plain[key], stats = self.one(params=params, processor=self.processor(matcher, thinking=thinking))
            assert stats is None
        return self._plain[key]


def outcome(completion: Completion) -> Outcome:
    assert completion.error is None
    entries = [(entry.token, entry.logprob, entry.top) for entry in completion.logprobs or ()]
    assert len(entries) == len(completion.ids)
    return Outcome(
        completion.ids,
        completion.text,
        completion.finish_reason,
        completion.stop,
        entries,
        completion.satisfied,
    )


RIGS = [
    "llama",
    "gemma3",
    pytest.param("smollm2_path", marks=pytest.mark.model),
    pytest.param("gemma3_path", marks=pytest.mark.model),
]
#: Every kind of matcher on the tiny models, the schema on the real ones.
FORMS = [
    *itertools.product(["llama", "gemma3"], ["schema", "regex", "scripted"]),
    pytest.param(("smollm2_path", "schema"), marks=pytest.mark.model),
    pytest.param(("gemma3_path", "schema"), marks=pytest.mark.model),
]


@pytest.fixture(scope="module")
def rigs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Rig]:
    known: dict[str, Rig] = {}

    def rig(name: str) -> Rig:
        if name not in known:
            folder = tmp_path_factory.mktemp("model")
            path = request.getfixturevalue(name) if name.endswith("_path") else tiny_model(folder / "tiny.gguf", name)
            known[name] = Rig(path, folder / "costs.json")
        return known[name]

    return rig


@pytest.fixture(scope="module", params=RIGS)
def rig(request: pytest.FixtureRequest, rigs: Callable[[str], Rig]) -> Rig:
    return rigs(request.param)


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: "-".join(form))
def form(request: pytest.FixtureRequest, rigs: Callable[[str], Rig]) -> tuple[Rig, str]:
    name, matcher = request.param
    return rigs(name), matcher


@pytest.fixture(params=list(MODES))
def params(request: pytest.FixtureRequest) -> SamplingParams:
    return MODES[request.param]


def test_an_answer_keeps_to_its_form(rig: Rig, params: SamplingParams) -> None:
    plain = rig.plain("schema", replace(params, max_tokens=200))
    assert (plain.reason, plain.satisfied) == ("stop", True)
    value = json.loads(plain.text)
    assert list(value) == list(PERSON["properties"])  # type: ignore[call-overload]
    assert len(value["first_name"]) <= 8
    assert 0 <= value["age_in_years"] <= 120
    assert rig.plain("scripted", params).text.endswith(("!", ", I think."))


@pytest.mark.parametrize(("kind", "looks"), [("perfect", True), ("mixed", True), ("mixed", False), ("garbage", True)])
def test_no_draft_shows_in_the_answer(form: tuple[Rig, str], params: SamplingParams, kind: str, looks: bool) -> None:
    rig, matcher = form
    plain = rig.plain(matcher, params)
    processor: Any = rig.processor(matcher)
    if not looks:
        processor = WithoutLooks(processor)
    source = Source(len(rig.prompt), plain.ids, kind)
    drafted, stats = rig.one(params=params, processor=processor, draft_source=source)
    assert drafted == plain
    assert stats is not None
    assert (stats.forced > 0) == looks
    if kind == "perfect":
        assert stats.accepted == stats.drafted


@pytest.mark.parametrize("worth_s", [0.0, 1e9], ids=["masks handed over", "masks when needed"])
def test_forced_spans_behind_a_gate_do_not_show(
    form: tuple[Rig, str], params: SamplingParams, worth_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, matcher = form
    monkeypatch.setattr(masks, "_WORTH_HANDING_S", worth_s)
    speculator = rig.speculator()
    drafted, stats = rig.one(params=params, processor=rig.processor(matcher), speculator=speculator)
    assert drafted == rig.plain(matcher, params)
    assert speculator.error is None
    assert stats is not None
    assert stats.forced > 0
    grammar = stats.sources[0]
    assert grammar.name == "grammar"
    assert grammar.drafted == grammar.accepted == stats.forced  # not one of them was wrong


def test_scans_do_not_show(rig: Rig, params: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "open_scans", ReferenceScans)
    short = replace(params, max_tokens=20)
    processor = rig.processor("schema", ReferenceScans())
    reference, _ = rig.one(params=short, processor=processor, speculator=rig.speculator())
    monkeypatch.undo()
    assert reference == rig.plain("schema", short)


def test_a_batch_of_four_is_each_alone(rig: Rig) -> None:
    prompts = [rig.prompt, rig.prompt[:9], rig.speech.prompt_ids("Once upon a time"), rig.prompt[2:]]
    each = [
        (GREEDY, "schema"),
        (SAMPLED, "schema"),
        (replace(SAMPLED, seed=1), "scripted"),
        (replace(GREEDY, max_tokens=20, ignore_eos=True), None),
    ]
    requests = [
        Request(prompt_ids=ids, params=own, processor=None if name is None else rig.processor(name))
        for ids, (own, name) in zip(prompts, each, strict=True)
    ]
    alone = [rig.run(request)[0][0] for request in requests]
    assert [one.satisfied is None for one in alone] == [False, False, False, True]
    together, stats = rig.run(
        replace(requests[0], speculator=rig.speculator()),
        replace(requests[1], draft_source=Source(len(prompts[1]), alone[1].ids, "mixed")),
        requests[2],
        replace(requests[3], speculator=rig.speculator()),
    )
    assert together == alone
    assert [one is not None and one.forced > 0 for one in stats] == [True, True, False, False]


def test_after_a_shared_prefix(rig: Rig) -> None:
    together, stats = rig.run(
        *[
            Request(
                prompt_ids=rig.prompt,
                params=own,
                processor=rig.processor("schema"),
                speculator=rig.speculator(),
            )
            for own in MODES.values()
        ],
        known=rig.prompt,
    )
    assert together == [rig.plain("schema", own) for own in MODES.values()]
    assert all(one is not None and one.forced > 0 for one in stats)
    assert rig.lm.kv_pool.n_free == rig.lm.kv_pool.capacity


@pytest.mark.parametrize("is_open", [True, False])
def test_thoughts_before_the_answer(rig: Rig, params: SamplingParams, is_open: bool) -> None:
    """The closing marker is a token that the model says by itself, wherever that is: free choices come before it."""
    free, _ = rig.one(params=replace(params, max_tokens=8, ignore_eos=True, temperature=0.0))
    close = list(itertools.takewhile(lambda token: token not in rig.speech.eog_ids, free.ids))[-1]
    opening = free.ids[0] if free.ids[0] != close else free.ids[0] + 1
    thinking = Thinking(opening, close, is_open)
    plain = rig.plain("scripted", params, thinking)
    for kind in ("perfect", "mixed"):
        source = Source(len(rig.prompt), plain.ids, kind)
        drafted, stats = rig.one(
            params=params, processor=rig.processor("scripted", thinking=thinking), draft_source=source
        )
        assert drafted == plain
        assert stats is not None
        if kind == "perfect":
            assert stats.accepted == stats.drafted > 0
    drafted, _ = rig.one(
        params=params, processor=rig.processor("scripted", thinking=thinking), speculator=rig.speculator()
    )
    assert drafted == plain
    assert close in plain.ids or not is_open or params is SAMPLED
    if close in plain.ids:
        answer = plain.ids[plain.ids.index(close) + 1 :]
        assert rig.processor("scripted").valid_prefix_len(answer) == len(answer)
