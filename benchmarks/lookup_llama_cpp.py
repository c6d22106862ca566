"""llama.cpp's side of speculation.py: plain decoding and prompt lookup on given tokens, in turns.

Reads one JSON object from stdin (model, threads, ids, tokens, repeats, temperature), writes {"speedup": ...}.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

# What its documentation recommends for machines without a GPU.
N_LOOKUP = 2


def main() -> None:
    asked = json.load(sys.stdin)
    shared = {
        "model_path": asked["model"],
        "n_ctx": 2048,
        "n_threads": asked["threads"],
        "n_threads_batch": asked["threads"],
        "verbose": False,
        "seed": 1,
    }
    plain = Llama(**shared)
    lookup = Llama(**shared, draft_model=LlamaPromptLookupDecoding(num_pred_tokens=N_LOOKUP))
    seconds: dict[str, list[float]] = {"plain": [], "lookup": []}
    for _ in range(asked["repeats"]):
        seconds["plain"].append(per_token(plain, asked))
        seconds["lookup"].append(per_token(lookup, asked))
    print(json.dumps({"speedup": statistics.median(seconds["plain"]) / statistics.median(seconds["lookup"])}))


def per_token(model: Llama, asked: dict) -> float:
    """Seconds of each token after the first, so that the prompt does not count."""
    times = []
    for _ in model.generate(asked["ids"], temp=asked["temperature"], top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0):
        times.append(time.perf_counter())
        if len(times) == asked["tokens"]:
            break
    model.reset()
    return (times[-1] - times[0]) / (len(times) - 1)


if __name__ == "__main__":
    main()
