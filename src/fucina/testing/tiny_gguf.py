"""Complete models of a few hundred kilobytes, with seeded weights: every family, every format, any shape."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fucina.core.formats import F32, Format
from fucina.errors import ConfigError
from fucina.testing.gguf_writer import Typed, Value, write_gguf
from fucina.testing.tiny_vocabulary import byte_level_vocabulary, sentencepiece_vocabulary

__all__ = ["FAMILIES", "TinyShape", "Typed", "tiny_model", "write_gguf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """What a tiny model looks like; every field may be overridden. The defaults fit whole blocks of every format.

    `tied`: no output.weight, the embedding is the head. `window`: positions a local layer sees (gemma3).
    `n_experts`: feed-forward blocks a layer, of which a row uses `n_used`, `d_expert` wide (0: one, d_ff wide); with
    `d_shared` one more that every row uses. `embedding_format`: of token_embd and output, as the other matrices when
    None. `metadata` is added last and may replace anything; a value of None removes the key.
    """

    n_layers: int = 2
    d_model: int = 256
    d_ff: int = 512
    heads: int = 4
    kv_heads: int = 2
    d_head: int = 64
    context_length: int = 512
    rope_base: float = 10_000.0
    eps: float = 1e-5
    tied: bool = False
    n_experts: int = 0
    n_used: int = 3
    d_expert: int = 256
    d_shared: int = 0
    window: int | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    embedding_std: float = 0.1
    embedding_format: Format | None = None
    vocabulary: Mapping[str, Value] = field(default_factory=lambda: byte_level_vocabulary("default"))
    metadata: Mapping[str, Value | None] = field(default_factory=dict)

    @property
    def n_vocab(self) -> int:
        """Tokens in the vocabulary, which is also the width of the logits."""
        tokens = self.vocabulary["tokenizer.ggml.tokens"]
        assert isinstance(tokens, list)
        return len(tokens)


#: The default shape of each family.
FAMILIES: dict[str, Callable[[], TinyShape]] = {
    "llama": TinyShape,
    "qwen2": lambda: TinyShape(
        qkv_bias=True, tied=True, rope_base=1e6, eps=1e-6, vocabulary=byte_level_vocabulary("qwen2")
    ),
    "qwen3": lambda: TinyShape(
        qk_norm=True, tied=True, rope_base=1e6, eps=1e-6, vocabulary=byte_level_vocabulary("qwen2")
    ),
    "qwen2moe": lambda: TinyShape(
        n_experts=8, d_shared=256, qkv_bias=True, rope_base=1e6, eps=1e-6, vocabulary=byte_level_vocabulary("qwen2")
    ),
    "qwen3moe": lambda: TinyShape(
        n_experts=8, qk_norm=True, rope_base=1e6, eps=1e-6, vocabulary=byte_level_vocabulary("qwen2")
    ),
    # seven layers: with five local ones for each global one, the sixth is global and the seventh local again
    "gemma3": lambda: TinyShape(
        n_layers=7,
        kv_heads=1,
        qk_norm=True,
        post_norms=True,
        tied=True,
        window=32,
        rope_base=1e6,
        eps=1e-6,
        vocabulary=sentencepiece_vocabulary(),
    ),
}


def tiny_model(
    path: str | PathLike[str],
    family: str,
    *,
    format: Format = F32,  # noqa: A002  the word that everybody looks for
    seed: int = 0,
    **overrides: Any,
) -> Path:
    """Write a complete model of `family` (one of FAMILIES) and return its path.

    Matrices are stored in `format`, norms and biases in F32. A tensor's weights depend on `seed`, its name and its
    shape only. `overrides` are fields of TinyShape. Raises ConfigError for an unknown family or field.
    """
    if family not in FAMILIES:
        raise ConfigError("family", got=family, expected=f"one of {', '.join(FAMILIES)}")
    unknown = overrides.keys() - TinyShape.__dataclass_fields__.keys()
    if unknown:
        raise ConfigError("tiny model", got=sorted(unknown), expected=f"fields: {[*TinyShape.__dataclass_fields__]}")
    shape = replace(FAMILIES[family](), **overrides)
    weights = tiny_weights(shape, seed)
    tensors = {name: (array, _format_for(name, array, shape, format)) for name, array in weights.items()}
    return write_gguf(path, tiny_metadata(family, shape), tensors)


def tiny_metadata(family: str, shape: TinyShape) -> dict[str, Value]:
    """The metadata of a tiny model, in the order and types that converters use."""
    values: dict[str, Value | None] = {
        "general.architecture": family,
        "general.type": "model",
        "general.name": f"tiny {family}",
        f"{family}.block_count": shape.n_layers,
        f"{family}.context_length": shape.context_length,
        f"{family}.embedding_length": shape.d_model,
        f"{family}.feed_forward_length": shape.d_ff,
        f"{family}.attention.head_count": shape.heads,
        f"{family}.attention.head_count_kv": shape.kv_heads,
        f"{family}.attention.key_length": shape.d_head,
        f"{family}.attention.value_length": shape.d_head,
        f"{family}.attention.layer_norm_rms_epsilon": shape.eps,
        f"{family}.attention.sliding_window": shape.window,
        f"{family}.rope.freq_base": shape.rope_base,
        **({f"{family}.rope.dimension_count": shape.d_head} if family == "llama" else {}),
        **_expert_metadata(family, shape),
        **shape.vocabulary,
        "general.quantization_version": 2,
        **shape.metadata,
    }
    return {key: value for key, value in values.items() if value is not None}


def _expert_metadata(family: str, shape: TinyShape) -> dict[str, Value | None]:
    if not shape.n_experts:
        return {}
    return {
        f"{family}.expert_count": shape.n_experts,
        f"{family}.expert_used_count": shape.n_used,
        f"{family}.expert_feed_forward_length": shape.d_expert,
        f"{family}.expert_shared_feed_forward_length": shape.d_shared or None,
    }


def tiny_weights(shape: TinyShape, seed: int) -> dict[str, NDArray[np.float32]]:
    """All tensors of a tiny model before they are packed: name to (d_out, d_in) or (width,) f32."""
    return {name: _draw(name, dims, shape, seed) for name, dims in _dimensions(shape)}


def _dimensions(shape: TinyShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and dimensions of all tensors."""
    d_q, d_kv = shape.heads * shape.d_head, shape.kv_heads * shape.d_head
    yield "token_embd.weight", (shape.n_vocab, shape.d_model)
    yield "output_norm.weight", (shape.d_model,)
    if not shape.tied:
        yield "output.weight", (shape.n_vocab, shape.d_model)
    for i in range(shape.n_layers):
        yield f"blk.{i}.attn_norm.weight", (shape.d_model,)
        for name, width in (("attn_q", d_q), ("attn_k", d_kv), ("attn_v", d_kv)):
            yield f"blk.{i}.{name}.weight", (width, shape.d_model)
            if shape.qkv_bias:
                yield f"blk.{i}.{name}.bias", (width,)
        if shape.qk_norm:
            yield f"blk.{i}.attn_q_norm.weight", (shape.d_head,)
            yield f"blk.{i}.attn_k_norm.weight", (shape.d_head,)
        yield f"blk.{i}.attn_output.weight", (shape.d_model, d_q)
        if shape.post_norms:
            yield f"blk.{i}.post_attention_norm.weight", (shape.d_model,)
            yield f"blk.{i}.post_ffw_norm.weight", (shape.d_model,)
        yield f"blk.{i}.ffn_norm.weight", (shape.d_model,)
        yield from _feed_forward(f"blk.{i}", shape)


def _feed_forward(stem: str, shape: TinyShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    if not shape.n_experts:
        yield f"{stem}.ffn_gate.weight", (shape.d_ff, shape.d_model)
        yield f"{stem}.ffn_up.weight", (shape.d_ff, shape.d_model)
        yield f"{stem}.ffn_down.weight", (shape.d_model, shape.d_ff)
        return
    yield f"{stem}.ffn_gate_inp.weight", (shape.n_experts, shape.d_model)
    yield f"{stem}.ffn_gate_exps.weight", (shape.n_experts, shape.d_expert, shape.d_model)
    yield f"{stem}.ffn_up_exps.weight", (shape.n_experts, shape.d_expert, shape.d_model)
    yield f"{stem}.ffn_down_exps.weight", (shape.n_experts, shape.d_model, shape.d_expert)
    if shape.d_shared:
        yield f"{stem}.ffn_gate_inp_shexp.weight", (shape.d_model,)
        yield f"{stem}.ffn_gate_shexp.weight", (shape.d_shared, shape.d_model)
        yield f"{stem}.ffn_up_shexp.weight", (shape.d_shared, shape.d_model)
        yield f"{stem}.ffn_down_shexp.weight", (shape.d_model, shape.d_shared)


def _draw(name: str, dims: tuple[int, ...], shape: TinyShape, seed: int) -> NDArray[np.float32]:
    """Seeded weights of one tensor: norms around 1, biases around 0, matrices that keep the size of their input."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    drawn = rng.standard_normal(dims, dtype=np.float32)
    if name.endswith("norm.weight"):
        return np.float32(1) + np.float32(0.1) * drawn
    if name in ("token_embd.weight", "output.weight"):
        return np.float32(shape.embedding_std) * drawn
    if name.endswith(".bias"):
        return np.float32(0.2) * drawn
    return drawn * np.float32(dims[-1] ** -0.5)


def _format_for(name: str, array: NDArray[np.float32], shape: TinyShape, fmt: Format) -> Format:
    if array.ndim == 1 or name.endswith("ffn_gate_inp.weight"):
        return F32
    if name in ("token_embd.weight", "output.weight") and shape.embedding_format is not None:
        return shape.embedding_format
    return fmt
