"""The name of a model changes with whatever its keys and values depend on, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fucina.models.fingerprint import model_fingerprint
from fucina.storage.gguf import open_gguf
from fucina.testing.tiny_gguf import tiny_model


def fingerprint(path: Path, backend: str = "native/avx2") -> bytes:
    with open_gguf(path) as gguf:
        return model_fingerprint(gguf, backend)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "model.gguf", "llama")


def test_the_same_file_has_the_same_name_wherever_it_lies(path: Path, tmp_path: Path) -> None:
    copy = shutil.copy(path, tmp_path / "copy.gguf")
    assert fingerprint(copy) == fingerprint(path) == fingerprint(path, "native/baseline")
    assert len(fingerprint(path)) == 32


def test_another_backend_family_or_context_has_another(path: Path, tmp_path: Path) -> None:
    others = [
        fingerprint(path, "reference"),
        fingerprint(tiny_model(tmp_path / "a.gguf", "qwen3")),
        fingerprint(tiny_model(tmp_path / "b.gguf", "llama", context_length=99)),
    ]
    assert len({*others, fingerprint(path)}) == 4


def test_weights_and_tokens_count(path: Path, tmp_path: Path) -> None:
    sound = path.read_bytes()
    with open_gguf(path) as gguf:
        weights = [weight.data.tobytes() for weight in gguf.weights.values()]
        tokens = gguf.metadata["tokenizer.ggml.tokens"].data.tobytes()  # type: ignore[union-attr]
    names = {fingerprint(path)}
    for part in (*(weight[:64] for weight in weights[:5]), *(weight[-64:] for weight in weights[:5])):
        changed = tmp_path / "changed.gguf"
        place = sound.index(part) + 1
        changed.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        names.add(fingerprint(changed))
    assert len(names) > 5
    place = sound.index(tokens) + len(tokens) - 1
    changed.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
    assert fingerprint(changed) not in names
