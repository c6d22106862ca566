"""Fucina beside llama.cpp: the time of single passes over the same rows of the same file, interleaved.

Usage: python benchmarks/vs_llama_cpp.py MODEL.gguf [MODEL.gguf ...] --peer-python PYTHON [--threads 2] [--repeats 9]

PYTHON is the interpreter of an environment with llama-cpp-python compiled for this machine. Each size is measured in
turns (one pass of Fucina, one of llama.cpp, in alternating order), after one uncounted pass each; the figure is the
median. A decode pass is one row behind 128 positions. Prints a table and one JSON line a model, last, and appends those
to benchmarks/records/vs_llama_cpp.jsonl.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from fucina.ops.choose import describe_machine, measure_read_bandwidth

HERE = Path(__file__).parent
PREFILL_ROWS = (512, 128, 33, 16, 8, 4, 2)
DECODE_START, DECODE_REPEATS = 128, 6


class Peer:
    """A process that times single passes on request."""

    def __init__(self, python: str, script: str, model: str, threads: int) -> None:
        command = [python, str(HERE / script), model, str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.info = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def seconds(self, ids: list[int], start: int) -> float:
        """Time one pass over `ids` at positions start, start + 1, ..."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"ids": ids, "start": start}) + "\n")
        self.process.stdin.flush()
        return float(self._answer()["seconds"])

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(ours: Peer, theirs: Peer, ids: list[int], start: int, repeats: int) -> dict[str, Any]:
    """Median seconds of both for one pass, with the spread (interquartile range over median) of each."""
    times: dict[str, list[float]] = {"fucina": [], "llama_cpp": []}
    sides = [("fucina", ours), ("llama_cpp", theirs)]
    for _, peer in sides:
        peer.seconds(ids, start)
    for turn in range(repeats):
        for name, peer in sides if turn % 2 else reversed(sides):
            times[name].append(peer.seconds(ids, start))
    result: dict[str, Any] = {"rows": len(ids), "start": start, "repeats": repeats}
    for name, seconds in times.items():
        quarters = statistics.quantiles(seconds, n=4)
        result[name] = {"median_s": statistics.median(seconds), "best_s": min(seconds)}
        result[name]["spread"] = (quarters[2] - quarters[0]) / statistics.median(seconds)
    result["ratio"] = result["llama_cpp"]["median_s"] / result["fucina"]["median_s"]
    return result


def compare(model: str, peer_python: str, threads: int, repeats: int) -> dict[str, Any]:
    """All sizes for one model; prints the table as it goes."""
    ours = Peer(sys.executable, "passes_fucina.py", model, threads)
    theirs = Peer(peer_python, "passes_llama_cpp.py", model, threads)
    rng = random.Random(0)
    ids = [rng.randrange(100, 40_000) for _ in range(512)]
    print(
        f"\n{Path(model).name}, {threads} threads: {ours.info['name']} ({ours.info['detail']}), {theirs.info['name']}"
    )
    print(f"{'pass':>12} {'fucina tok/s':>14} {'llama.cpp tok/s':>16} {'ratio':>7}")
    results = []
    for rows in (*PREFILL_ROWS, 1):
        start = DECODE_START if rows == 1 else 0
        if rows == 1:
            ours.seconds(ids[:start], 0), theirs.seconds(ids[:start], 0)
        result = measure(ours, theirs, ids[:rows], start, repeats * (DECODE_REPEATS if rows == 1 else 1))
        results.append(result)
        speeds = [rows / result[name]["median_s"] for name in ("fucina", "llama_cpp")]
        label = "decode" if rows == 1 else f"prefill {rows}"
        print(f"{label:>12} {speeds[0]:14.1f} {speeds[1]:16.1f} {result['ratio']:7.2f}")
    decode = results[-1]["fucina"]
    roof = measure_read_bandwidth(threads=threads) or 0.0
    share = Path(model).stat().st_size / decode["median_s"] / roof
    print(f"decode reads the file at {share:.0%} of the measured {roof / 1e9:.1f} GB/s")
    ours.close(), theirs.close()
    return {
        "date": datetime.date.today().isoformat(),
        "model": Path(model).name,
        "threads": threads,
        "machine": describe_machine(),
        "fucina": ours.info,
        "llama_cpp": theirs.info,
        "read_bytes_per_s": roof,
        "decode_share_of_roof": share,
        "passes": results,
    }


def main() -> None:
    """Parse the command line, compare every model, keep the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    records = [compare(model, args.peer_python, args.threads, args.repeats) for model in args.models]
    with (HERE / "records" / "vs_llama_cpp.jsonl").open("a") as file:
        for record in records:
            line = json.dumps(record, sort_keys=True)
            file.write(line + "\n")
            print(line)


if __name__ == "__main__":
    main()
