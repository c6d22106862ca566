"""What a lying GGUF file costs before it is refused: time and memory of every case in the catalog.

Claim: a typed error within 100 ms and under 50 MiB. Usage: hostile_headers.py [--repeat 3]. Prints the ten slowest
cases, then one JSON line. Memory is what Python and NumPy allocate (tracemalloc); pages of the mapped file are the
system's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tracemalloc
from pathlib import Path

from fucina.core.cpu import usable_cpus
from fucina.errors import FucinaError
from fucina.storage.gguf import open_gguf
from fucina.testing.hostile_gguf import LIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for name, lie in LIES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = lie.build(Path(folder))
            times = [refusal_times(path) for _ in range(options.repeat)]
            rows.append((name, min(t[0] for t in times), min(t[1] for t in times), refusal_bytes(path)))
    rows.sort(key=lambda row: -row[1])
    print(f"{'case':45s} {'wall':>10s} {'CPU':>10s} {'memory':>11s}")
    for name, wall_s, cpu_s, peak_bytes in rows[:10]:
        print(f"{name:45s} {wall_s * 1e3:7.2f} ms {cpu_s * 1e3:7.2f} ms {peak_bytes / 2**20:7.2f} MiB")
    summary = {
        "cases": len(rows),
        "worst_wall_ms": round(max(row[1] for row in rows) * 1e3, 2),
        "worst_cpu_ms": round(max(row[2] for row in rows) * 1e3, 2),
        "worst_mib": round(max(row[3] for row in rows) / 2**20, 2),
        "cpus": usable_cpus(),
    }
    print(json.dumps(summary))


def refusal_times(path: Path) -> tuple[float, float]:
    """Seconds of wall clock and of processor until the error."""
    wall, cpu = time.perf_counter(), time.process_time()
    refuse(path)
    return time.perf_counter() - wall, time.process_time() - cpu


def refusal_bytes(path: Path) -> int:
    """The most memory held on the way to the error."""
    tracemalloc.start()
    try:
        refuse(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refuse(path: Path) -> None:
    try:
        open_gguf(path)
    except FucinaError:
        return
    raise SystemExit(f"{path} was not refused")


if __name__ == "__main__":
    main()
