"""However requests are scheduled, each gets the tokens and the text that it would get alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fucina.decoding.params import SamplingParams
from fucina.engine.engine import Engine, EngineConfig
from fucina.engine.events import Event
from fucina.engine.request import Request
from fucina.testing.byte_tokenizer import EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

CONTEXT = 200


def babble(prefix: Sequence[int]) -> int:
    """A script of few letters, so that stop strings are met, and now and then an end token."""
    mixed = (sum(prefix) * 31 + len(prefix) * 17 + prefix[-1] * 7) % 41
    return EOS if mixed == 0 else b"ab\xc3\xa9 "[mixed % 5]


def new_model(**options: Any) -> ScriptedModel:
    return ScriptedModel(context_length=CONTEXT, script=babble, **options)


class Guesses:
    """A draft source that knows the answer and lies now and then; it checks that it is told everything in order."""

    def __init__(self, prompt: Sequence[int], answer: Sequence[int], lie_every: int) -> None:
        self.prompt, self.answer, self.lie_every = list(prompt), list(answer), lie_every
        self.seen: list[int] = []
        self.n_asked = 0

    def suggest(self, context: Sequence[int], max_tokens: int) -> Sequence[int]:
        assert list(context) == self.seen
        self.n_asked += 1
        done = len(context) - len(self.prompt)
        told = self.answer[done : done + max_tokens + 3]  # more than asked for
        if self.lie_every and self.n_asked % self.lie_every == 0 and told:
            told[self.n_asked % len(told)] = [97, 300, -1][self.n_asked % 3]
        return told

    def observe(self, committed: Sequence[int]) -> None:
        self.seen += committed


class NoRepeat:
    """A processor with state: it bans the token it committed last."""

    def __init__(self) -> None:
        self.last: int | None = 5

    def process(self, logits: Any, _: Sequence[int]) -> None:
        if self.last is not None:
            logits[self.last] = float("-inf")

    def commit(self, token: int) -> None:
        self.last = token

    def reset(self) -> None:
        self.last = None


@dataclass
class Job:
    """One request, when it comes, and when it is cancelled."""

    prompt: list[int]
    params: SamplingParams
    arrives: int
    cancelled: int | None
    lie_every: int | None
    constrained: bool


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0, 12.0]),
    top_k=st.sampled_from([None, 20]),
    top_p=st.sampled_from([1.0, 0.9]),
    min_p=st.sampled_from([0.0, 0.02]),
    repeat_penalty=st.sampled_from([1.0, 1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    penalty_window=st.sampled_from([64, 3, None]),
    seed=st.integers(0, 2**64 - 1),
    max_tokens=st.sampled_from([1, 2, 9, 25, None]),
    stop=st.lists(st.text(st.sampled_from("abé "), min_size=1, max_size=4), max_size=2).map(tuple),
    ignore_eos=st.booleans(),
    logprobs=st.sampled_from([None, 2]),
)
JOBS = st.builds(
    Job,
    prompt=st.tuples(st.integers(0, 200), st.sampled_from([1, 2, 30, 64, 65, 130])).map(
        lambda key: [(key[0] * 7 + i * i) % 256 for i in range(key[1])]
    ),
    params=PARAMS,
    arrives=st.integers(0, 12),
    cancelled=st.one_of(st.none(), st.none(), st.integers(0, 20)),
    lie_every=st.sampled_from([None, None, 0, 1, 3]),
    constrained=st.booleans(),
)


def run_jobs(engine: Engine, jobs: list[Job], wanted: list[Any]) -> tuple[list[int], list[Event]]:
    """Submit and cancel as the jobs say, step until idle."""
    ids: dict[int, int] = {}
    events: list[Event] = []
    for step in range(10_000):
        for index, job in enumerate(jobs):
            if job.arrives == step:
                source = None if job.lie_every is None else Guesses(job.prompt, wanted[index].ids, job.lie_every)
                processor = NoRepeat() if job.constrained else None
                ids[index] = engine.submit(
                    Request(prompt_ids=job.prompt, params=job.params, processor=processor, draft_source=source)
                )
            if job.cancelled is not None and job.arrives + job.cancelled == step:
                engine.cancel(ids[index])
        events += engine.step()
        if engine.is_idle and step > max(job.arrives for job in jobs):
            return [ids[index] for index in range(len(jobs))], events
    raise AssertionError("the engine never came to rest")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(JOBS, min_size=1, max_size=6),
    st.sampled_from([1, 2, 7, 64]),
    st.sampled_from([1, 3, 50, 512]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 4, 7]),
)
def test_every_schedule_gives_what_each_gets_alone(
    naive: Callable[..., Any],
    gather: Callable[..., Any],
    jobs: list[Job],
    max_rows: int,
    chunk: int,
    max_running: int | None,
    kv_blocks: int | None,
) -> None:
    wanted = [naive(new_model(), job.prompt, job.params, NoRepeat() if job.constrained else None) for job in jobs]
    model = new_model(max_rows=max_rows, kv_blocks=kv_blocks)
    engine = Engine(model, ByteTokenizer(), EngineConfig(prefill_chunk=chunk, max_running=max_running))
    ids, events = run_jobs(engine, jobs, wanted)
    answers = gather(events)
    for request_id, job, want in zip(ids, jobs, wanted, strict=True):
        got = answers[request_id]
        if got.reason == "cancelled":
            assert job.cancelled is not None
            assert got.ids == want.ids[: len(got.ids)]
            # also what was held back because a stop string might have begun with it
            assert got.text == ByteTokenizer().decode(got.ids)
        else:
            assert got == want
    assert model.kv_pool.n_free == model.kv_pool.capacity
    assert engine.counters.accepted <= engine.counters.drafted
