"""What the families with experts read from a file, what each means where it says nothing, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fucina.errors import BadHeader, BadTensor, FucinaError, MissingKey, UnsupportedModel
from fucina.models.blocks.experts import ExpertsShape
from fucina.models.loader import load_causal_lm
from fucina.models.metadata import MetadataReader
from fucina.models.registry import FAMILIES
from fucina.models.tensors import TensorReader
from fucina.ops.reference import ReferenceOps
from fucina.storage.gguf import open_gguf
from fucina.testing.tiny_gguf import tiny_model

SMALL = {"n_layers": 1, "d_model": 32, "d_ff": 96, "heads": 2, "kv_heads": 2, "d_head": 16, "n_experts": 6}


def _read(path: Path, family: str) -> ExpertsShape | None:
    with open_gguf(path) as gguf:
        meta = MetadataReader("m.gguf", gguf.metadata, family)
        shape = FAMILIES[family](meta, TensorReader("m.gguf", gguf.weights))
        meta.finish()
        return shape.experts


def _shape(**changes: Any) -> ExpertsShape:
    usual = {"n_experts": 6, "n_used": 3, "d_expert": 256, "d_shared": 0, "renormalize": True, "scale": 1.0}
    return ExpertsShape(**{**usual, **changes})


@pytest.mark.parametrize(
    ("family", "metadata", "expected"),
    [
        ("qwen3moe", {}, _shape()),
        ("qwen3moe", {"expert_feed_forward_length": None}, _shape(d_expert=32)),
        ("qwen3moe", {"expert_weights_norm": False}, _shape(renormalize=False)),
        ("qwen3moe", {"expert_weights_scale": 2.5}, _shape(scale=2.5)),
        ("qwen3moe", {"expert_gating_func": 1}, _shape()),
        ("qwen2moe", {}, _shape(renormalize=False, d_shared=256)),
        ("qwen2moe", {"expert_shared_feed_forward_length": None}, _shape(renormalize=False, d_shared=96)),
        ("qwen2moe", {"expert_weights_norm": True}, _shape(d_shared=256)),
        ("llama", {}, _shape()),
        ("llama", {"expert_feed_forward_length": None}, _shape(d_expert=96)),
        ("llama", {"expert_count": 0, "expert_used_count": 0, "expert_feed_forward_length": None}, None),
    ],
)
def test_what_a_file_says(family: str, metadata: dict[str, Any], expected: ExpertsShape | None, tmp_path: Path) -> None:
    changes = {f"{family}.{key}": value for key, value in metadata.items()}
    assert _read(tiny_model(tmp_path / "m.gguf", family, **SMALL, metadata=changes), family) == expected


@pytest.mark.parametrize("family", ["qwen2moe", "qwen3moe", "llama"])
@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("expert_count", 2_000_000_000, BadHeader),
        ("expert_count", "6", MissingKey),
        ("expert_count", np.array([6, 6], np.int32), UnsupportedModel),
        ("expert_used_count", None, MissingKey),
        ("expert_used_count", 0, BadHeader),
        ("expert_used_count", 7, BadHeader),
        ("expert_used_count", -1, BadHeader),
        ("expert_feed_forward_length", 0, BadHeader),
        ("expert_gating_func", 2, UnsupportedModel),
        ("expert_gating_func", "softmax", UnsupportedModel),
        ("expert_weights_norm", 1, MissingKey),
        ("expert_weights_scale", 0.0, BadHeader),
        ("expert_weights_scale", float("nan"), BadHeader),
        ("expert_shared_count", 1, UnsupportedModel),
        ("expert_group_count", 8, UnsupportedModel),
        ("leading_dense_block_count", 1, UnsupportedModel),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    family: str, key: str, value: Any, error: type[FucinaError], tmp_path: Path
) -> None:
    path = tiny_model(tmp_path / "m.gguf", family, **SMALL, metadata={f"{family}.{key}": value})
    with open_gguf(path) as gguf, pytest.raises(error, match=f"{family}.{key}") as refused:
        load_causal_lm(gguf, ReferenceOps(4))
    assert type(refused.value) is error


@pytest.mark.parametrize(("family", "error"), [("qwen2moe", MissingKey), ("qwen3moe", MissingKey)])
def test_a_family_with_experts_needs_their_number(family: str, error: type[FucinaError], tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", family, **SMALL, metadata={f"{family}.expert_count": None})
    with pytest.raises(error, match="expert_count"):
        _read(path, family)


@pytest.mark.parametrize(
    ("key", "value"), [("expert_count", 5), ("expert_count", 7), ("expert_feed_forward_length", 255)]
)
def test_stacks_of_another_size_are_refused(key: str, value: int, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "qwen3moe", **SMALL, metadata={f"qwen3moe.{key}": value})
    with open_gguf(path) as gguf, pytest.raises(BadTensor, match=r"ffn_\w+_exps"):
        load_causal_lm(gguf, ReferenceOps(4))
