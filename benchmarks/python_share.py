"""How much of a decode step is Python: the time outside the one native call, share of the whole step.

Usage: python benchmarks/python_share.py MODEL [--tokens 200] [--threads 2] [--no-record]
Greedy decoding through Model.stream without drafts, so that everything a caller pays for is in it: plan, commit,
choice, text, events. A file without a tokenizer (synthetic.py) talks bytes, of which every id is one. Prints a card and
one JSON line, last, and appends that to benchmarks/records/python_share.jsonl.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from roof import machine
from step_overhead import WideBytes

import fucina
from fucina.engine.model import Model
from fucina.models.loader import load_causal_lm
from fucina.ops.batch import Batch
from fucina.ops.choose import open_ops
from fucina.ops.native import NativeOps
from fucina.ops.seam import BoundOp
from fucina.storage.gguf import open_gguf
from fucina.storage.models import resolve_model


def main() -> None:
    """Time every native call, and every token from outside."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-record", action="store_true", help="for trying out")
    args = parser.parse_args()
    native_s: list[float] = []
    run = NativeOps.run

    def timed_run(ops: NativeOps, tape: Sequence[BoundOp], batch: Batch) -> None:
        before = time.perf_counter()
        run(ops, tape, batch)
        native_s.append(time.perf_counter() - before)

    NativeOps.run = timed_run  # type: ignore[method-assign,assignment]
    params = fucina.SamplingParams(max_tokens=args.tokens, ignore_eos=True)
    with load(args.model, args.threads) as model:
        ends: list[float] = []
        for _ in model.stream("Once upon a time", params, speculate=False):
            ends.append(time.perf_counter())
    # the first token ends the prefill; the last event only says that it is over
    steps = [after - before for before, after in itertools.pairwise(ends[:-1])]
    outside = [step - native for step, native in zip(steps, native_s[1:], strict=True)]
    result = {
        "date": datetime.date.today().isoformat(),
        "model": Path(args.model).name,
        "threads": args.threads,
        "machine": machine(),
        "steps": len(steps),
        "step_median_s": statistics.median(steps),
        "python_median_s": statistics.median(outside),
        "python_share": statistics.median(outside) / statistics.median(steps),
    }
    print(f"{result['model']}: {statistics.median(steps) * 1e3:.2f} ms a step, of which outside the native call")
    print(f"{statistics.median(outside) * 1e6:.0f} us, {result['python_share']:.1%}")
    line = json.dumps(result, sort_keys=True)
    if not args.no_record:
        with (Path(__file__).parent / "records" / "python_share.jsonl").open("a") as file:
            file.write(line + "\n")
    print(line)


def load(name: str, threads: int) -> Model:
    """The model, with its own tokenizer or, if it has none, with bytes."""
    path = resolve_model(name)
    gguf = open_gguf(path)
    if gguf.metadata.get("tokenizer.ggml.model") != "none":
        return fucina.load(path, threads=threads)
    causal = load_causal_lm(gguf, open_ops(max_rows=512, threads=threads), context=4096)
    return Model(causal, WideBytes(causal.vocab))


if __name__ == "__main__":
    main()
