"""Fucina's half of vs_llama_cpp.py: times passes on request. Reads one JSON request a line, answers one a line.

A pass is {"spans": [[sequence, ids, start, logits], ...], "passes": n, "choices": bool}: it is computed n times, each
time from the same state; `choices` asks for the likeliest id of every row with logits. {"stretch": n} gives sequence 0
n positions by copying its first blocks: content does not change speed, and prefilling 32768 positions takes hours.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from fucina import __version__
from fucina.core.shapes import KV_BLOCK
from fucina.models.loader import DecoderLM, load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.choose import open_ops
from fucina.storage.gguf import open_gguf

STRETCHED = 512 // KV_BLOCK


def main() -> None:
    """Load, say who computes, answer until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--sequences", type=int, required=True)
    args = parser.parse_args()
    ops = open_ops(max_rows=512, threads=args.threads)
    n_blocks = -(-args.context // KV_BLOCK)
    model = load_causal_lm(
        open_gguf(args.model), ops, context=args.context, kv_capacity_blocks=n_blocks * args.sequences
    )
    print(json.dumps({"name": f"fucina {__version__}", "detail": ops.name}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = stretch(model, request["stretch"]) if "stretch" in request else time_passes(model, n_blocks, request)
        print(json.dumps(answer), flush=True)


def time_passes(model: DecoderLM, n_blocks: int, request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each pass; block b of sequence s is block s * n_blocks + b of the pool."""
    spans = []
    for sequence, ids, start, n_logits in request["spans"]:
        n_used = -(-(start + len(ids)) // KV_BLOCK)
        first = sequence * n_blocks
        spans.append(Span(ids, start, range(first, first + n_used), n_logits))
    batch = Batch(tuple(spans))
    seconds = []
    for _ in range(request["passes"]):
        before = time.perf_counter()
        logits = model.forward(batch)
        seconds.append(time.perf_counter() - before)
    return {"seconds": seconds, "choices": logits.argmax(axis=1).tolist() if request["choices"] else []}


def stretch(model: DecoderLM, n_positions: int) -> dict[str, Any]:
    """Copy sequence 0's first blocks over and over."""
    for block in range(STRETCHED, -(-n_positions // KV_BLOCK)):
        model.kv_pool.copy(block % STRETCHED, block)
    return {}


if __name__ == "__main__":
    main()
