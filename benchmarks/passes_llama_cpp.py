"""llama.cpp's half of vs_llama_cpp.py, through llama-cpp-python's low-level calls.

It computes the same rows and the same one row of logits. Runs in the peer's own environment; knows nothing of Fucina.
"""

from __future__ import annotations

import json
import sys
import time

import llama_cpp


@llama_cpp.llama_log_callback
def silence(*_: object) -> None:
    """Drop the log."""


def main() -> None:
    """Arguments: model file, threads."""
    path, threads = sys.argv[1], int(sys.argv[2])
    llama_cpp.llama_log_set(silence, None)
    llama_cpp.llama_backend_init()
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 1024, 512, 512
    params.n_threads = params.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, params)
    memory = llama_cpp.llama_get_memory(context)
    name = {"name": f"llama-cpp-python {llama_cpp.__version__}", "detail": llama_cpp.llama_print_system_info().decode()}
    print(json.dumps(name), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        ids, start = request["ids"], request["start"]
        llama_cpp.llama_memory_seq_rm(memory, 0, start, -1)
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, start + i, 1, 0
            batch.logits[i] = i == len(ids) - 1
        before = time.perf_counter()
        status = llama_cpp.llama_decode(context, batch)
        llama_cpp.llama_get_logits_ith(context, len(ids) - 1)
        took = time.perf_counter() - before
        llama_cpp.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")
        print(json.dumps({"seconds": took}), flush=True)


if __name__ == "__main__":
    main()
