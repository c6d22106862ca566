"""llama.cpp's half of vs_llama_cpp.py, through llama-cpp-python's low-level calls: the same rows, the same logits.

Runs in the peer's own environment and knows nothing of Fucina; the requests are those of passes_fucina.py. Several
sequences have a cache each unless --unified: then every row's attention walks past the positions of all. Flash
attention is llama.cpp's default.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from typing import Any

import llama_cpp
import numpy as np

STRETCHED = 512


@llama_cpp.llama_log_callback
def silence(*_: object) -> None:
    """Drop the log."""


class Context:
    """A model and one llama_context."""

    def __init__(self, path: str, threads: int, positions: int, sequences: int, unified: bool) -> None:
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
        params = llama_cpp.llama_context_default_params()
        params.n_batch = params.n_ubatch = 512
        # stretching needs a second sequence that shares cells with the first
        params.n_seq_max, params.kv_unified = (2, True) if sequences == 1 else (sequences, unified)
        params.n_ctx = positions * sequences
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp makes no context of this size")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)

    def time_passes(self, request: dict[str, Any]) -> dict[str, Any]:
        """Seconds of each pass, positions from its start on forgotten before it."""
        spans = request["spans"]
        wanted = self.fill_batch(spans)
        seconds = []
        for _ in range(request["passes"]):
            for sequence, _ids, start, _ in spans:
                llama_cpp.llama_memory_seq_rm(self.memory, sequence, start, -1)
            before = time.perf_counter()
            status = llama_cpp.llama_decode(self.context, self.batch)
            llama_cpp.llama_get_logits_ith(self.context, wanted[-1])
            seconds.append(time.perf_counter() - before)
            if status:
                raise RuntimeError(f"llama_decode returned {status}")
        return {"seconds": seconds, "choices": [self.choice(i) for i in wanted] if request["choices"] else []}

    def fill_batch(self, spans: list[Any]) -> list[int]:
        """Lay out the rows; give the numbers of those with logits."""
        batch, row, wanted = self.batch, 0, []
        for sequence, ids, start, n_logits in spans:
            for i, token in enumerate(ids):
                batch.token[row], batch.pos[row], batch.n_seq_id[row] = token, start + i, 1
                batch.seq_id[row][0] = sequence
                batch.logits[row] = i >= len(ids) - n_logits
                if batch.logits[row]:
                    wanted.append(row)
                row += 1
        batch.n_tokens = row
        return wanted

    def choice(self, row: int) -> int:
        """The likeliest id of a row."""
        logits = llama_cpp.llama_get_logits_ith(self.context, row)
        return int(np.ctypeslib.as_array(logits, (self.n_vocab,)).argmax())

    def stretch(self, n_positions: int) -> dict[str, Any]:
        """Copy sequence 0's first positions over and over: load their state into sequence 1, move it, hand it over."""
        memory = self.memory
        llama_cpp.llama_memory_seq_rm(memory, 0, STRETCHED, -1)
        size = llama_cpp.llama_state_seq_get_size(self.context, 0)
        state = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self.context, state, size, 0)
        for start in range(STRETCHED, n_positions, STRETCHED):
            if not llama_cpp.llama_state_seq_set_data(self.context, state, size, 1):
                raise RuntimeError("llama.cpp has no room for the state")
            llama_cpp.llama_memory_seq_add(memory, 1, 0, -1, start)
            llama_cpp.llama_memory_seq_cp(memory, 1, 0, -1, -1)
            llama_cpp.llama_memory_seq_rm(memory, 1, -1, -1)
        return {}


def main() -> None:
    """Load, say who computes, answer until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--sequences", type=int, required=True)
    parser.add_argument("--unified", action="store_true", help="one cache for all sequences")
    args = parser.parse_args()
    llama_cpp.llama_log_set(silence, None)
    llama_cpp.llama_backend_init()
    context = Context(args.model, args.threads, args.context, args.sequences, args.unified)
    detail = llama_cpp.llama_print_system_info().decode()
    print(json.dumps({"name": f"llama-cpp-python {llama_cpp.__version__}", "detail": detail}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = context.stretch(request["stretch"]) if "stretch" in request else context.time_passes(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
