"""Where every expert of a stacked tensor lies in the files of a model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fucina.errors import BadTensor, ModelFileError
from fucina.storage.weights import Weight


@dataclass(frozen=True, slots=True)
class ExpertPlaces:
    """One matrix of all experts of a layer: expert e begins at byte `offsets[e]` of file number `file`."""

    weight: Weight
    file: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Catalog:
    """The files that experts lie in, and for every layer its gate, up and down."""

    files: tuple[Path, ...]
    layers: tuple[tuple[ExpertPlaces, ExpertPlaces, ExpertPlaces], ...]


def make_catalog(layers: Iterable[tuple[Weight, Weight, Weight]]) -> Catalog:
    """Find every expert of stacked tensors (n_experts, d_out, d_in). Raises BadTensor for one that lies in no file."""
    files: dict[Path, int] = {}
    found = tuple((_places(gate, files), _places(up, files), _places(down, files)) for gate, up, down in layers)
    return Catalog(tuple(files), found)


def _places(weight: Weight, files: dict[Path, int]) -> ExpertPlaces:
    if weight.place is None:
        raise BadTensor("memory", f"tensor '{weight.name}' lies in no file that its experts could be read from")
    n_experts = weight.shape[0]
    expert_bytes = weight.data.nbytes // n_experts
    first = weight.place.offset
    offsets = tuple(range(first, first + n_experts * expert_bytes, expert_bytes))
    return ExpertPlaces(weight, files.setdefault(weight.place.path, len(files)), offsets)


def open_files(paths: Sequence[Path], *, direct: bool) -> list[tuple[int, bool]]:
    """Descriptors to read from, the caller's to close, and whether each reads past the page cache.

    `direct`: they do where the file system can. Raises ModelFileError.
    """
    opened: list[tuple[int, bool]] = []
    for path in paths:
        try:
            opened.append(_open(path, direct=direct))
        except OSError as error:
            close_files(descriptor for descriptor, _ in opened)
            raise ModelFileError(
                path, f"its experts cannot be read ({error}); check its name and permissions"
            ) from error
    return opened


def _open(path: Path, *, direct: bool) -> tuple[int, bool]:
    if direct:
        with suppress(OSError):  # not every file system can
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT), True
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC), False


def close_files(descriptors: Iterable[int]) -> None:
    """Close what `open_files` opened."""
    for descriptor in descriptors:
        os.close(descriptor)
