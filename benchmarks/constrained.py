"""What answers held to JSON schemas cost and gain: five chats, in turns with as many tokens without a schema.

Usage: python benchmarks/constrained.py MODEL [MODEL ...] [--tokens 160] [--repeats 5] [--threads 2]
           [--temperature 0] [--tasks NAME,...] [--no-record]

Figures are milliseconds of decoding a token, medians over the repeats. 'free' has no schema and no drafts; 'held' has
the schema and no drafts, its masks computed ahead where that is worth it; 'inline' computes every mask when it is
needed; 'drafted' has forced spans and all other drafts, with nothing remembered from the answers before. 'slower' is
held over free less one, of neighbors in time; 'forced' the share of the drafted answer's tokens that the grammar
drafted; 'tok/step' the drafted answer's tokens a pass. Masks are counted per token and timed one by one in the held
answers: median, 99th of a hundred, and the share of their time that no step waited for. Without a temperature few are
needed: the greatest logit is mostly allowed. Ids of all held answers are compared.
Prints a table and one JSON line a model, last, and appends those to benchmarks/records/constrained.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from roof import machine

import fucina
from fucina.decoding.grammar.compiler import Compiler
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.contract import Matcher
from fucina.decoding.grammar.masks import MASK_THREAD
from fucina.decoding.grammar.processor import GrammarProcessor
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.decoding.scans import open_scans
from fucina.engine.completion import Completion
from fucina.engine.model import Model


def an_object(**properties: Any) -> dict[str, Any]:
    """A schema of an object that has all of these properties and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT = {"type": "string", "maxLength": 60}
WORD = {"type": "string", "pattern": "^[A-Za-z]{1,12}$"}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "person": (
        "Invent a person: first name, family name, age, e-mail address and city.",
        an_object(
            first_name=WORD,
            family_name=WORD,
            age={"type": "integer", "minimum": 0, "maximum": 120},
            email=TEXT,
            city=WORD,
        ),
    ),
    "review": (
        "Judge this review: 'The lamp arrived broken, but the shop sent another one within two days.'",
        an_object(
            sentiment={"enum": ["positive", "negative", "mixed"]},
            confidence={"type": "number", "minimum": 0, "maximum": 1},
            product_is_defective={"type": "boolean"},
            customer_was_refunded={"type": "boolean"},
            summary=TEXT,
        ),
    ),
    "recipe": (
        "Write down how to make pancakes: title, minutes, three ingredients and three steps.",
        an_object(
            title=TEXT,
            minutes={"type": "integer", "minimum": 1, "maximum": 240},
            ingredients={
                "type": "array",
                "items": an_object(name=WORD, grams={"type": "integer", "minimum": 1, "maximum": 2000}),
                "minItems": 3,
                "maxItems": 3,
            },
            steps={"type": "array", "items": TEXT, "minItems": 3, "maxItems": 3},
        ),
    ),
    "tool call": (
        "Call a tool that tells the weather in Lisbon tomorrow, in degrees Celsius.",
        an_object(
            tool={"const": "get_weather_forecast"},
            arguments=an_object(
                location=WORD,
                day={"enum": ["today", "tomorrow", "the day after tomorrow"]},
                temperature_unit={"enum": ["celsius", "fahrenheit"]},
                include_precipitation={"type": "boolean"},
            ),
        ),
    ),
    "text": (
        "Tell in one long sentence why the sky is blue, and give it a title.",
        an_object(title={"type": "string"}, explanation={"type": "string"}),
    ),
}


class TimedMatcher:
    """A matcher whose masks are timed, all of them into one list."""

    def __init__(self, inner: Matcher, seconds: list[float]) -> None:
        self._inner, self._seconds = inner, seconds
        self.n_words, self.take, self.consume = inner.n_words, inner.take, inner.consume
        self.forced_tokens, self.valid_prefix_len = inner.forced_tokens, inner.valid_prefix_len

    @property
    def is_accepting(self) -> bool:
        """See Matcher."""
        return self._inner.is_accepting

    @property
    def is_complete(self) -> bool:
        """See Matcher."""
        return self._inner.is_complete

    def masks(self, drafts: Sequence[int], out: NDArray[np.uint32]) -> int:
        """See Matcher."""
        before = time.perf_counter()
        n_masks = self._inner.masks(drafts, out)
        self._seconds += [(time.perf_counter() - before) / n_masks] * n_masks
        return n_masks

    def copy(self) -> TimedMatcher:
        """See Matcher."""
        return TimedMatcher(self._inner.copy(), self._seconds)


class Bench:
    """One model and the ways to have an answer from it."""

    def __init__(self, model: Model, n_tokens: int, temperature: float) -> None:
        self.model, self.n_tokens = model, n_tokens
        self.params = fucina.SamplingParams(max_tokens=n_tokens, temperature=temperature, seed=1)
        self.end_ids = model.speech.eog_ids
        before = time.perf_counter()
        self.compiler = Compiler(GrammarVocabulary(model.speech.tokenizer))
        self.vocabulary_s = time.perf_counter() - before
        self.mask_s: list[float] = []

    def free(self, message: str, n_tokens: int) -> Completion:
        """No schema, no drafts, so many tokens."""
        params = replace(self.params, max_tokens=n_tokens, ignore_eos=True)
        return self._answer(message, params, speculate=False)

    def held(self, message: str, schema: dict[str, Any], *, ahead: bool = True, drafts: bool = False) -> Completion:
        """An answer held to the schema."""
        matcher = self.compiler.matcher(Constraint.json_schema(schema))
        processor = GrammarProcessor(
            TimedMatcher(matcher, self.mask_s),
            open_scans(),
            end_ids=self.end_ids,
            thread=MASK_THREAD if ahead else None,
        )
        return self._answer(message, self.params, speculate=drafts, processor=processor)

    def _answer(self, message: str, params: fucina.SamplingParams, **options: Any) -> Completion:
        with contextlib.suppress(fucina.TemplateError):
            return self.model.chat(f"{message} Answer in JSON.", params, **options)
        return self.model.generate(f"Question: {message} Answer in JSON.\nAnswer:", params, **options)

    def run(self, message: str, schema: dict[str, Any], repeats: int) -> dict[str, Any]:
        """Time one chat in every way, in turns."""
        first = self.held(message, schema)
        n_tokens = len(first.ids)
        ways: dict[str, list[Completion]] = {"free": [], "held": [], "inline": [], "drafted": []}
        mask_s: list[float] = []
        for turn in range(repeats):
            for way in ways if turn % 2 else reversed(ways):
                self.mask_s.clear()
                if way == "free":
                    answer = self.free(message, n_tokens)
                else:
                    self.model.drafts.forget()
                    answer = self.held(message, schema, ahead=way != "inline", drafts=way == "drafted")
                    assert answer.ids == first.ids, f"{way}: other tokens"
                mask_s += self.mask_s if way == "held" else []
                ways[way].append(answer)
        each = {way: [1 / answer.timings.decode_tok_per_s for answer in answers] for way, answers in ways.items()}
        stats, costs = ways["drafted"][-1].speculation, [answer.mask_costs for answer in ways["held"]]
        assert stats is not None
        computed_s = sum(one.seconds for one in costs if one is not None)
        waited_s = sum(one.waited_s for one in costs if one is not None)
        n_steps = stats.verify_steps + stats.fallback_steps + stats.off_steps
        return {
            "n_tokens": n_tokens,
            "satisfied": first.satisfied,
            **{f"{way}_s": statistics.median(seconds) for way, seconds in each.items()},
            **{f"{way}_ratio": _ratio(each[way], each["free"]) for way in ("held", "inline", "drafted")},
            "tokens_per_step": (n_tokens - 1) / max(n_steps, 1),
            "forced": stats.forced / n_tokens,
            "accepted": stats.accepted,
            "drafted": stats.drafted,
            "masks_per_token": len(mask_s) / n_tokens / repeats,
            "mask_median_s": statistics.median(mask_s or [0.0]),
            "mask_p99_s": sorted(mask_s)[int(0.99 * (len(mask_s) - 1))] if mask_s else 0.0,
            "mask_mean_s": statistics.fmean(mask_s or [0.0]),
            "mask_hidden": max(0.0, 1 - waited_s / computed_s) if computed_s else 0.0,
        }


def _ratio(times: list[float], others: list[float]) -> float:
    """Of neighbors in time, for the machine may be slow for a while."""
    return statistics.median(a / b for a, b in zip(times, others, strict=True))


def main() -> None:
    """Run all chats on all models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--tasks", help="names, separated by commas; without it, all")
    parser.add_argument("--no-record", action="store_true", help="for trying out")
    args = parser.parse_args()
    names = args.tasks.split(",") if args.tasks else list(TASKS)
    lines = []
    for path in args.models:
        with fucina.load(path, threads=args.threads) as model:
            bench = Bench(model, args.tokens, args.temperature)
            print(f"\n{Path(path).name}, {args.threads} threads, at most {args.tokens} tokens, {args.repeats} repeats")
            print(
                f"{'':10s}{'tokens':>7s}{'free ms':>9s}{'held':>7s}{'slower':>8s}{'inline':>8s}{'slower':>8s}", end=""
            )
            print(f"{'drafted':>9s}{'tok/step':>9s}{'forced':>8s}  masks: per token, median us, p99, mean, hidden")
            results = {}
            for name in names:
                results[name] = result = bench.run(*TASKS[name], args.repeats)
                show(name, result)
        about = {"date": datetime.date.today().isoformat(), "machine": machine(), "threads": args.threads}
        told: dict[str, Any] = {"model": Path(path).name, "tokens": args.tokens, "repeats": args.repeats}
        told["temperature"] = args.temperature
        lines.append(json.dumps(about | told | {"vocabulary_s": bench.vocabulary_s, "tasks": results}, sort_keys=True))
        if not args.no_record:
            with (Path(__file__).parent / "records" / "constrained.jsonl").open("a") as file:
                file.write(lines[-1] + "\n")
    print("\n".join(["", *lines]))


def show(name: str, result: dict[str, Any]) -> None:
    """One line of the table."""
    ms = {way: result[f"{way}_s"] * 1e3 for way in ("free", "held", "inline", "drafted")}
    line = f"{name:10s}{result['n_tokens']:7d}{ms['free']:9.2f}{ms['held']:7.2f}{result['held_ratio'] - 1:8.1%}"
    line += f"{ms['inline']:8.2f}{result['inline_ratio'] - 1:8.1%}{ms['drafted']:9.2f}{result['tokens_per_step']:9.2f}"
    us = [result[f"mask_{which}_s"] * 1e6 for which in ("median", "p99", "mean")]
    line += f"{result['forced']:8.0%}  {result['masks_per_token']:.2f}, "
    line += f"{us[0]:.0f}, {us[1]:.0f}, {us[2]:.0f}, {result['mask_hidden']:.0%}"
    print(line + ("" if result["satisfied"] else "  cut off"), flush=True)


if __name__ == "__main__":
    main()
