"""Make the hidden states and text vectors that tests compare with: transformers' own, of tiny and of real models.

Run it where torch, transformers and gguf are installed, with this repository's src on PYTHONPATH:

    PYTHONPATH=src python tests/golden/make_hidden.py SMOLLM2.gguf GEMMA3.gguf

hidden.npz: per case of logits.json the hidden states behind the last norm, rows 0, 16, 32, ... of the ids that the
case's logits-NAME.npz has. embeddings.npz: per real model and text the ids, and the mean and the last of the hidden
states, scaled to length 1. Weights are taken out of their blocks by the gguf package; all is computed in float32.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from make_logits import HERE, build, case_files, read_back

from fucina.storage.gguf import open_gguf
from fucina.text.tokenizer import Tokenizer

STRIDE = 16
TEXTS = [
    "The cat sat on the mat.",
    "Wie wird morgen das Wetter in Hamburg?",
    "def area(radius):\n    return 3.14159 * radius ** 2\n",
    "Once upon a time there was a clockmaker who mended what others threw away. " * 6,
]
GLOBAL_LAYERS = (5, 11, 17)
#: The real models in the words of transformers, as their makers' config.json has them.
REAL: dict[str, dict[str, Any]] = {
    "smollm2": {
        "family": "llama",
        "transformers": {"rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}},
    },
    "gemma3": {
        "family": "gemma3",
        "transformers": {
            "sliding_window": 512,
            "query_pre_attn_scalar": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "layer_types": ["full_attention" if i in GLOBAL_LAYERS else "sliding_attention" for i in range(18)],
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    },
}


def hidden_states(model: Any, ids: list[int]) -> np.ndarray:
    """Of all positions behind the last norm, (n, d_model) f32."""
    with torch.no_grad():
        return model.model(torch.tensor([ids])).last_hidden_state[0].numpy()


def tiny_hidden() -> dict[str, np.ndarray]:
    """The rows of every case."""
    rows = {}
    for name, case in json.loads((HERE / "logits.json").read_text()).items():
        with tempfile.TemporaryDirectory() as folder:
            metadata, tensors = read_back(case_files(case, Path(folder)))
        ids = np.load(HERE / f"logits-{name}.npz")["ids"].tolist()
        rows[name] = hidden_states(build(case, metadata, tensors), ids)[::STRIDE]
    return rows


def read_real(path: Path, family: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Like make_logits.read_back, of a file whose weights are quantized."""
    reader = gguf.GGUFReader(path)
    names = [name for name in reader.fields if name.startswith(f"{family}.")]
    metadata = {name.removeprefix(f"{family}."): reader.fields[name].contents() for name in names}
    metadata.setdefault("attention.key_length", metadata["embedding_length"] // metadata["attention.head_count"])
    return metadata, {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}


def real_vectors(name: str, path: Path) -> dict[str, np.ndarray]:
    """Ids and vectors of every text, by a real model."""
    tokenizer = Tokenizer.from_metadata(open_gguf(path).metadata)
    model = build(REAL[name], *read_real(path, REAL[name]["family"]))
    arrays = {}
    for i, text in enumerate(TEXTS):
        ids = tokenizer.prompt_ids(text)
        hidden = hidden_states(model, ids).astype(np.float64)
        arrays[f"{name}-{i}-ids"] = np.array(ids, np.int32)
        for pooling, vector in (("mean", hidden.mean(axis=0)), ("last", hidden[-1])):
            arrays[f"{name}-{i}-{pooling}"] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return arrays


def main() -> None:
    """Both files."""
    torch.set_num_threads(1)
    np.savez_compressed(HERE / "hidden.npz", **tiny_hidden())
    smollm2, gemma3 = map(Path, sys.argv[1:])
    vectors = real_vectors("smollm2", smollm2) | real_vectors("gemma3", gemma3)
    np.savez_compressed(HERE / "embeddings.npz", **vectors)


if __name__ == "__main__":
    main()
