from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants as peer

from fucina.core.formats import F32, Q4_K, Q8_0, SUPPORTED, Format
from fucina.errors import ConfigError
from fucina.storage.gguf import open_gguf
from fucina.testing.gguf_writer import Typed, write_gguf
from fucina.testing.tiny_gguf import FAMILIES, tiny_model, tiny_weights


@pytest.mark.parametrize("family", FAMILIES)
def test_the_peers_reader_finds_the_same_tensors_and_metadata(tmp_path: Path, family: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", family, format=Q4_K)
    theirs = gguf.GGUFReader(path)
    with open_gguf(path) as ours:
        assert [t.name for t in theirs.tensors] == list(ours.weights)
        for tensor in theirs.tensors:
            weight = ours.weights[tensor.name]
            assert (weight.shape, weight.format.type_id) == (tuple(tensor.shape[::-1]), tensor.tensor_type)
            assert (np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1) == weight.data).all()
        for key, value in ours.metadata.items():
            expected = theirs.fields[key].contents()
            assert (list(value) if isinstance(expected, list) else value) == expected


@pytest.mark.parametrize("fmt", SUPPORTED.values(), ids=lambda f: f.name)
def test_every_format_can_be_asked_for(tmp_path: Path, fmt: Format) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", "llama", format=fmt, n_layers=1)) as model:
        assert model.weights["blk.0.attn_q.weight"].format == fmt
        assert model.weights["blk.0.attn_norm.weight"].format == F32


def test_float_models_hold_exactly_the_drawn_weights(tmp_path: Path) -> None:
    shape = FAMILIES["qwen2"]()
    drawn = tiny_weights(shape, seed=5)
    with open_gguf(tiny_model(tmp_path / "m.gguf", "qwen2", seed=5)) as model:
        assert set(drawn) == set(model.weights)
        for name, array in drawn.items():
            stored = peer.dequantize(model.weights[name].data, gguf.GGMLQuantizationType.F32)
            assert (stored.reshape(array.shape) == array).all()


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path) -> None:
    one, two, three = (
        tiny_model(tmp_path / f"{i}.gguf", "llama", seed=seed).read_bytes() for i, seed in enumerate((1, 1, 2))
    )
    assert one == two
    assert one != three


def test_shapes_formats_and_metadata_can_be_overridden(tmp_path: Path) -> None:
    path = tiny_model(
        tmp_path / "m.gguf",
        "llama",
        format=Q4_K,
        tied=True,
        n_layers=3,
        heads=8,
        d_head=32,
        embedding_format=Q8_0,
        metadata={"llama.vocab_size": Typed("uint16", 313), "general.name": None},
    )
    with open_gguf(path) as model:
        assert "output.weight" not in model.weights
        assert model.weights["token_embd.weight"].format == Q8_0
        assert model.weights["blk.2.attn_q.weight"].shape == (256, 256)
        assert model.weights["blk.2.attn_k.weight"].shape == (64, 256)
        assert model.metadata["llama.vocab_size"] == 313
        assert "general.name" not in model.metadata


def test_unknown_families_and_fields_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gemma3"):
        tiny_model(tmp_path / "m.gguf", "gpt5")
    with pytest.raises(ConfigError, match="n_layers"):
        tiny_model(tmp_path / "m.gguf", "llama", layers=3)


@pytest.mark.parametrize("alignment", [32, 64, 4096])
@pytest.mark.parametrize("version", [2, 3])
def test_alignment_and_version_are_written(tmp_path: Path, alignment: int, version: int) -> None:
    weights = np.arange(10, dtype=np.float32)
    path = write_gguf(
        tmp_path / "m.gguf",
        {"a": 1},
        {"x": (weights, F32), "y": (weights + 1, F32)},
        alignment=alignment,
        version=version,
    )
    theirs = gguf.GGUFReader(path)
    assert theirs.alignment == alignment
    assert (theirs.tensors[1].data == weights + 1).all()
    with open_gguf(path) as ours:
        assert (ours.alignment, ours.version) == (alignment, version)
        assert (ours.weights["y"].data.view(np.float32) == weights + 1).all()
