"""Models are assembled from files that have exactly the tensors of their family."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fucina.core.formats import F32
from fucina.errors import BadTensor, CapacityError, ConfigError, MissingTensor, ShapeError, UnsupportedModel
from fucina.models.loader import DecoderLM, load_causal_lm, memory_needed
from fucina.ops.batch import Batch, Span
from fucina.ops.reference import ReferenceOps
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.tiny_gguf import FAMILIES, TinyShape, tiny_metadata, tiny_model, tiny_weights, write_gguf

SMALL = {"n_layers": 2, "d_model": 32, "d_ff": 64, "heads": 2, "kv_heads": 1, "d_head": 16, "context_length": 256}


def _shape(family: str) -> TinyShape:
    return replace(FAMILIES[family](), **SMALL)


def _write(path: Path, family: str, tensors: dict[str, np.ndarray]) -> Path:
    return write_gguf(path, tiny_metadata(family, _shape(family)), {n: (a, F32) for n, a in tensors.items()})


def _load(path: Path, **options: object) -> DecoderLM:
    with open_gguf(path) as gguf:
        return load_causal_lm(gguf, ReferenceOps(8), **options)  # type: ignore[arg-type]


def _optional(name: str) -> bool:
    """Tensors that a file may leave out: the output matrix (then tied)."""
    return name == "output.weight"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_missing_tensor_is_named(family: str, tmp_path: Path) -> None:
    weights = tiny_weights(_shape(family), seed=0)
    for name in [name for name in weights if not name.startswith("blk.1.")]:
        path = _write(tmp_path / "m.gguf", family, {n: a for n, a in weights.items() if n != name})
        if _optional(name):
            assert _load(path).vocab == len(weights["token_embd.weight"])
        else:
            with pytest.raises(MissingTensor, match=f"'{name}' is missing"):
                _load(path)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_of_a_wrong_shape_is_named(family: str, tmp_path: Path) -> None:
    weights = tiny_weights(_shape(family), seed=0)
    for name in [name for name in weights if not name.startswith("blk.1.")]:
        wrong = np.zeros((*weights[name].shape[:-1], weights[name].shape[-1] + 1), np.float32)
        with pytest.raises(BadTensor, match=f"'{name}' has shape"):
            _load(_write(tmp_path / "m.gguf", family, {**weights, name: wrong}))


@pytest.mark.parametrize("name", ["blk.0.attn_sinks.weight", "blk.2.attn_norm.weight", "cls.output.weight"])
def test_tensors_that_nobody_uses_are_refused(name: str, tmp_path: Path) -> None:
    weights = tiny_weights(_shape("llama"), seed=0)
    path = _write(tmp_path / "m.gguf", "llama", {**weights, name: np.zeros(32, np.float32)})
    with pytest.raises(UnsupportedModel, match=name):
        _load(path)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_rope_factors_that_cannot_be_are_refused(factor: float, tmp_path: Path) -> None:
    weights = tiny_weights(_shape("llama"), seed=0)
    factors = np.array([1.0] * 7 + [factor], np.float32)
    with pytest.raises(BadTensor, match="rope_freqs"):
        _load(_write(tmp_path / "m.gguf", "llama", {**weights, "rope_freqs.weight": factors}))


def test_more_tokens_than_embeddings_are_refused(tmp_path: Path) -> None:
    weights = tiny_weights(_shape("llama"), seed=0)
    short = {name: weights[name][:-1] for name in ("token_embd.weight", "output.weight")}
    with pytest.raises(BadTensor, match="token_embd"):
        _load(_write(tmp_path / "m.gguf", "llama", {**weights, **short}))


def test_padded_embeddings_widen_the_logits(tmp_path: Path) -> None:
    weights = tiny_weights(_shape("llama"), seed=0)
    padded = {name: np.pad(weights[name], ((0, 5), (0, 0))) for name in ("token_embd.weight", "output.weight")}
    model = _load(_write(tmp_path / "m.gguf", "llama", {**weights, **padded}))
    assert model.vocab == len(weights["token_embd.weight"]) + 5


@pytest.mark.parametrize("name", ["attn_output", "ffn_down", "ffn_up", "ffn_gate", "attn_q"])
def test_biases_are_added_wherever_a_file_has_them(name: str, tmp_path: Path) -> None:
    """A bias of b equals an input matrix extended by b over an input of 1: checked by its effect being there."""
    weights = tiny_weights(_shape("llama"), seed=0)
    bias = np.linspace(-1, 1, len(weights[f"blk.0.{name}.weight"]), dtype=np.float32)
    plain = _logits(_load(_write(tmp_path / "a.gguf", "llama", weights)), [1, 2, 3])
    zero = {**weights, f"blk.0.{name}.bias": 0 * bias}
    biased = {**weights, f"blk.0.{name}.bias": bias}
    assert np.array_equal(_logits(_load(_write(tmp_path / "b.gguf", "llama", zero)), [1, 2, 3]), plain)
    assert np.abs(_logits(_load(_write(tmp_path / "c.gguf", "llama", biased)), [1, 2, 3]) - plain).max() > 1e-3


def _logits(model: DecoderLM, ids: list[int]) -> np.ndarray:
    sequence = KvSequence(model.kv_pool)
    sequence.reserve(len(ids))
    return model.forward(Batch((Span(ids, 0, sequence.blocks, len(ids)),))).copy()


def test_a_context_beyond_what_the_model_was_made_for_is_refused(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", **SMALL)
    assert _load(path).context_length == 256
    assert _load(path, context=100).context_length == 100
    assert _load(path, context=100).kv_pool.capacity == 2
    assert _load(path, kv_capacity_blocks=9).kv_pool.capacity == 9
    for context in (0, -1, 257):
        with pytest.raises(ConfigError, match="1 to 256"):
            _load(path, context=context)


def test_a_pool_that_no_machine_has_is_a_capacity_error(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", **{**SMALL, "kv_heads": 2, "d_head": 16})
    with pytest.raises(CapacityError, match="smaller context"):
        _load(path, kv_capacity_blocks=2**60)


def test_the_memory_needed_counts_what_experts_compute_in(tmp_path: Path) -> None:
    """More experts cost nothing in the workspace, more of them in use do: two rows of d_model, three of d_expert."""
    needed = []
    for n_experts, n_used in ((4, 2), (8, 2), (8, 3)):
        path = tiny_model(tmp_path / "m.gguf", "qwen3moe", **{**SMALL, "n_experts": n_experts, "n_used": n_used})
        with open_gguf(path) as gguf:
            needed.append(memory_needed(gguf, 100, max_rows=4))
    few, many, busy = needed
    assert many.experts is not None
    assert many.experts.total_bytes == 2 * 8 * 3 * 32 * 256 * 4
    assert many.weights_bytes - few.weights_bytes == 2 * 4 * (3 * 32 * 256 + 32) * 4
    assert many.workspace_bytes - few.workspace_bytes == 4 * 4 * 4  # scores
    assert busy.workspace_bytes - many.workspace_bytes == 4 * 4 * (2 * 32 + 3 * 256)


def test_experts_one_tensor_each_are_refused(tmp_path: Path) -> None:
    weights = tiny_weights(_shape("qwen3moe"), seed=0)
    del weights["blk.0.ffn_gate_exps.weight"]
    path = _write(
        tmp_path / "m.gguf", "qwen3moe", {**weights, "blk.0.ffn_gate.0.weight": np.zeros((256, 32), np.float32)}
    )
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.ffn_gate\.0\.weight.*convert the model again"):
        _load(path)


def test_the_memory_needed_is_counted(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", **SMALL)
    with open_gguf(path) as gguf:
        needed = memory_needed(gguf, 100, max_rows=4)
        model = load_causal_lm(gguf, ReferenceOps(4), context=100)
        weights_bytes = sum(4 * a.size for a in tiny_weights(_shape("llama"), 0).values())
    assert needed.weights_bytes == weights_bytes
    assert needed.kv_bytes == len(model.kv_pool.memory)
    assert needed.kv_bytes_per_position == 2 * 2 * 1 * 16 * 2
    per_row = 2 * 32 + 2 * 32 + 2 * 16 + 2 * 64 + 16
    assert needed.workspace_bytes == 4 * (4 * per_row + model.vocab)
    assert needed.total_bytes == needed.weights_bytes + needed.kv_bytes + needed.workspace_bytes


def test_too_many_rows_are_refused(tmp_path: Path) -> None:
    model = _load(tiny_model(tmp_path / "m.gguf", "llama", **SMALL))
    with pytest.raises(ShapeError, match="at most 8"):
        _logits(model, list(range(9)))
