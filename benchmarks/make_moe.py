"""Write large mixtures of experts in the shapes of real ones, with seeded random weights and a router with favorites.

    python benchmarks/make_moe.py big.gguf                     about 5 GB: Qwen3-30B-A3B with 12 of its 48 layers
    python benchmarks/make_moe.py big.gguf --layers 32         about 13 GB

Blocks are random bytes with scales that keep a signal's size, not quantized floats: that is as fast as the disk. All
tokens share a direction, and routers score along it, so that in every layer some experts are chosen far more often than
others, as in trained models; what is left of a score depends on the token.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fucina.core.formats import F32, Q4_K, Q8_0, Format
from fucina.testing.gguf_writer import Value, encode_tensor, encode_text, encode_value
from fucina.testing.quantize import quantize
from fucina.testing.tiny_vocabulary import byte_level_vocabulary

_ALIGNMENT = 32
#: Deviation of a Q4_K weight with random codes, scales and minima, where d is 1 and dmin 7.5.
_Q4_K_DEVIATION = 258.0
#: Share of an embedding that all tokens have in common.
_COMMON = 0.5


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a model; the defaults are Qwen3-30B-A3B's, but for depth and vocabulary."""

    n_layers: int
    n_experts: int
    n_used: int
    d_model: int = 2048
    d_expert: int = 768
    heads: int = 32
    kv_heads: int = 4
    d_head: int = 128
    context: int = 4096
    skew: float = 0.7

    def metadata(self) -> dict[str, Value]:
        """What a converter would write."""
        return {
            "general.architecture": "qwen3moe",
            "general.name": f"synthetic mixture of {self.n_experts} experts",
            "qwen3moe.block_count": self.n_layers,
            "qwen3moe.context_length": self.context,
            "qwen3moe.embedding_length": self.d_model,
            "qwen3moe.feed_forward_length": self.d_expert * self.n_used,
            "qwen3moe.attention.head_count": self.heads,
            "qwen3moe.attention.head_count_kv": self.kv_heads,
            "qwen3moe.attention.key_length": self.d_head,
            "qwen3moe.attention.value_length": self.d_head,
            "qwen3moe.attention.layer_norm_rms_epsilon": 1e-6,
            "qwen3moe.rope.freq_base": 1e6,
            "qwen3moe.expert_count": self.n_experts,
            "qwen3moe.expert_used_count": self.n_used,
            "qwen3moe.expert_feed_forward_length": self.d_expert,
            **byte_level_vocabulary("qwen2"),
            "general.quantization_version": 2,
        }

    def tensors(self, n_vocab: int) -> Iterator[tuple[str, tuple[int, ...], Format]]:
        """Names, dimensions and formats, in file order."""
        wide, narrow = self.heads * self.d_head, self.kv_heads * self.d_head
        yield "token_embd.weight", (n_vocab, self.d_model), F32
        yield "output_norm.weight", (self.d_model,), F32
        yield "output.weight", (n_vocab, self.d_model), Q8_0
        for i in range(self.n_layers):
            yield f"blk.{i}.attn_norm.weight", (self.d_model,), F32
            yield f"blk.{i}.attn_q.weight", (wide, self.d_model), Q4_K
            yield f"blk.{i}.attn_k.weight", (narrow, self.d_model), Q4_K
            yield f"blk.{i}.attn_v.weight", (narrow, self.d_model), Q4_K
            yield f"blk.{i}.attn_q_norm.weight", (self.d_head,), F32
            yield f"blk.{i}.attn_k_norm.weight", (self.d_head,), F32
            yield f"blk.{i}.attn_output.weight", (self.d_model, wide), Q4_K
            yield f"blk.{i}.ffn_norm.weight", (self.d_model,), F32
            yield f"blk.{i}.ffn_gate_inp.weight", (self.n_experts, self.d_model), F32
            yield f"blk.{i}.ffn_gate_exps.weight", (self.n_experts, self.d_expert, self.d_model), Q4_K
            yield f"blk.{i}.ffn_up_exps.weight", (self.n_experts, self.d_expert, self.d_model), Q4_K
            yield f"blk.{i}.ffn_down_exps.weight", (self.n_experts, self.d_model, self.d_expert), Q4_K


def write_model(path: Path, shape: Shape, seed: int) -> int:
    """Write the model; its bytes."""
    metadata = shape.metadata()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tensors = list(shape.tensors(len(tokens)))
    rng = np.random.Generator(np.random.SFC64(seed))
    common = rng.standard_normal(shape.d_model, dtype=np.float32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(encode_text(key) + encode_value(value) for key, value in metadata.items())
    offset = 0
    for name, dims, fmt in tensors:
        head += encode_tensor(name, dims, fmt.type_id, offset)
        n_bytes = int(np.prod(dims[:-1])) * fmt.row_bytes(dims[-1])
        offset += n_bytes + -n_bytes % _ALIGNMENT
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % _ALIGNMENT))
        for name, dims, fmt in tensors:
            for piece in _pieces(name, dims, fmt, rng, shape, common):
                file.write(piece.data)
            file.write(bytes(-file.tell() % _ALIGNMENT))
        return file.tell()


def _pieces(
    name: str,
    dims: tuple[int, ...],
    fmt: Format,
    rng: np.random.Generator,
    shape: Shape,
    common: NDArray[np.float32],
) -> Iterator[NDArray[np.uint8]]:
    if fmt is Q4_K:
        for _ in range(dims[0] if len(dims) == 3 else 1):
            yield _random_q4_k(rng, dims[-2], dims[-1])
        return
    drawn = rng.standard_normal(dims, dtype=np.float32)
    if name == "token_embd.weight":
        drawn = np.float32(_COMMON) * common + np.float32((1 - _COMMON**2) ** 0.5) * drawn
    elif name.endswith("norm.weight"):
        drawn = np.ones(dims, np.float32)
    elif name.endswith("ffn_gate_inp.weight"):
        favor = -np.float32(shape.skew) * np.log(np.arange(1, dims[0] + 1, dtype=np.float32))
        along = common / np.float32(_COMMON * float(common @ common))
        drawn = drawn * np.float32(2 * dims[1] ** -0.5) + rng.permutation(favor)[:, None] * along
    else:
        drawn *= np.float32(dims[-1] ** -0.5)
    yield quantize(drawn, fmt)


def _random_q4_k(rng: np.random.Generator, d_out: int, d_in: int) -> NDArray[np.uint8]:
    """A matrix whose products have about a third of their input's size, so that layers change a state slowly."""
    blocks = rng.integers(0, 2**64, d_out * d_in // 256 * (Q4_K.block_bytes // 8), np.uint64).view(np.uint8)
    blocks = blocks.reshape(-1, Q4_K.block_bytes)
    d = d_in**-0.5 / _Q4_K_DEVIATION / 3
    blocks[:, :4] = np.array([d, 7.5 * d], np.float16).view(np.uint8)
    return blocks


def main() -> None:
    """Write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--used", type=int, default=8)
    parser.add_argument("--d-model", type=int, default=2048)
    parser.add_argument("--d-expert", type=int, default=768)
    parser.add_argument("--skew", type=float, default=0.7, help="0: all experts are alike")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    shape = Shape(given.layers, given.experts, given.used, given.d_model, given.d_expert, skew=given.skew)
    print(f"{given.path}: {write_model(given.path, shape, given.seed) / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
