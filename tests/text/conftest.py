"""Tokenizers of the two real models, and a small vocabulary to put anything into."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fucina.storage.gguf import open_gguf
from fucina.testing.tiny_vocabulary import byte_level_vocabulary, sentencepiece_vocabulary
from fucina.text.tokenizer import Tokenizer

GOLDEN = Path(__file__).parent.parent / "golden"


def _metadata(path: Path) -> dict[str, Any]:
    with open_gguf(path) as model:
        return dict(model.metadata)


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_path: Path) -> dict[str, Any]:
    return _metadata(smollm2_path)


@pytest.fixture(scope="session")
def gemma3_metadata(gemma3_path: Path) -> dict[str, Any]:
    return _metadata(gemma3_path)


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(smollm2_metadata)


@pytest.fixture(scope="session")
def gemma3(gemma3_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(gemma3_metadata)


@pytest.fixture(scope="session")
def real(smollm2: Tokenizer, gemma3: Tokenizer) -> dict[str, Tokenizer]:
    return {"smollm2": smollm2, "gemma3-270m": gemma3}


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    return lambda name: json.loads((GOLDEN / name).read_text("utf-8"))


@pytest.fixture(scope="session")
def vocabulary() -> Callable[..., dict[str, Any]]:
    """vocabulary("gpt2" or "llama", [(piece, type), ...], **keys): a tiny vocabulary, with pieces and keys added."""

    def build(model: str, more: Sequence[tuple[str, int]] = (), /, **keys: object) -> dict[str, Any]:
        found: dict[str, Any] = dict(byte_level_vocabulary("gpt-2") if model == "gpt2" else sentencepiece_vocabulary())
        found["tokenizer.ggml.tokens"] = [*found["tokenizer.ggml.tokens"], *(piece for piece, _ in more)]
        types = np.append(found["tokenizer.ggml.token_type"], [kind for _, kind in more]).astype(np.int32)
        found["tokenizer.ggml.token_type"] = types
        if model == "llama":
            scores = found["tokenizer.ggml.scores"]
            found["tokenizer.ggml.scores"] = np.append(scores, np.zeros(len(more))).astype(np.float32)
        return {**found, **{f"tokenizer.ggml.{name}": value for name, value in keys.items()}}

    return build
