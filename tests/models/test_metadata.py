"""Hyperparameters are read by necessity and in range; what would change the mathematics is refused by name."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fucina.core.formats import F32
from fucina.errors import BadHeader, FucinaError, MissingKey, UnsupportedFamily, UnsupportedModel
from fucina.models.loader import load_causal_lm, memory_needed
from fucina.models.metadata import Integer, MetadataReader, Real, Text
from fucina.ops.reference import ReferenceOps
from fucina.storage.gguf import open_gguf
from fucina.testing.tiny_gguf import Typed, tiny_model

SMALL = {"n_layers": 1, "d_model": 32, "d_ff": 64, "heads": 2, "kv_heads": 2, "d_head": 16}


def _load(path: Path) -> None:
    with open_gguf(path) as gguf:
        load_causal_lm(gguf, ReferenceOps(4))


def _reader(**values: object) -> MetadataReader:
    return MetadataReader("model.gguf", {f"llama.{key}": value for key, value in values.items()}, "llama")


def test_values_are_read_in_their_type() -> None:
    meta = _reader(block_count=3, eps=1e-5, whole=2, name="x")
    assert meta.required("block_count", Integer(1, 512)) == 3
    assert meta.required("eps", Real()) == 1e-5
    assert meta.required("whole", Real()) == 2.0
    assert meta.required("name", Text()) == "x"
    assert meta.optional("absent", Integer(1, 2)) is None
    meta.finish()


@pytest.mark.parametrize("value", ["3", 3.0, True])
def test_a_value_of_the_wrong_type_is_named(value: object) -> None:
    with pytest.raises(MissingKey, match=r"llama\.block_count.*an integer from 1 to 512"):
        _reader(block_count=value).required("block_count", Integer(1, 512))


def test_what_is_missing_is_named() -> None:
    with pytest.raises(MissingKey, match=r"llama\.block_count"):
        _reader().required("block_count", Integer(1, 512))


@pytest.mark.parametrize("value", [0, -1, 513, 10**9, 2**60])
def test_integers_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(BadHeader, match=r"llama\.block_count"):
        _reader(block_count=value).required("block_count", Integer(1, 512))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 0.0, -1.0])
def test_reals_that_are_no_numbers_or_too_small_are_refused(value: float) -> None:
    with pytest.raises(BadHeader, match=r"llama\.eps"):
        _reader(eps=value).required("eps", Real())


def test_keys_that_nobody_reads_are_refused_unless_harmless_or_neutral() -> None:
    _reader(vocab_size=100, expert_count=0, attn_logit_softcapping=0.0, logit_scale=1.0).finish()
    with pytest.raises(UnsupportedModel, match=r"llama\.expert_count = 8, llama\.quantum_gate = 1"):
        _reader(vocab_size=100, expert_count=8, quantum_gate=1).finish()


#: Metadata of a llama file, each value impossible or not implemented, and how it is refused.
WRONG: list[tuple[str, Any, type[FucinaError]]] = [
    ("llama.block_count", None, MissingKey),
    ("llama.block_count", 0, BadHeader),
    ("llama.block_count", 513, BadHeader),
    ("llama.block_count", 10**9, BadHeader),
    ("llama.block_count", Typed("uint64", 2**60), BadHeader),
    ("llama.block_count", Typed("int32", -1), BadHeader),
    ("llama.block_count", 1.0, MissingKey),
    ("llama.embedding_length", Typed("uint64", 2**60), BadHeader),
    ("llama.embedding_length", 0, BadHeader),
    ("llama.feed_forward_length", 2**31, BadHeader),
    ("llama.feed_forward_length", np.array([64], np.uint32), UnsupportedModel),
    ("llama.context_length", 0, BadHeader),
    ("llama.context_length", Typed("uint64", 2**60), BadHeader),
    ("llama.attention.head_count", 0, BadHeader),
    ("llama.attention.head_count", 2**31, BadHeader),
    ("llama.attention.head_count_kv", 0, BadHeader),
    ("llama.attention.head_count_kv", 3, BadHeader),
    ("llama.attention.head_count_kv", np.array([2], np.uint32), UnsupportedModel),
    ("llama.attention.key_length", 0, BadHeader),
    ("llama.attention.key_length", 2**31, BadHeader),
    ("llama.attention.value_length", 8, UnsupportedModel),
    ("llama.attention.layer_norm_rms_epsilon", None, MissingKey),
    ("llama.attention.layer_norm_rms_epsilon", 0.0, BadHeader),
    ("llama.attention.layer_norm_rms_epsilon", float("nan"), BadHeader),
    ("llama.rope.freq_base", float("nan"), BadHeader),
    ("llama.rope.freq_base", float("inf"), BadHeader),
    ("llama.rope.freq_base", 0.0, BadHeader),
    ("llama.rope.freq_base", -10000.0, BadHeader),
    ("llama.rope.dimension_count", 15, BadHeader),
    ("llama.rope.dimension_count", 18, BadHeader),
    ("llama.rope.scaling.type", "longrope", UnsupportedModel),
    ("llama.rope.scaling.type", 1, MissingKey),
    ("llama.rope.scaling.factor", float("inf"), BadHeader),
    ("llama.rope.scaling.factor", -2.0, BadHeader),
    ("llama.rope.scaling.yarn_ext_factor", 0.5, UnsupportedModel),
    ("llama.rope.scaling.yarn_log_multiplier", 0.1, UnsupportedModel),
    ("llama.rope.scaling.original_context_length", 0, BadHeader),
    ("llama.rope.dimension_sections", np.array([8, 8, 0, 0], np.int32), UnsupportedModel),
    ("llama.attention.sliding_window", 64, UnsupportedModel),
    ("llama.attention.causal", False, UnsupportedModel),
    ("llama.attention.scale", 0.5, UnsupportedModel),
    ("llama.attention.clamp_kqv", 8.0, UnsupportedModel),
    ("llama.attention.max_alibi_bias", 8.0, UnsupportedModel),
    ("llama.attn_logit_softcapping", 50.0, UnsupportedModel),
    ("llama.final_logit_softcapping", 30.0, UnsupportedModel),
    ("llama.logit_scale", 0.0625, UnsupportedModel),
    ("llama.embedding_scale", 12.0, UnsupportedModel),
    ("llama.residual_scale", 0.22, UnsupportedModel),
    ("llama.expert_count", 100_000, BadHeader),
    ("llama.expert_count", -1, BadHeader),
    ("llama.expert_used_count", 2, UnsupportedModel),
    ("llama.use_parallel_residual", True, UnsupportedModel),
    ("llama.full_attention_interval", 4, UnsupportedModel),
    ("llama.something_new", "yes", UnsupportedModel),
    ("general.architecture", None, MissingKey),
    ("general.architecture", 7, MissingKey),
    ("general.architecture", "mamba", UnsupportedFamily),
]


@pytest.mark.parametrize(("key", "value", "error"), WRONG, ids=[f"{key}={value}" for key, value, _ in WRONG])
def test_impossible_and_unimplemented_metadata_are_refused(
    key: str, value: Any, error: type[FucinaError], tmp_path: Path
) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", **SMALL, metadata={key: value})
    with pytest.raises(error) as refused:
        _load(path)
    assert type(refused.value) is error
    assert (key if key.startswith("llama.") else "architecture") in str(refused.value)


#: Metadata that converters and other tools write, and that change nothing here.
HARMLESS: dict[str, Any] = {
    "llama.vocab_size": 314,
    "llama.tensor_data_layout": "Meta AI original pth",
    "llama.attention.causal": True,
    "llama.attention.scale": 0.0,
    "llama.attention.sliding_window": 4096,
    "llama.attn_logit_softcapping": 0.0,
    "llama.expert_count": 0,
    "llama.expert_used_count": 0,
    "llama.pooling_type": 3,
    "llama.rope.scaling.type": "none",
    "llama.rope.scaling.factor": 4.0,
    "llama.rope.scaling.finetuned": False,
    "llama.rope.scaling.original_context_length": 256,
    "llama.use_parallel_residual": False,
    "qwen2.block_count": 77,
}


def test_harmless_metadata_are_accepted(tmp_path: Path) -> None:
    _load(tiny_model(tmp_path / "m.gguf", "llama", **SMALL, metadata=HARMLESS))


@pytest.mark.parametrize("value", [0, Typed("int32", -1), np.array([True, False]), "6", 2.5])
def test_gemma_patterns_that_are_none_are_refused(value: Any, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "gemma3", metadata={"gemma3.attention.sliding_window_pattern": value})
    with pytest.raises((BadHeader, UnsupportedModel), match="sliding_window_pattern"):
        _load(path)


@pytest.mark.parametrize("value", [0, Typed("uint64", 2**40)])
def test_gemma_windows_that_cannot_be_are_refused(value: Any, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "gemma3", metadata={"gemma3.attention.sliding_window": value})
    with pytest.raises(BadHeader, match="sliding_window"):
        _load(path)


def test_a_lying_file_costs_little_memory(tmp_path: Path) -> None:
    """Sizes that no tensor confirms must never become buffers."""
    lies = {"llama.feed_forward_length": 2**20, "llama.block_count": 512, "llama.context_length": 2**24}
    path = tiny_model(tmp_path / "m.gguf", "llama", **SMALL, format=F32, metadata=lies)
    tracemalloc.start()
    try:
        with open_gguf(path) as gguf, pytest.raises(FucinaError):
            load_causal_lm(gguf, ReferenceOps(512))
        with open_gguf(path) as gguf, pytest.raises(FucinaError):
            memory_needed(gguf)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10 * 2**20
