"""Fucina's half of vs_llama_cpp.py: time single passes. Reads one JSON request a line, answers one a line."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from fucina import __version__
from fucina.models.loader import load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.choose import open_ops
from fucina.storage.gguf import open_gguf


def main() -> None:
    """Arguments: model file, threads."""
    path, threads = Path(sys.argv[1]), int(sys.argv[2])
    ops = open_ops(max_rows=512, threads=threads)
    model = load_causal_lm(open_gguf(path), ops, context=1024)
    blocks = list(range(16))
    print(json.dumps({"name": f"fucina {__version__}", "detail": ops.name}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        batch = Batch((Span(request["ids"], request["start"], blocks, 1),))
        before = time.perf_counter()
        model.forward(batch)
        print(json.dumps({"seconds": time.perf_counter() - before}), flush=True)


if __name__ == "__main__":
    main()
