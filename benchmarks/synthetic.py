"""Write a model with the exact shapes of a real one and random weights: speed does not depend on what weights say.

Usage: python benchmarks/synthetic.py {qwen3-0.6b,qwen3-1.7b} FORMAT OUT.gguf [--seed 0]

Every matrix, the tied embedding included, is in FORMAT (any that runs: Q4_K, Q6_K, Q8_0, F16, ...); norms are F32.
Blocks are random bytes with half-float scales for which weights have mean 0 and deviation 1 / sqrt(d_in), so that
activations stay ordinary. There is no tokenizer: llama.cpp and Fucina load the file for passes over ids. The same
arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import math
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fucina.core.formats import F32, SUPPORTED, Format
from fucina.core.units import format_bytes
from fucina.ops.reference.dequant import dequantize
from fucina.testing.gguf_writer import Value, encode_tensor, encode_text, encode_value

Bytes = NDArray[np.uint8]

ALIGNMENT = 32
PIECE_BLOCKS = 1 << 16

#: Where a block's scale lies and, if it has one, the scale of its minimum: half floats.
SCALES_AT: dict[str, tuple[int, ...]] = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What differs between the sizes of Qwen3; the rest is below."""

    name: str
    d_model: int
    d_ff: int
    n_layers: int = 28
    heads: int = 16
    kv_heads: int = 8
    d_head: int = 128
    vocab: int = 151_936


SHAPES = {
    "qwen3-0.6b": Shape("Qwen3-0.6B shaped noise", d_model=1024, d_ff=3072),
    "qwen3-1.7b": Shape("Qwen3-1.7B shaped noise", d_model=2048, d_ff=6144),
}


def main() -> None:
    """Parse the command line, write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("format", choices=[fmt.name for fmt in SUPPORTED.values()])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    fmt = next(fmt for fmt in SUPPORTED.values() if fmt.name == args.format)
    write_model(args.out, SHAPES[args.shape], fmt, args.seed)


def write_model(path: Path, shape: Shape, fmt: Format, seed: int) -> None:
    """Stream the model to `path`; complete or not there at all."""
    layout = [(name, dims, F32 if len(dims) == 1 else fmt) for name, dims in tensors(shape)]
    head = header(shape, layout)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(head)
        for i, (name, dims, f) in enumerate(layout):
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            for piece in weights(rng, dims, f):
                file.write(piece.tobytes())
            file.write(bytes(-file.tell() % ALIGNMENT))
            if i % 31 == 0 or i == len(layout) - 1:
                print(f"{path.name}: {i + 1} of {len(layout)} tensors, {format_bytes(file.tell())}", file=sys.stderr)
    partial.replace(path)


def header(shape: Shape, layout: list[tuple[str, tuple[int, ...], Format]]) -> bytes:
    """Everything before the first tensor's bytes."""
    values = metadata(shape)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(layout), len(values))
    head += b"".join(encode_text(key) + encode_value(value) for key, value in values.items())
    offset = 0
    for name, dims, fmt in layout:
        head += encode_tensor(name, dims, fmt.type_id, offset)
        offset += math.prod(dims[:-1]) * fmt.row_bytes(dims[-1])
        offset += -offset % ALIGNMENT
    return head + bytes(-len(head) % ALIGNMENT)


def metadata(shape: Shape) -> dict[str, Value]:
    """What Qwen3's converters write, without a vocabulary."""
    return {
        "general.architecture": "qwen3",
        "general.type": "model",
        "general.name": shape.name,
        "general.quantization_version": 2,
        "qwen3.block_count": shape.n_layers,
        "qwen3.context_length": 40_960,
        "qwen3.embedding_length": shape.d_model,
        "qwen3.feed_forward_length": shape.d_ff,
        "qwen3.attention.head_count": shape.heads,
        "qwen3.attention.head_count_kv": shape.kv_heads,
        "qwen3.attention.key_length": shape.d_head,
        "qwen3.attention.value_length": shape.d_head,
        "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3.rope.freq_base": 1e6,
        "qwen3.vocab_size": shape.vocab,
        "tokenizer.ggml.model": "none",
    }


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and row-major dimensions, in the order of the file."""
    d_q, d_kv = shape.heads * shape.d_head, shape.kv_heads * shape.d_head
    yield "token_embd.weight", (shape.vocab, shape.d_model)
    yield "output_norm.weight", (shape.d_model,)
    for i in range(shape.n_layers):
        yield f"blk.{i}.attn_norm.weight", (shape.d_model,)
        yield f"blk.{i}.attn_q.weight", (d_q, shape.d_model)
        yield f"blk.{i}.attn_k.weight", (d_kv, shape.d_model)
        yield f"blk.{i}.attn_v.weight", (d_kv, shape.d_model)
        yield f"blk.{i}.attn_q_norm.weight", (shape.d_head,)
        yield f"blk.{i}.attn_k_norm.weight", (shape.d_head,)
        yield f"blk.{i}.attn_output.weight", (shape.d_model, d_q)
        yield f"blk.{i}.ffn_norm.weight", (shape.d_model,)
        yield f"blk.{i}.ffn_gate.weight", (shape.d_ff, shape.d_model)
        yield f"blk.{i}.ffn_up.weight", (shape.d_ff, shape.d_model)
        yield f"blk.{i}.ffn_down.weight", (shape.d_model, shape.d_ff)


def weights(rng: np.random.Generator, dims: tuple[int, ...], fmt: Format) -> Iterator[Bytes]:
    """The bytes of one tensor, in pieces."""
    if len(dims) == 1:
        yield (1 + 0.1 * rng.standard_normal(dims[0], dtype=np.float32)).view(np.uint8)
        return
    deviation = dims[-1] ** -0.5
    # about as many bytes in a piece whatever the format
    step = PIECE_BLOCKS * max(1, 256 // fmt.block_weights)
    n_blocks = math.prod(dims) // fmt.block_weights
    for begin in range(0, n_blocks, step):
        yield random_blocks(rng, min(step, n_blocks - begin), fmt, deviation)


def random_blocks(rng: np.random.Generator, n: int, fmt: Format, deviation: float) -> Bytes:
    """`n` blocks (n, block_bytes) whose weights have mean 0 and about that deviation."""
    if fmt.block_weights == 1:
        return as_floats(deviation * rng.standard_normal(n, dtype=np.float32), fmt)
    blocks = rng.integers(0, 256, (n, fmt.block_bytes), dtype=np.uint8)
    if fmt.name == "MXFP4":  # one exponent for a block, and elements whose deviation is about 3
        blocks[:, 0] = 127 + round(math.log2(deviation / 3))
        return blocks
    at = SCALES_AT[fmt.name]
    scale, minimum = unit_scales(blocks[:256].copy(), fmt, at)
    varied = deviation * rng.uniform(0.5, 1.5, (n, 1)).astype(np.float32)
    put_half(blocks, at[0], scale * varied)
    if len(at) == 2:
        put_half(blocks, at[1], minimum * varied)
    return blocks


def unit_scales(sample: Bytes, fmt: Format, at: tuple[int, ...]) -> tuple[float, float]:
    """The scales, of the quants and of the minimum, for which a sample's weights have mean 0 and deviation 1."""

    def seen(scale: float, minimum: float) -> NDArray[np.float32]:
        for offset, value in zip(at, (scale, minimum), strict=False):
            put_half(sample, offset, np.full((len(sample), 1), value, np.float32))
        return dequantize(sample.reshape(-1), fmt)

    minimum = -float(seen(1, 0).mean()) / float(seen(0, 1).mean()) if len(at) == 2 else 0.0
    scale = 1 / float(seen(1, minimum).std())
    return scale, scale * minimum


def put_half(blocks: Bytes, at: int, values: NDArray[np.float32]) -> None:
    """Store a column of values, one a block, as half floats at byte `at` of every block."""
    blocks[:, at : at + 2] = values.astype("<f2").view(np.uint8)


def as_floats(values: NDArray[np.float32], fmt: Format) -> Bytes:
    """Values in F32, F16 or BF16 (cut, not rounded)."""
    if fmt.name == "BF16":
        return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    return values.astype("<f4" if fmt.name == "F32" else "<f2").view(np.uint8)


if __name__ == "__main__":
    main()
