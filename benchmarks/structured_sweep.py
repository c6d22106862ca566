"""Ask real models for JSON by every schema of a file, greedy and sampled, and check each answer from outside.

A complete answer must be strict JSON, validate with `jsonschema` and have its keys in the order of its schema; one that
ran out of tokens must say that it is not satisfied. Exit status 1 if any answer is invalid. Answers in which an object
has a key twice are counted by themselves, and are invalid too: no strict parser takes them.

Usage: structured_sweep.py [MODEL ...] [--schemas FILE] [--max-tokens N] [--batch N] [--no-spec]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

import fucina
from fucina import Completion, Constraint, Model, SamplingParams
from fucina.errors import ConstraintError

SCHEMAS = Path(__file__).parent.parent / "tests" / "decoding" / "grammar" / "schemas.json"
MODES = {"greedy": {}, "sampled": {"temperature": 1.0, "seed": 7}}
#: Where one of these stands, the order of keys is not that of one list of properties.
JOINING = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["smollm2", "gemma3-270m"])
    parser.add_argument("--schemas", type=Path, default=SCHEMAS)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--no-spec", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore", fucina.UnboundedAnswerWarning)
    cases = json.loads(args.schemas.read_text("utf-8"))
    n_invalid = 0
    print(f"{len(cases)} schemas, at most {args.max_tokens} tokens each, {args.batch} at a time")
    print("| model | mode | complete | length | invalid | a key twice | refused | tokens | tok/s |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in args.models:
        with fucina.load(name, context=1024) as model:
            model.constraints.prepare()
            for mode, options in MODES.items():
                params = SamplingParams(max_tokens=args.max_tokens, **options)
                n_invalid += sweep(name, mode, model, cases, params, args.batch, not args.no_spec)
    return bool(n_invalid)


def sweep(
    name: str, mode: str, model: Model, cases: list[dict[str, Any]], params: SamplingParams, batch: int, speculate: bool
) -> int:
    """Run every case and print one line; give the number of invalid answers."""
    counts: Counter[str] = Counter()
    n_tokens, began = 0, time.perf_counter()
    rules = [(case, rule) for case in cases if (rule := constraint(case, counts)) is not None]
    for start in range(0, len(rules), batch):
        part = rules[start : start + batch]
        prompts = [f"This is a JSON document ({case['name']}):\n" for case, _ in part]
        answers = model.generate_batch(prompts, params, constraints=[rule for _, rule in part], speculate=speculate)
        for (case, _), answer in zip(part, answers, strict=True):
            n_tokens += len(answer.ids)
            problems = list(problems_of(answer, case, model))
            kind = "invalid" if problems else "complete" if answer.satisfied else "length"
            if kind == "complete" and repeats(answer.text):
                kind = "a key twice"
            counts[kind] += 1
            for problem in problems:
                print(f"INVALID {name} {mode} {case['name']}: {problem}: {answer.text[:300]!r}", file=sys.stderr)
    rate = n_tokens / (time.perf_counter() - began)
    shown = " | ".join(str(counts[kind]) for kind in ("complete", "length", "invalid", "a key twice", "refused"))
    print(f"| {name} | {mode} | {shown} | {n_tokens} | {rate:.0f} |", flush=True)
    return counts["invalid"] + counts["a key twice"]


def constraint(case: dict[str, Any], counts: Counter[str]) -> Constraint | None:
    """The constraint of a case, None if it is refused."""
    try:
        return Constraint.json_schema(case["schema"])
    except ConstraintError as error:
        counts["refused"] += 1
        print(f"refused {case['name']}: {error}", file=sys.stderr)
        return None


def problems_of(answer: Completion, case: dict[str, Any], model: Model) -> Iterator[str]:
    """What is wrong with an answer."""
    schema = case["schema"]
    if answer.error is not None:
        yield f"it failed: {answer.error}"
    elif not answer.satisfied:
        if answer.finish_reason != "length":
            yield f"ended by {answer.finish_reason} before it was whole"
    else:
        if answer.finish_reason == "stop" and answer.ids[-1] not in model.tokenizer.eog_ids:
            yield "ended by no end token"
        if model.tokenizer.eog_ids & {*answer.ids[:-1]}:
            yield "an end token in the middle"
        try:
            value = json.loads(answer.text, parse_constant=refuse)
        except ValueError as error:
            yield f"no strict JSON: {error}"
            return
        if not case.get("regex", True):  # a pattern that Python's engine does not know
            return
        validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        for error in validator(schema, format_checker=validator.FORMAT_CHECKER).iter_errors(value):
            yield error.message
        yield from disorder(value, schema)


def disorder(value: Any, schema: Any) -> Iterator[str]:
    """Objects whose keys stand in another order than in their schema."""
    if not isinstance(schema, dict) or JOINING & schema.keys():
        return
    if isinstance(value, dict) and isinstance(schema.get("properties"), dict):
        wanted = [key for key in schema["properties"] if key in value]
        found = [key for key in value if key in schema["properties"]]
        if found != wanted:
            yield f"keys {found}, not {wanted}"
        for key in wanted:
            yield from disorder(value[key], schema["properties"][key])
    elif isinstance(value, list) and "prefixItems" not in schema:
        for item in value:
            yield from disorder(item, schema.get("items"))


def repeats(text: str) -> bool:
    """Whether an object in a JSON text has a key twice."""
    found: list[bool] = []

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found.append(len(dict(pairs)) < len(pairs))
        return dict(pairs)

    json.loads(text, object_pairs_hook=look)
    return any(found)


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


if __name__ == "__main__":
    sys.exit(main())
