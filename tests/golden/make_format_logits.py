"""Make the logits that tests/models/test_format_logits.py compares with: a tiny model in each format, run by llama.cpp.

Run it where llama-cpp-python and numpy are installed, with this repository's src on PYTHONPATH:

    PYTHONPATH=src python tests/golden/make_format_logits.py

Every block format that runs here gets a tiny seeded llama model, whose blocks our own quantizer packs; llama.cpp reads
them with its own code, on one thread. Written to logits-formats.npz: ids (n,), and under the name of each format the
logits of the positions 7, 15, 23, ... (n / 8, vocab), rounded to half floats; `peer` says which version made them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from fucina.core.formats import SUPPORTED
from fucina.testing.tiny_gguf import tiny_model

HERE = Path(__file__).parent
SEED, POSITIONS, STRIDE = 9, 48, 8


@llama_cpp.llama_log_callback
def silence(*_: object) -> None:
    """Drop the log."""


def all_logits(path: Path, ids: list[int]) -> NDArray[np.float32]:
    """(positions, vocab) f32 of one pass on one thread."""
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
    if not model:
        raise RuntimeError(f"llama.cpp does not load {path}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 256, 1, 1
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    if status := llama_cpp.llama_decode(context, batch):
        raise RuntimeError(f"llama_decode returned {status}")
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rows = [np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (vocab,)).copy() for i in range(len(ids))]
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.stack(rows)


def main() -> None:
    """Write the golden file."""
    llama_cpp.llama_log_set(silence, None)
    ids = [int(i) for i in np.random.default_rng(SEED).integers(3, 250, POSITIONS)]
    arrays = {"ids": np.array(ids, np.int32), "peer": np.array(f"llama-cpp-python {llama_cpp.__version__}")}
    with tempfile.TemporaryDirectory() as folder:
        for fmt in SUPPORTED.values():
            if fmt.block_weights > 1:
                path = tiny_model(Path(folder) / "tiny.gguf", "llama", format=fmt, seed=SEED)
                arrays[fmt.name] = all_logits(path, ids)[STRIDE - 1 :: STRIDE].astype(np.float16)
    np.savez_compressed(HERE / "logits-formats.npz", **arrays)


if __name__ == "__main__":
    main()
