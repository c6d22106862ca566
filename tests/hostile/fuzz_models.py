"""Load thousands of damaged tiny models and compute with those that open: no crash, only typed errors.

Usage: fuzz_models.py [--count 10000] [--seed 0]. Exit status 1 if anything else happens. Made to run under the address
sanitizer (.ci/sanitized): whatever number a file claims, the compiled kernels must stay inside their buffers. Half of
the cases damage the header, half the tensor data.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fucina.core.formats import SUPPORTED
from fucina.errors import FucinaError
from fucina.models.loader import load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.choose import open_ops
from fucina.storage.gguf import open_gguf
from fucina.testing.mutation import header_bytes, mutate
from fucina.testing.tiny_gguf import FAMILIES, tiny_model
from fucina.text.tokenizer import Tokenizer

MOST_SECONDS = 20.0


def compute(path: Path) -> str:
    """Open, tokenize, load, and run two passes; the name of the typed error, or 'computed'."""
    try:
        with open_gguf(path) as gguf:
            Tokenizer.from_metadata(gguf.metadata).encode("A clock, two clocks.")
            model = load_causal_lm(gguf, open_ops(max_rows=8, threads=2), context=64)
            model.forward(Batch((Span([1, 2, 0, 3, 4], 0, [0], 5),)))
            model.forward(Batch((Span([5], 5, [0], 1),)))
    except FucinaError as error:
        return type(error).__name__
    return "computed"


def damaged(honest: bytes, head_bytes: int, rng: random.Random) -> bytes:
    """The file with its header or its tensor data edited."""
    if rng.random() < 0.5:
        return mutate(honest[:head_bytes], rng) + honest[head_bytes:]
    return honest[:head_bytes] + mutate(honest[head_bytes:], rng)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = []
        for number, weight_format in enumerate(SUPPORTED.values()):
            family = list(FAMILIES)[number % len(FAMILIES)]
            path = tiny_model(folder / f"{number}.gguf", family, format=weight_format, n_layers=1, d_ff=256)
            models.append((path.read_bytes(), len(header_bytes(path))))
        for number in range(options.count):
            honest, head_bytes = models[number % len(models)]
            label = f"{options.seed}/{number}"
            (folder / "damaged.gguf").write_bytes(damaged(honest, head_bytes, random.Random(label)))
            before = time.perf_counter()
            try:
                outcomes[compute(folder / "damaged.gguf")] += 1
            except Exception as error:  # the very thing we look for
                outcomes[f"FAULT {label}: {error!r}"] += 1
            worst = max(worst, time.perf_counter() - before)
    for outcome, count in outcomes.most_common():
        print(f"{count:7d}  {outcome}")
    print(f"worst: {worst * 1e3:.0f} ms")
    return 1 if worst > MOST_SECONDS or any(outcome.startswith("FAULT") for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
