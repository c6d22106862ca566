"""What speculation gains and costs: the same prompts with and without it, in turns, beside llama.cpp's prompt lookup.

Usage: python benchmarks/speculation.py MODEL [MODEL ...] [--peer-python PYTHON] [--tokens 160] [--repeats 5]
           [--threads 2] [--tasks NAME,...] [--batches 2,4,8] [--moe-cache SIZE] [--no-record]

Tasks that repeat (verbatim repetition, copying a passage, editing code, copying at temperature 0.7, quoting a document
given as reference) and tasks that do not (a story, a question, a translation). Figures are milliseconds of decoding a
token, medians over the repeats, before each of which what the last one taught is forgotten; speed-up is
without over with. 'allowed' is the speed-up that the cost table gives at the acceptance that was reached; 'of it' is
the share of that. Ids with and without are compared. The table is measured anew at the start.
The reference of 'quote' is a document that holds what the model answers without it: the best case of a reference.
'batch of N' is N copying tasks at once, in milliseconds a token of all of them together; the task's name is 'batch'.
With --moe-cache a mixture's experts are read when they are needed, into that much memory, and nothing is learned.
PYTHON is an environment with llama-cpp-python; its column is its own speed-up by prompt lookup over its plain decoding.
Prints a table and one JSON line a model, last, and appends those to benchmarks/records/speculation.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roof import machine

import fucina
from fucina.engine.completion import Completion
from fucina.engine.model import Model

PASSAGE = (
    "The harbor of the old town opens to the south. In the morning the boats come back with herring and mackerel, and "
    "the women of the market carry the baskets up the stairs. At noon the square is empty, for nobody buys fish in the "
    "heat. In the evening the lamps are lit along the quay, the musicians tune their violins, and the children chase "
    "the cats between the tables until the bell of the church calls them home."
)
CODE = """def total(prices, rate):
    result = 0
    for price in prices:
        if price < 0:
            raise ValueError("a price cannot be negative")
        result = result + price
    result = result * (1 + rate)
    return round(result, 2)


def average(prices, rate):
    if not prices:
        return 0
    return total(prices, rate) / len(prices)
"""


@dataclass(frozen=True, slots=True)
class Task:
    """What a user asks, and a text to go on with that amounts to the same, for models without a chat template."""

    name: str
    message: str | None
    text: str
    temperature: float = 0.0
    quotes: bool = False


COPY = f"Repeat this text word for word, and nothing else:\n\n{PASSAGE}"
COPY_TEXT = f"A text:\n\n{PASSAGE}\n\nThe same text once more:\n\nThe harbor of"
GRAVITY = "What is gravity, and who described it first?"
TASKS = [
    Task("repetition", None, "The quick brown fox jumps over the lazy dog.\n" * 8),
    Task("copy", COPY, COPY_TEXT),
    Task(
        "edit",
        f"Rename the variable result to amount in this code and print all of it:\n\n```python\n{CODE}```",
        f"With result:\n\n```python\n{CODE}```\n\nWith result renamed to amount:\n\n```python\n",
    ),
    Task("copy at 0.7", COPY, COPY_TEXT, temperature=0.7),
    Task("quote", GRAVITY, f"Question: {GRAVITY}\nAnswer:", quotes=True),
    Task(
        "story",
        "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
        "The lighthouse keeper found a letter in a bottle, and",
    ),
    Task(
        "question",
        "Why is the sky blue in the day and red in the evening?",
        "The sky is blue in the day and red in the evening because",
    ),
    Task(
        "translation",
        "Translate to French: The weather is fine today, so we will walk along the river to the mill.",
        "English: The weather is fine today, so we will walk along the river to the mill.\nFrench:",
    ),
]


def main() -> None:
    """Run all tasks on all models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--peer-python")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tasks", help="names, separated by commas; without it, all")
    parser.add_argument("--batches", default="2,4,8", help="how many at once, separated by commas")
    parser.add_argument("--moe-cache", metavar="SIZE", help="for mixtures that are read when they are needed")
    parser.add_argument("--no-record", action="store_true", help="for trying out")
    args = parser.parse_args()
    names = args.tasks.split(",") if args.tasks else [task.name for task in TASKS]
    lines = []
    for path in args.models:
        streamed = {} if args.moe_cache is None else {"moe_cache": args.moe_cache, "moe_learn": False}
        with fucina.load(path, threads=args.threads, **streamed) as model:
            costs = model.drafts.measure_costs()
            print(f"\n{Path(path).name}, {args.threads} threads, {args.tokens} tokens, {args.repeats} repeats")
            print("cost of k drafts: " + "  ".join(f"{rows - 1}: {cost:.2f}" for rows, cost in costs[1:]) + "\n")
            print(f"{'':12s}{'plain ms':>9s}{'ms':>7s}{'speed-up':>10s}{'allowed':>9s}{'of it':>7s}  drafts", end="")
            print("   llama.cpp" if args.peer_python else "")
            results = {}
            for task in (task for task in TASKS if task.name in names):
                result = run(task, model, args.tokens, args.repeats)
                prompt_ids = result.pop("prompt_ids")
                if args.peer_python:
                    result["lookup_speedup"] = lookup(args, path, prompt_ids, task.temperature)
                show(task, result)
                results[task.name] = result
            for n in map(int, args.batches.split(",") if args.tasks is None or "batch" in names else ()):
                results[f"batch of {n}"] = batch = run_batch(model, n, args.tokens, args.repeats)
                figures = f"{batch['plain_s'] * 1e3:9.2f}{batch['drafted_s'] * 1e3:7.2f}{batch['speedup']:9.3f}x"
                print(f"{f'batch of {n}':12s}{figures}{'':17s}{batch['accepted']}/{batch['drafted']}", flush=True)
        about = {"date": datetime.date.today().isoformat(), "machine": machine(), "threads": args.threads}
        told = {"model": Path(path).name, "tokens": args.tokens, "repeats": args.repeats, "costs": costs}
        told |= {name: args.moe_cache for name in ("moe_cache",) if args.moe_cache is not None}
        lines.append(json.dumps(about | told | {"tasks": results}, sort_keys=True))
        if not args.no_record:
            with (Path(__file__).parent / "records" / "speculation.jsonl").open("a") as file:
                file.write(lines[-1] + "\n")
    print("\n".join(["", *lines]))


def run(task: Task, model: Model, n_tokens: int, repeats: int) -> dict[str, Any]:
    """Time one task with and without speculation, in turns."""
    params = fucina.SamplingParams(max_tokens=n_tokens, temperature=task.temperature, seed=1)
    first = answer(task, model, params, speculate=False)
    references = [f"{PASSAGE}\n\n{first.text}\n\n{CODE}"] if task.quotes else []
    without, with_drafts = [], []
    for repeat in range(repeats):
        for speculate in (repeat % 2 > 0, repeat % 2 == 0):  # either is first every other time
            model.drafts.forget()
            if speculate:
                with_drafts.append(answer(task, model, params, references=references))
            else:
                without.append(answer(task, model, params, speculate=False))
    assert all(other.ids == first.ids for other in [*without, *with_drafts]), f"{task.name}: other tokens"
    plain_s, drafted_s = median_s(without), median_s(with_drafts)
    stats = with_drafts[-1].speculation
    assert stats is not None
    n_plain = stats.fallback_steps + stats.off_steps
    n_given = n_plain + stats.accepted + stats.bonus + stats.rejected
    allowed = n_given / (n_plain + stats.verify_cost)
    return {
        "n_tokens": len(first.ids),
        "plain_s": plain_s,
        "drafted_s": drafted_s,
        # of neighbors in time, for the machine may be slow for a while
        "speedup": statistics.median(median_s([a]) / median_s([b]) for a, b in zip(without, with_drafts, strict=True)),
        "allowed": allowed,
        "prompt_ids": first.prompt_ids,
        "stats": {**asdict(stats), "sources": [source._asdict() for source in stats.sources]},
    }


def answer(task: Task, model: Model, params: fucina.SamplingParams, **options: Any) -> Completion:
    """One answer."""
    if task.message is not None:
        with contextlib.suppress(fucina.TemplateError):
            return model.chat(task.message, params, **options)
    return model.generate(task.text, params, **options)


def median_s(answers: list[Completion]) -> float:
    """Seconds of a token after the first."""
    return statistics.median(1 / one.timings.decode_tok_per_s for one in answers)


def run_batch(model: Model, n_prompts: int, n_tokens: int, repeats: int) -> dict[str, Any]:
    """Time copying tasks in one batch, with and without speculation, in turns; either is first every other time."""
    params = fucina.SamplingParams(max_tokens=n_tokens, ignore_eos=True)
    sentences = PASSAGE.split(". ")
    passages = [". ".join([*sentences[n:], *sentences[:n]]) for n in (0, 1, 2, 3)]
    prompts = [f"{start}:\n\n{text}\n\n{start}:\n\n" for text in passages for start in ("A text", "What he said")]
    prompts = [prompts[i % len(prompts)] for i in range(n_prompts)]
    seconds: dict[bool, list[float]] = {False: [], True: []}
    ids, drafted = [], []
    for repeat in range(repeats):
        for speculate in (repeat % 2 > 0, repeat % 2 == 0):
            model.drafts.forget()
            before = time.perf_counter()
            answers = model.generate_batch(prompts, params, speculate=speculate)
            prefill_s = max(answer.timings.prefill_s for answer in answers)
            seconds[speculate].append(time.perf_counter() - before - prefill_s)
            ids.append([answer.ids for answer in answers])
            drafted.append([answer.speculation for answer in answers if answer.speculation is not None])
    assert all(others == ids[0] for others in ids), "batch: other tokens"
    plain_s, drafted_s = (statistics.median(seconds[on]) / len(prompts) / n_tokens for on in (False, True))
    pairs = [a / b for a, b in zip(seconds[False], seconds[True], strict=True)]
    drafts = next(each for each in reversed(drafted) if each)
    told = {"accepted": sum(one.accepted for one in drafts), "drafted": sum(one.drafted for one in drafts)}
    return {"plain_s": plain_s, "drafted_s": drafted_s, "speedup": statistics.median(pairs), "pairs": pairs, **told}


def lookup(args: argparse.Namespace, path: str, prompt_ids: list[int], temperature: float) -> float:
    """llama.cpp's own speed-up by prompt lookup on the same tokens."""
    program = Path(__file__).parent / "lookup_llama_cpp.py"
    asked = {
        "model": path,
        "threads": args.threads,
        "ids": prompt_ids,
        "tokens": args.tokens,
        "repeats": args.repeats,
        "temperature": temperature,
    }
    done = subprocess.run(
        [args.peer_python, str(program)], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout.splitlines()[-1])["speedup"])


def show(task: Task, result: dict[str, Any]) -> None:
    """One line of the table."""
    stats, of_it = result["stats"], result["speedup"] / result["allowed"]
    line = f"{task.name:12s}{result['plain_s'] * 1e3:9.2f}{result['drafted_s'] * 1e3:7.2f}{result['speedup']:9.2f}x"
    line += f"{result['allowed']:8.2f}x{of_it:7.0%}  {stats['accepted']}/{stats['drafted']}, gate {stats['gate']}"
    print(line + (f"   {result['lookup_speedup']:.2f}x" if "lookup_speedup" in result else ""), flush=True)


if __name__ == "__main__":
    main()
