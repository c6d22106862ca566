"""Fucina beside llama.cpp: the time of single passes over the same rows of the same file, interleaved.

Usage: python benchmarks/vs_llama_cpp.py MODEL.gguf [MODEL.gguf ...] --peer-python PYTHON
           [--cases decode,prefill,batch,verify,long] [--threads 2] [--repeats 9] [--unified] [--no-record]

PYTHON is the interpreter of an environment with llama-cpp-python compiled for this machine. The cases:

decode   one row behind 128 positions
prefill  1 to 512 rows of a fresh sequence, logits of the last
batch    one row of each of 1 to 16 sequences, each behind 128 positions of its own; gain: times one sequence's tokens/s
verify   k + 1 rows with logits behind 128 positions, k = 0 to 16; cost: times the pass with k = 0
long     one row behind 8192 and behind 32768 positions (not a default: it takes 2 x 5 GB and minutes)

Figures are medians, the spread is the interquartile range over the median, ratio is llama.cpp's time over Fucina's.
The roof is what the pass needs at the least (work.py) at the read bandwidth and the multiply-add rates of this machine
(roof.py), measured before and after its group, the better of the two. 'same' counts rows whose likeliest id both sides
agree on. Prints tables and one JSON line a model, last, and appends those to benchmarks/records/vs_llama_cpp.jsonl.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cases import NAMES, Group
from peers import HERE, SIDES, Peer, measure, summary
from roof import Roof, machine, measure_roof
from work import ModelWork, Rows

from fucina.core.cpu import usable_cpus


def main() -> None:
    """Parse the command line, compare every model, keep the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--cases", default="decode,prefill,batch,verify")
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--unified", action="store_true", help="let llama.cpp keep its sequences in one cache")
    parser.add_argument("--no-record", action="store_true", help="for trying out")
    args = parser.parse_args()
    names = args.cases.split(",")
    if unknown := set(names) - NAMES.keys():
        parser.error(f"no such cases: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    commands = {
        "fucina": [sys.executable, "passes_fucina.py"],
        "llama_cpp": [args.peer_python, "passes_llama_cpp.py", *(["--unified"] if args.unified else [])],
    }
    lines = [
        json.dumps(compare(model, names, commands, args.threads, args.repeats), sort_keys=True) for model in args.models
    ]
    print(*lines, sep="\n")
    if not args.no_record:
        with (HERE / "records" / "vs_llama_cpp.jsonl").open("a") as file:
            file.writelines(line + "\n" for line in lines)


def compare(
    model: Path, names: list[str], commands: dict[str, list[str]], threads: int, repeats: int
) -> dict[str, Any]:
    """All groups of one model; prints the tables as it goes."""
    work = ModelWork(model)
    record: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        "model": model.name,
        "threads": threads,
        "repeats": repeats,
        "unified": "--unified" in commands["llama_cpp"],
        "commit": commit(),
        "machine": machine(),
        "groups": [],
    }
    print(f"\n{model.name}, {threads} threads, {repeats} repeats")
    for group in (group for name in names for group in NAMES[name]):
        peers = {
            side: Peer(command, model, threads, group.context, group.sequences) for side, command in commands.items()
        }
        record |= {side: peer.info for side, peer in peers.items()}
        result = run_group(group, peers, work, repeats)
        for peer in peers.values():
            peer.close()
        print_table(result)
        record["groups"].append(result)
    return record


def commit() -> str:
    """Of this repository; '+' for changes on top."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def run_group(group: Group, peers: dict[str, Peer], work: ModelWork, repeats: int) -> dict[str, Any]:
    """Bring both caches into the group's state, then time its cases."""
    threads = peers["fucina"].threads
    for peer in peers.values():
        for spans in group.prompts:
            peer.times(spans)
        if group.stretch:
            peer.stretch(group.stretch)
    before = measure_roof(threads)
    times = measure(peers, group.cases, repeats * group.repeats)
    roof = better(before, measure_roof(threads))
    results: dict[str, dict[str, Any]] = {}
    for case, spans in group.cases.items():
        results[case] = figures(spans, times[case], work, roof)
        # a stretched cache has keys turned to other positions on the two sides
        results[case]["same"] = None if group.stretch else same_choices(spans, peers)
    relate(results)
    return {"roof": asdict(roof), "cases": results}


def figures(spans: list[Rows], times: dict[str, list[float]], work: ModelWork, roof: Roof) -> dict[str, Any]:
    """What is told of one case."""
    result: dict[str, Any] = {side: summary(times[side]) for side in SIDES}
    fucina_s = result["fucina"]["median_s"]
    roof_s, bound = work.of(spans).seconds(roof)
    return result | {
        "rows": sum(len(span.ids) for span in spans),
        "behind": spans[0].start,
        "ratio": result["llama_cpp"]["median_s"] / fucina_s,
        "roof_s": roof_s,
        "bound": bound,
        "share_of_roof": roof_s / fucina_s,
    }


def same_choices(spans: list[Rows], peers: dict[str, Peer]) -> int:
    """Rows of logits with the same likeliest id on both sides."""
    ours, theirs = (peers[side].choices(spans) for side in SIDES)
    return sum(a == b for a, b in zip(ours, theirs, strict=True))


def relate(results: dict[str, dict[str, Any]]) -> None:
    """Add what verifying costs and batching gains: against the first case of the group, which has one row."""
    one = next(iter(results.values()))
    for case, result in results.items():
        for side in SIDES:
            times = result[side]["median_s"] / one[side]["median_s"]
            if case.startswith("verify"):
                result[side]["cost"] = times
            elif case.startswith("batch"):
                result[side]["gain"] = result["rows"] / times


def better(a: Roof, b: Roof) -> Roof:
    """The higher of every figure."""
    multiply_adds = {mix: max(rate, b.multiply_adds[mix]) for mix, rate in a.multiply_adds.items()}
    return Roof(a.threads, max(a.read_bytes, b.read_bytes), multiply_adds)


def print_table(group: dict[str, Any]) -> None:
    """One line a case."""
    rates = ", ".join(f"{mix} {rate / 1e9:.0f}" for mix, rate in group["roof"]["multiply_adds"].items())
    print(f"\nroof: {group['roof']['read_bytes'] / 1e9:.1f} GB/s; G multiply-adds/s: {rates}")
    print(f"{'':13}{'fucina':>19}{'llama.cpp':>20}")
    print(f"{'':13}" + f"{'ms':>9}{'tok/s':>10}" * 2 + f"{'ratio':>8}{'of the roof':>18}{'spreads':>11}{'same':>6}")
    for case, result in group["cases"].items():
        medians = [result[side]["median_s"] for side in SIDES]
        line = f"{case:13}" + "".join(f"{m * 1e3:9.2f}{result['rows'] / m:10.1f}" for m in medians)
        line += f"{result['ratio']:8.2f}{result['share_of_roof']:8.0%} {result['bound']:9}"
        line += f"{result['fucina']['spread']:6.0%}{result['llama_cpp']['spread']:5.0%}"
        line += "" if result["same"] is None else f"{result['same']:6}"
        for key in ("cost", "gain"):
            if key in result["fucina"]:
                line += f"  {key} {result['fucina'][key]:.2f} {result['llama_cpp'][key]:.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
