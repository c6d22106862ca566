"""Open thousands of damaged GGUF headers: only typed errors may come out, soon and with little memory.

Usage: fuzz_headers.py [--count 10000] [--seed 0]. Exit status 1 if anything else happens. Every case can be repeated by
its seed, model and number. A third of the cases damage SmolLM2's header, the rest tiny models of every family.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path

from fucina.errors import FucinaError
from fucina.storage.gguf import open_gguf
from fucina.storage.models import pull
from fucina.testing.mutation import check_promises, header_bytes, mutate, write_over_hole
from fucina.testing.tiny_gguf import FAMILIES, tiny_model

MOST_SECONDS, MOST_BYTES = 1.0, 50 * 2**20
#: Memory is traced in every so many cases: tracing slows a case down several times.
TRACE_EVERY = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = [tiny_model(folder / f"{family}.gguf", family, n_layers=2) for family in FAMILIES]
        models += [pull("smollm2")] * 2
        fuzz = Fuzz(folder / "damaged.gguf")
        for number in range(options.count):
            model = models[number % len(models)]
            fuzz.case(model, f"{options.seed}/{model.stem}/{number}", traced=number // len(models) % TRACE_EVERY == 0)
    return fuzz.report()


class Fuzz:
    """Counts what came out of every case, and remembers the worst."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.worst_seconds, self.slowest, self.worst_bytes = 0.0, "", 0
        self._honest: dict[Path, tuple[bytes, int]] = {}

    def case(self, model: Path, label: str, *, traced: bool) -> None:
        """Damage the header of `model` as `label` seeds it, and open the result."""
        if model not in self._honest:
            self._honest[model] = header_bytes(model), model.stat().st_size
        honest, file_bytes = self._honest[model]
        write_over_hole(self.path, mutate(honest, random.Random(label)), file_bytes)
        if traced:
            tracemalloc.start()
        start, seconds = time.process_time(), None
        try:
            with open_gguf(self.path) as opened:
                seconds = time.process_time() - start
                check_promises(opened)
            outcome = "opened"
        except FucinaError as error:
            outcome = type(error).__name__
        except Exception as error:  # the very thing we look for
            outcome = f"FAULT {type(error).__name__}"
            self.faults.append(f"{label}: {error!r}")
        seconds = seconds or time.process_time() - start
        self.outcomes[outcome] += 1
        if traced:
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.worst_bytes = max(self.worst_bytes, peak_bytes)
            if peak_bytes > MOST_BYTES:
                self.faults.append(f"{label}: {peak_bytes} bytes")
        elif seconds > self.worst_seconds:
            self.worst_seconds, self.slowest = seconds, label
        if seconds > MOST_SECONDS:
            self.faults.append(f"{label}: {seconds:.2f} s of CPU")

    def report(self) -> int:
        """Print the summary, one JSON line last; the exit status."""
        for outcome, count in self.outcomes.most_common():
            print(f"{count:7d}  {outcome}")
        worst_ms, worst_mib = self.worst_seconds * 1e3, self.worst_bytes / 2**20
        print(f"worst: {worst_ms:.1f} ms of CPU ({self.slowest}), {worst_mib:.1f} MiB traced")
        for fault in self.faults[:20]:
            print("FAULT", fault)
        summary = {
            "cases": self.outcomes.total(),
            "outcomes": dict(self.outcomes),
            "worst_cpu_ms": round(worst_ms, 2),
            "worst_mib": round(worst_mib, 2),
            "faults": len(self.faults),
        }
        print(json.dumps(summary))
        return 1 if self.faults else 0


if __name__ == "__main__":
    sys.exit(main())
