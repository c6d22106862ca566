"""Honest headers, cut at every byte and damaged at random: only typed errors come out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fucina.errors import FucinaError, TruncatedFile
from fucina.storage.gguf import open_gguf
from fucina.testing.mutation import check_promises, header_bytes, mutate, write_over_hole
from fucina.testing.tiny_gguf import FAMILIES, tiny_model
from fucina.testing.tiny_vocabulary import byte_level_vocabulary


def open_damaged(path: Path, damaged: bytes, file_bytes: int) -> None:
    """Open the damaged header over a hole; what opens nevertheless must keep what an opened file promises."""
    write_over_hole(path, damaged, file_bytes)
    try:
        with open_gguf(path) as opened:
            check_promises(opened)
    except FucinaError:
        pass


def test_every_prefix_is_truncated(tmp_path: Path) -> None:
    vocabulary = {**byte_level_vocabulary("default"), "tokenizer.ggml.tokens": ["a", "b", "c"]}
    small = {key: value for key, value in vocabulary.items() if not key.endswith(("merges", "token_type", "template"))}
    shape = {"n_layers": 1, "d_model": 32, "d_ff": 32, "heads": 1, "kv_heads": 1}
    whole = tiny_model(tmp_path / "m.gguf", "qwen3", vocabulary=small, **shape)
    content = whole.read_bytes()
    n_header = len(header_bytes(whole))
    path = tmp_path / "cut.gguf"
    # every byte of the header, then the data at every thousandth byte and at its end
    for n_bytes in (*range(n_header + 64), *range(n_header + 64, len(content), 1000), len(content) - 1):
        path.write_bytes(content[:n_bytes])
        with pytest.raises(TruncatedFile):
            open_gguf(path)
    path.write_bytes(content)
    open_gguf(path).close()


@pytest.mark.parametrize("family", FAMILIES)
def test_damaged_headers_of_tiny_models(tmp_path: Path, family: str) -> None:
    model = tiny_model(tmp_path / "m.gguf", family, n_layers=1)
    honest, file_bytes = header_bytes(model), model.stat().st_size

    @settings(max_examples=150)
    @given(seed=st.integers(0, 2**64 - 1))
    def only_typed_errors(seed: int) -> None:
        open_damaged(tmp_path / "damaged.gguf", mutate(honest, random.Random(seed)), file_bytes)

    only_typed_errors()


@pytest.mark.model
def test_damaged_headers_of_a_real_model(tmp_path: Path, smollm2_path: Path) -> None:
    honest, file_bytes = header_bytes(smollm2_path), smollm2_path.stat().st_size
    for seed in range(60):
        open_damaged(tmp_path / "damaged.gguf", mutate(honest, random.Random(seed)), file_bytes)
