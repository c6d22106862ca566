"""What the suffix automaton costs: time and memory a token over long streams, and one step among other work.

Usage: python benchmarks/suffix_automaton.py [--tokens 1000000] [--no-record]
Four kinds of streams: of 50,000 tokens, uniform and as frequent as words are (Zipf's law, the nth in 1/n), of 5, and of
2 tokens. Appended in blocks of 1000 (a prompt, a document) and one by one with a draft of 8 each (decoding). Bytes are
what the index holds: at the end, and the most a token after any block from 10,000 tokens on; while its table moves to
one a third larger, both are there. A cold step comes after 32 MB were read, which push the index out of the caches, as
a model's weights do. Prints a card and one JSON line, last, and appends that to the records
(benchmarks/records/suffix_automaton.jsonl).
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from roof import machine

from fucina.core.nativelib import Native, open_native
from fucina.decoding.speculation.suffix_automaton import SuffixAutomaton

BLOCK = 1000
COLD_BYTES = 32 << 20


def main() -> None:
    """Measure the four kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--no-record", action="store_true", help="for trying out")
    args = parser.parse_args()
    if not isinstance(open_native(), Native):
        sys.exit("the compiled extension is not there: nothing to measure")
    result: dict[str, object] = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "tokens": args.tokens,
    }
    print(
        f"{'stream':<12}{'ns, blocks':>12}{'ns, steps':>12}{'us, cold':>10}"
        f"{'bytes':>8}{'most':>8}{'states':>8}{'edges':>8}"
    )
    for name, tokens in streams(args.tokens):
        row = measured(tokens)
        result[name] = row
        print(
            f"{name:<12}{row['block_ns']:>12.0f}{row['step_ns']:>12.0f}{row['cold_step_us']:>10.1f}"
            f"{row['bytes']:>8.1f}{row['most_bytes']:>8.1f}{row['states']:>8.2f}{row['transitions']:>8.2f}"
        )
    line = json.dumps(result, sort_keys=True)
    if not args.no_record:
        with (Path(__file__).parent / "records" / "suffix_automaton.jsonl").open("a") as file:
            file.write(line + "\n")
    print(line)


def streams(n_tokens: int) -> Iterator[tuple[str, list[int]]]:
    """Name and tokens of each kind."""
    random = np.random.default_rng(1)
    frequencies = 1.0 / np.arange(1, 50_001)
    yield "uniform", random.integers(0, 50_000, n_tokens).tolist()
    yield "zipf", random.choice(50_000, n_tokens, p=frequencies / frequencies.sum()).tolist()
    yield "five", random.integers(0, 5, n_tokens).tolist()
    yield "two", random.integers(0, 2, n_tokens).tolist()


def measured(tokens: list[int]) -> dict[str, float]:
    """Nanoseconds, microseconds, bytes, states and transitions, each a token."""
    index = SuffixAutomaton()
    spent = most_bytes = 0.0
    for begin in range(0, len(tokens), BLOCK):
        block = tokens[begin : begin + BLOCK]
        before = time.perf_counter()
        index.append(block)
        spent += time.perf_counter() - before
        if begin >= 10 * BLOCK:
            most_bytes = max(most_bytes, index.n_bytes / index.n_tokens)
    return {
        "block_ns": spent / len(tokens) * 1e9,
        "step_ns": one_by_one(tokens) / len(tokens) * 1e9,
        "cold_step_us": cold_step(index, tokens) * 1e6,
        "bytes": index.n_bytes / index.n_tokens,
        "most_bytes": most_bytes,
        "states": index.n_states / index.n_tokens,
        "transitions": index.n_transitions / index.n_tokens,
    }


def one_by_one(tokens: list[int]) -> float:
    """Seconds for a step with every token, the calls from Python included."""
    index = SuffixAutomaton()
    steps = [[token] for token in tokens]
    before = time.perf_counter()
    for step in steps:
        index.append(step)
        if index.match_length > 1:
            index.draft(8)
    return time.perf_counter() - before


def cold_step(index: SuffixAutomaton, tokens: list[int]) -> float:
    """Median seconds of a step after other memory was read."""
    other = np.ones(COLD_BYTES // 8, np.int64)
    times = []
    for token in tokens[:100]:
        other.sum()
        before = time.perf_counter()
        index.append([token])
        if index.match_length > 1:
            index.draft(8)
        times.append(time.perf_counter() - before)
    return statistics.median(times)


if __name__ == "__main__":
    main()
