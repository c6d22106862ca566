"""Measure the denominators of every speed claim on this machine: read bandwidth, one thread and all.

Usage: python benchmarks/roof.py
Prints a card for people and one JSON line, last.
"""

from __future__ import annotations

import json
import statistics

from fucina.core.cpu import usable_cpus
from fucina.ops.choose import describe_machine, measure_read_bandwidth

N_BYTES = 1 << 29


def main() -> None:
    """Measure five times for each thread count; the median is the roof, the spread is the noise."""
    result: dict[str, object] = {"machine": describe_machine(), "buffer_bytes": N_BYTES}
    for threads in sorted({1, usable_cpus()}):
        rates = [measure_read_bandwidth(N_BYTES, threads) or 0.0 for _ in range(5)]
        result[f"read_bytes_per_s_{threads}"] = statistics.median(rates)
        spread = (max(rates) - min(rates)) / statistics.median(rates)
        print(f"{threads} thread(s): {statistics.median(rates) / 1e9:6.1f} GB/s read (spread {spread:.0%})")
    print(json.dumps(result, sort_keys=True))


if __name__ == "__main__":
    main()
