"""Measure the denominators of every speed claim on this machine: bytes read and multiply-adds made in a second.

Usage: python benchmarks/roof.py [--repeats 5]

Read bandwidth is that of a buffer far larger than the caches. Multiply-adds are those of the instructions that a kind
of weight needs and nothing around them (native/src/kernels/roof.h), for the tier that computes here: 'f32' (F32, F16,
BF16 and attention), 'nibbles' (formats of four and five bits with int8), 'scaled' (six bits, a scale for every sixteen
weights), 'bytes' (Q8_0). One thread and all; medians, with the spread. Prints a card and one JSON line, last.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from dataclasses import dataclass

from fucina.core.cpu import processor_name, usable_cpus
from fucina.ops.choose import MIXES, describe_machine, measure_multiply_adds, measure_read_bandwidth

N_BYTES = 1 << 29


@dataclass(frozen=True, slots=True)
class Roof:
    """What a number of threads can do in a second."""

    threads: int
    read_bytes: float
    multiply_adds: dict[str, float]


def measure_roof(threads: int) -> Roof:
    """One measurement of everything, about half a second. Raises SystemExit without the compiled extension."""
    read_bytes = measure_read_bandwidth(N_BYTES, threads)
    if read_bytes is None:
        raise SystemExit("the roof is that of the compiled kernels, which are not built here")
    return Roof(threads, read_bytes, {mix: measure_multiply_adds(mix, threads) or 0.0 for mix in MIXES})


def machine() -> dict[str, object]:
    """What Fucina sees of this machine, the processor's name, and who interprets."""
    return describe_machine() | {"processor": processor_name(), "python": platform.python_version()}


def main() -> None:
    """Measure for each thread count; the median is the roof, the spread is the noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    result: dict[str, object] = {"machine": machine(), "buffer_bytes": N_BYTES}
    for threads in sorted({1, usable_cpus()}):
        roofs = [measure_roof(threads) for _ in range(args.repeats)]
        print(f"{threads} thread(s)")
        rates = {"read": [roof.read_bytes for roof in roofs]}
        rates |= {mix: [roof.multiply_adds[mix] for roof in roofs] for mix in MIXES}
        for name, values in rates.items():
            median = statistics.median(values)
            spread = (max(values) - min(values)) / median
            unit = "GB/s" if name == "read" else "G multiply-adds/s"
            print(f"{name:>10} {median / 1e9:8.1f} {unit} (spread {spread:.0%})")
            result[f"{name}_{threads}"] = median
    print(json.dumps(result, sort_keys=True))


if __name__ == "__main__":
    main()
