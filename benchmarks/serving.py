"""Many streams in one engine: what they give together, and what a long prompt does to those that are writing.

Usage: python benchmarks/serving.py MODEL.gguf [MODEL.gguf ...] [--streams 1,2,4,8,16] [--beside 1,4] [--prompt 4000]
           [--threads 2] [--repeats 3] [--no-record]

throughput  so many requests at once, each a prompt of 64 tokens and an answer of 64: tokens of all answers in a second,
            and the median time to a first token; the best of the repeats
pace        beside so many streams that write, a long prompt arrives. quiet: the median step of these streams, the mean
            of before it comes and after it is read, for they become longer meanwhile, and the p99 of those quiet
            steps, which is the machine's own noise; p50, p99 and max: their steps
            until its first token; slowed: p99 over quiet. slowed_then: the p99 of each step over what the stream's
            quiet steps took when it was as long, between before and after in proportion; undisturbed_then: the same of
            those steps in which no other program took a processor (involuntary context switches), and noise the p99 of
            quiet steps over their median. first_s: the time to the first token of the long prompt, and alone_s the
            same with nobody beside it

A step is all that passes between two tokens of a stream: planning, computing, choosing, telling. No drafts, so that
each stream gives one token a step. Prints one JSON line a model, and appends it to benchmarks/records/serving.jsonl.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import subprocess
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from roof import machine

from fucina.core.cpu import usable_cpus
from fucina.decoding.params import SamplingParams
from fucina.decoding.speculation.costs import StepCosts
from fucina.engine.engine import Engine
from fucina.engine.events import TokenEvent
from fucina.engine.pacing import MOST_SLOWED
from fucina.engine.pass_costs import PassCosts
from fucina.engine.request import Request
from fucina.engine.speech import ModelSpeech
from fucina.models.loader import load_causal_lm
from fucina.ops.choose import open_ops
from fucina.storage.gguf import open_gguf
from fucina.text.template import ChatTemplate
from fucina.text.tokenizer import Tokenizer

HERE = Path(__file__).parent
#: Tokens of a prompt and of an answer.
SHORT = 64
#: Steps of the streams before the long prompt comes, of which the first few do not count.
QUIET_STEPS, WARM_STEPS = 120, 20


class Rig:
    """One model, and prompts that share nothing."""

    def __init__(self, path: Path, threads: int, context: int, sequences: int) -> None:
        gguf = open_gguf(path)
        tokenizer = Tokenizer.from_metadata(gguf.metadata, path=path)
        template = ChatTemplate.from_metadata(gguf.metadata, tokenizer.vocabulary, path=path)
        ops = open_ops(max_rows=512, threads=threads)
        blocks = sequences * -(-context // 64)  # only what is written to is taken
        self.lm = load_causal_lm(gguf, ops, context=context, kv_capacity_blocks=blocks)
        self.speech = ModelSpeech(tokenizer, template)
        self.costs = StepCosts(PassCosts(self.lm).table())
        self.rng = random.Random(0)

    def engine(self) -> Engine:
        """One that knows nothing but what passes cost."""
        engine = Engine(self.lm, self.speech)
        engine.learn_costs(self.costs)
        return engine

    def request(self, n_prompt: int, n_answer: int) -> Request:
        """Random tokens, and an answer that never ends early."""
        ids = [self.rng.randrange(100, 40_000) for _ in range(n_prompt)]
        return Request(prompt_ids=ids, params=SamplingParams(max_tokens=n_answer, ignore_eos=True))


def throughput(rig: Rig, n_streams: int) -> dict[str, float]:
    """Tokens a second of so many streams that begin together."""
    engine = rig.engine()
    requests = [rig.request(SHORT, SHORT) for _ in range(n_streams)]
    first: dict[int, float] = {}
    began = perf_counter()
    for request in requests:
        engine.submit(request)
    n_tokens = 0
    for event in engine.run():
        n_tokens += isinstance(event, TokenEvent)
        first.setdefault(event.request_id, perf_counter() - began)
    seconds = perf_counter() - began
    engine.close()
    return {"tok_per_s": n_tokens / seconds, "first_s": median(first.values())}


def pace(rig: Rig, n_streams: int, n_prompt: int) -> dict[str, float]:
    """Steps of so many streams before and while a long prompt is read."""
    engine = rig.engine()
    writing = [engine.submit(rig.request(SHORT, n_prompt + 1024)) for _ in range(n_streams)]
    begun: set[int] = set()
    while len(begun) < n_streams:
        begun |= {event.request_id for event in engine.step()}
    quiet_before = timed(engine, QUIET_STEPS)[WARM_STEPS:]
    steps: list[float] = []
    disturbed: list[bool] = []
    arrived = perf_counter()
    long = engine.submit(rig.request(n_prompt, 1))
    told: set[int] = set()
    while long not in told:
        switches, before = getrusage(RUSAGE_SELF).ru_nivcsw, perf_counter()
        told = {event.request_id for event in engine.step()}
        steps.append(perf_counter() - before)
        disturbed.append(getrusage(RUSAGE_SELF).ru_nivcsw > switches)
        assert told >= set(writing), "every stream gives a token in every step"
    first_s = perf_counter() - arrived
    quiet_after = timed(engine, QUIET_STEPS)
    engine.close()
    before_s, after_s = median(quiet_before), median(quiet_after)
    quiet_s = (before_s + after_s) / 2  # meanwhile the streams have become longer
    p99 = quantiles(steps, n=100)[98]
    growth = (after_s - before_s) / len(steps)
    then = [seconds / (before_s + index * growth) for index, seconds in enumerate(steps)]
    calm = [ratio for ratio, is_disturbed in zip(then, disturbed, strict=True) if not is_disturbed]
    return {
        "quiet_s": quiet_s,
        "before_s": before_s,
        "after_s": after_s,
        "quiet_p99_s": quantiles([*quiet_before, *quiet_after], n=100)[98],
        "p50_s": median(steps),
        "p99_s": p99,
        "max_s": max(steps),
        "slowed": p99 / quiet_s,
        "slowed_p50": median(steps) / quiet_s,
        "slowed_then": quantiles(then, n=100)[98],
        "undisturbed_then": quantiles(calm, n=100)[98] if len(calm) > 1 else 0.0,
        "noise": max(
            quantiles(quiet_before, n=100)[98] / before_s,
            quantiles(quiet_after, n=100)[98] / after_s,
        ),
        "steps": len(steps),
        "first_s": first_s,
        "alone_s": alone(rig, n_prompt),
    }


def timed(engine: Engine, n_steps: int) -> list[float]:
    """Seconds of each of so many steps."""
    seconds: list[float] = []
    for _ in range(n_steps):
        before = perf_counter()
        engine.step()
        seconds.append(perf_counter() - before)
    return seconds


def alone(rig: Rig, n_prompt: int) -> float:
    """Seconds to the first token of a prompt that has the engine for itself."""
    engine = rig.engine()
    engine.submit(rig.request(n_prompt, 1))
    began = perf_counter()
    list(engine.run())
    seconds = perf_counter() - began
    engine.close()
    return seconds


def commit() -> str:
    """Of this repository; '+' for changes on top."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def run_model(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """All figures of one model."""
    streams = [int(n) for n in args.streams.split(",") if n]
    beside = [int(n) for n in args.beside.split(",") if n]
    rig = Rig(path, args.threads, args.prompt + 2048, 1 + max([*streams, *beside]))
    throughput(rig, 1)  # warms up
    record: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        "model": path.name,
        "threads": args.threads,
        "repeats": args.repeats,
        "commit": commit(),
        "machine": machine(),
        "bound": MOST_SLOWED,
        "costs": rig.costs.table.points,
        "throughput": {},
        "pace": {},
    }
    for n in streams:
        runs = [throughput(rig, n) for _ in range(args.repeats)]
        best = record["throughput"][str(n)] = max(runs, key=lambda run: run["tok_per_s"])
        print(f"{n:3} streams {best['tok_per_s']:8.1f} tok/s, first token {best['first_s'] * 1e3:7.1f} ms", flush=True)
    for n in beside:
        runs = [pace(rig, n, args.prompt) for _ in range(args.repeats)]
        got = record["pace"][str(n)] = sorted(runs, key=lambda run: run["slowed"])[len(runs) // 2]
        print(
            f"{n:3} beside {args.prompt}: quiet {got['before_s'] * 1e3:.2f} to {got['after_s'] * 1e3:.2f} ms "
            f"(p99 {got['quiet_p99_s'] * 1e3:.2f}), "
            f"p50 {got['p50_s'] * 1e3:.2f} ms ({got['slowed_p50']:.2f}x), "
            f"p99 {got['p99_s'] * 1e3:.2f} ms ({got['slowed']:.2f}x; {got['slowed_then']:.2f}x of then, undisturbed "
            f"{got['undisturbed_then']:.2f}x, noise {got['noise']:.2f}x), max {got['max_s'] * 1e3:.2f} ms, "
            f"{got['steps']} steps; first token {got['first_s']:.2f} s, alone {got['alone_s']:.2f} s",
            flush=True,
        )
    return record


def main() -> None:
    """Parse the command line, measure every model, keep the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--streams", default="1,2,4,8,16")
    parser.add_argument("--beside", default="1,4")
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-record", action="store_true", help="for trying out")
    args = parser.parse_args()
    lines = [json.dumps(run_model(model, args), sort_keys=True) for model in args.models]
    print(*lines, sep="\n")
    if not args.no_record:
        with (HERE / "records" / "serving.jsonl").open("a") as file:
            file.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
