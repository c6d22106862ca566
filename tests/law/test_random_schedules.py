"""The law under load: sixteen requests of all kinds, coming and going at random in little memory, are each as alone.

Tokens, text, log-probabilities and the bits of every row that a token was chosen from. `--schedules N` runs so many of
each model's instead of a few; a schedule is made from its number alone, which a failure names.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.nativelib import Native, open_native
from fucina.core.shapes import KV_BLOCK
from fucina.decoding.grammar.compiler import Compiler
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.contract import Matcher
from fucina.decoding.grammar.processor import GrammarProcessor
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.decoding.params import SamplingParams
from fucina.decoding.scans import open_scans
from fucina.decoding.speculation.costs import CostTable, StepCosts
from fucina.engine.completion import collect
from fucina.engine.engine import Engine, EngineConfig
from fucina.engine.events import Event, FinishEvent
from fucina.engine.pass_costs import PassCosts
from fucina.engine.request import Request
from fucina.engine.speculation import Speculation
from fucina.engine.speech import ModelSpeech
from fucina.models.loader import load_causal_lm
from fucina.ops.native import NativeOps
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.prefix import PrefixCache
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.memory_store import MemoryStore
from fucina.testing.scripted_matcher import ScriptedMatcher
from fucina.testing.scripted_model import ScriptedModel
from fucina.testing.tiny_gguf import tiny_model
from fucina.testing.tiny_vocabulary import GEMMA
from fucina.text.template import ChatTemplate
from fucina.text.tokenizer import Tokenizer

N_TOGETHER = 16
#: Schedules of a default run.
FEW = {"scripted": 20, "llama": 12, "gemma3": 8, "smollm2_path": 2}
#: Prompts end after so many tokens; they are cut from a few texts, so that many share what they begin with.
LENGTHS = (1, 2, 17, 63, 64, 65, 100, 128, 131, 190)
STORY = (
    "Once upon a time, in a small village by the sea, there lived a clockmaker who mended what others threw away. "
    "Every morning he opened his window, listened to the gulls, and wound forty-one clocks, one after the other. "
    "Yes, yes, yes: the nets were full, the nets were full, and the clocks all struck nine, nine, nine, nine times. "
)


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked: number `text` cut after `length` tokens."""

    text: int
    length: int
    params: SamplingParams
    form: str | None


class Outcome(NamedTuple):
    """All that a request gives, and a digest of the bits of every row."""

    ids: list[int]
    text: str
    reason: str
    stop: str | int | None
    logprobs: Any
    rows: list[bytes]


class Recorder:
    """A processor that changes nothing and keeps a digest of every row."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:
        self.rows.append(_digest(logits, history))

    def commit(self, token: int) -> None: ...

    def reset(self) -> None: ...


class RecordingGrammar(GrammarProcessor):
    """A grammar that keeps a digest of every row that it masks: not of those whose likeliest token it allows."""

    def __init__(self, matcher: Matcher, end_ids: frozenset[int]) -> None:
        super().__init__(matcher, open_scans(), end_ids=end_ids)
        self.rows: list[bytes] = []

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:
        self.rows.append(_digest(logits, history))
        super().process(logits, history)


def _digest(logits: NDArray[np.float32], history: Sequence[int]) -> bytes:
    return blake2b(logits.tobytes(), digest_size=8, salt=len(history).to_bytes(8, "little")).digest()


class Source:
    """Proposes the right answer, with wrong tokens in it every third time (mixed), or nothing right (garbage)."""

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
    """One model, the answers that requests get when each has it for itself, and schedules of many at once."""

    def __init__(self, name: str, path: Path | None, costs_file: Path) -> None:
        self.lm: Any
        self.speech: Any
        if path is None:
            self.lm, self.speech = ScriptedModel(context_length=512, kv_blocks=64), ByteTokenizer()
        else:
            native = open_native()
            if not isinstance(native, Native):
                pytest.skip("the extension is not built")
            gguf = open_gguf(path)
            tokenizer = Tokenizer.from_metadata(gguf.metadata, path=path)
            ops = NativeOps(native.module, max_rows=96, threads=2, tier=None, repack=True)
            self.lm = load_causal_lm(gguf, ops, context=512, kv_format="f16", kv_capacity_blocks=64)
            metadata = {"tokenizer.chat_template": GEMMA, **gguf.metadata}
            self.speech = ModelSpeech(tokenizer, ChatTemplate.from_metadata(metadata, tokenizer.vocabulary, path=path))
            compiler = Compiler(GrammarVocabulary(tokenizer))
        costs_file.write_text(json.dumps({"rows_and_costs": [[1, 1.0], [17, 1.3]]}))
        self.costs = PassCosts(self.lm, costs_file)
        self.texts = self._texts()
        words = ("yes", "no", "perhaps"), (" and", " or"), (" tomorrow", " today"), ("!", ", I think.")
        answers = [self.speech.tokenizer.encode("".join(choice)) for choice in itertools.product(*words)]
        self.matchers: dict[str, Callable[[], Matcher]] = {
            "scripted": lambda: ScriptedMatcher(answers, vocab=self.speech.vocab_size, end_ids=self.speech.eog_ids)
        }
        if path is not None:
            rule = Constraint.regex("(The answer is (yes|no|perhaps)\\. ){1,2}")
            self.matchers["regex"] = lambda: compiler.matcher(rule)
        self.jobs = self._jobs(random.Random(name))
        self._alone: dict[Job, Outcome] = {}

    def _texts(self) -> list[list[int]]:
        """Three texts; the last two begin alike."""
        ids = self.speech.prompt_ids(STORY * 4)
        return [ids[50:], ids, [*ids[:100], *reversed(ids[100:])]]

    def _jobs(self, rng: random.Random) -> list[Job]:
        jobs = []
        for index in range(48):
            params = SamplingParams(
                max_tokens=rng.choice((1, 3, 10, 25, 40)),
                logprobs=rng.choice((None, 0, 3)),
                stop=rng.choice(((), (), ("e",), ("the", ", "))),
                seed=rng.randrange(2**32),
            )
            if index % 2:
                params = replace(
                    params,
                    temperature=rng.choice((0.7, 1.5)),
                    top_k=rng.choice((None, 40)),
                    top_p=rng.choice((1.0, 0.9)),
                    min_p=rng.choice((0.0, 0.02)),
                )
            if index % 3 == 0:
                params = replace(
                    params, repeat_penalty=1.2, frequency_penalty=0.1, presence_penalty=0.05, penalty_window=16
                )
            form = rng.choice([None, None, *self.matchers])
            if form is None and rng.random() < 0.7:
                params = replace(params, ignore_eos=True)
            if form is not None:
                params = replace(params, stop=())
            jobs.append(Job(rng.randrange(3), rng.choice(LENGTHS), params, form))
        return jobs

    def request(self, job: Job) -> tuple[Request, Recorder | RecordingGrammar]:
        own = Recorder() if job.form is None else RecordingGrammar(self.matchers[job.form](), self.speech.eog_ids)
        return Request(prompt_ids=self.texts[job.text][: job.length], params=job.params, processor=own), own

    def alone(self, job: Job) -> Outcome:
        """The answer in an engine of its own: nothing known before, no drafts, all memory."""
        if job not in self._alone:
            engine = Engine(self.lm, self.speech)
            request, recorder = self.request(job)
            engine.submit(request)
            self._alone[job] = outcome(list(engine.run()), recorder.rows)
            assert self._alone[job].reason != "error"
            engine.close()
        return self._alone[job]

    def run(self, number: int, told: Counter[str]) -> None:
        """Run one schedule and compare; `told` counts what happened."""
        rng = random.Random(number)
        jobs = [rng.choice(self.jobs) for _ in range(N_TOGETHER)]
        wanted = [self.alone(job) for job in jobs]
        pool = self.lm.kv_pool
        n_blocks = rng.choice((4, 5, 8, 16, 40))  # the longest takes four
        hostage = KvSequence(pool)
        hostage.reserve((pool.capacity - n_blocks) * KV_BLOCK)
        config = EngineConfig(prefill_chunk=rng.choice((1, 7, 64, 512)), max_running=rng.choice((None, None, 3, 7)))
        store = MemoryStore(pool) if rng.random() < 0.4 else None
        engine = Engine(self.lm, self.speech, config, PrefixCache(pool, store=store))
        if rng.random() < 0.7:
            engine.learn_costs(StepCosts(CostTable([(1, 1.0), (17, rng.choice((1.05, 2.0, 20.0)))])))
        _invent_timings(engine, random.Random(number))
        ids, events = self._play(engine, jobs, wanted, rng)
        for index, (request_id, recorder) in enumerate(ids):
            got, want = outcome([e for e in events if e.request_id == request_id], recorder.rows), wanted[index]
            where = f"schedule {number}, request {index}: {jobs[index]}"
            if got.reason == "cancelled":
                told["cancelled"] += 1
                n = len(got.ids)
                assert got.ids == want.ids[:n], where
                assert got.rows == want.rows[: len(got.rows)], where
                assert len(got.rows) == n or jobs[index].form, where
                assert got.logprobs == want.logprobs[:n], where
            else:
                told["whole"] += 1
                assert got == want, where
        counters = engine.counters
        for key in ("preemptions", "kv_waits", "cached_tokens", "accepted", "tokens"):
            told[key] += getattr(counters, key)
        told["rejected"] += counters.drafted - counters.accepted
        engine.close()
        hostage.close()
        assert pool.n_free == pool.capacity

    def _play(
        self, engine: Engine, jobs: list[Job], wanted: list[Outcome], rng: random.Random
    ) -> tuple[list[tuple[int, Recorder | RecordingGrammar]], list[Event]]:
        """Submit and cancel at random steps, and forget what was kept now and then."""
        length = rng.choice((0, 10, 60))
        arrivals = sorted(rng.randint(0, length) for _ in jobs)
        leaving: list[tuple[int, int]] = []
        ids: list[tuple[int, Recorder | RecordingGrammar]] = []
        events: list[Event] = []
        for step in range(100_000):
            while len(ids) < len(jobs) and arrivals[len(ids)] <= step:
                index = len(ids)
                request, recorder = self.request(jobs[index])
                request = replace(
                    request, priority=rng.choice((0, 0, 0, 1, 2)), salt=rng.choice(("", "", "", "another"))
                )
                ids.append((engine.submit(self._drafting(request, wanted[index], rng)), recorder))
                if rng.random() < 0.2:
                    leaving.append((step + rng.randint(0, 40), ids[-1][0]))
            for when, request_id in leaving:
                if when == step:
                    engine.cancel(request_id)
            if rng.random() < 0.02:
                engine.prefixes.clear()
            events += engine.step()
            if engine.is_idle and len(ids) == len(jobs):
                return ids, events
        raise AssertionError("the engine never came to rest")

    def _drafting(self, request: Request, want: Outcome, rng: random.Random) -> Request:
        kind = rng.choice((None, None, "right", "mixed", "garbage", "gated"))
        if kind is None:
            return request
        if kind == "gated":
            return replace(request, speculator=Speculation(self.lm.vocab, self.costs).drafting().speculator)
        return replace(request, draft_source=Source(len(request.prompt_ids), want.ids, kind))


def _invent_timings(engine: Engine, rng: random.Random) -> None:
    """Let prompts be paced by timings of any kind, which a schedule's number alone decides."""
    record = engine._pacing.record
    engine._pacing.spare_s = lambda _: rng.choice((0.0, 1.0))  # type: ignore[method-assign]
    engine._pacing.record = lambda n_rows, n_prompt, _, depth: record(n_rows, n_prompt, rng.expovariate(1.0), depth)  # type: ignore[method-assign]


def outcome(events: list[Event], rows: list[bytes]) -> Outcome:
    done = collect([], events)
    assert isinstance(events[-1], FinishEvent)
    assert done.error is None, repr(done.error)
    logprobs = [(one.token, one.logprob, one.top) for one in done.logprobs or ()]
    return Outcome(done.ids, done.text, done.finish_reason, done.stop, logprobs, list(rows))


@pytest.fixture(params=["scripted", "llama", "gemma3", pytest.param("smollm2_path", marks=pytest.mark.model)])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    name: str = request.param
    if name == "scripted":
        path = None
    else:
        path = request.getfixturevalue(name) if name.endswith("_path") else tiny_model(tmp_path / "tiny.gguf", name)
    return Rig(name, path, tmp_path / "costs.json")


def test_every_request_is_as_it_is_alone(request: pytest.FixtureRequest, rig: Rig) -> None:
    name = request.node.callspec.params["rig"]
    n = request.config.getoption("--schedules") or FEW[name]
    told: Counter[str] = Counter()
    before = time.perf_counter()
    for number in range(n):
        rig.run(number, told)
    told["schedules"], told["seconds"] = n, round(time.perf_counter() - before)
    print(name, dict(told))
    assert told["whole"] > told["cancelled"]
    if n >= FEW["gemma3"]:  # everything that may happen did
        happened = ("cancelled", "preemptions", "kv_waits", "cached_tokens", "accepted", "rejected")
        assert min(told[key] for key in happened) > 0
