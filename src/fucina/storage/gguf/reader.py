"""Opening a model file: everything is checked here, so that the rooms above may trust what they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType, TracebackType

from fucina.errors import BadHeader, Closed
from fucina.storage.gguf import split
from fucina.storage.gguf.cursor import Cursor, shown
from fucina.storage.gguf.directory import read_directory
from fucina.storage.gguf.header import Header, read_header
from fucina.storage.gguf.values import MetadataValue
from fucina.storage.gguf.vocabulary import check_vocabulary
from fucina.storage.mapping import map_file
from fucina.storage.weights import Weight, WeightSet


class GgufFile:
    """An open model: its metadata and its tensors, borrowed from one mapped file or from all parts of a split one.

    A context manager. Weights taken out before `close` stay readable; the files are unmapped when the last is gone.
    """

    def __init__(self, parts: tuple[Path, ...], header: Header, weights: WeightSet, file_bytes: int) -> None:
        self.path = parts[0]
        self.parts = parts
        self.version = header.version
        self.alignment = header.alignment
        self.file_bytes = file_bytes
        self._metadata: Mapping[str, MetadataValue] = MappingProxyType(header.metadata)
        self._weights: WeightSet | None = weights

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """All metadata of the (first) file, in file order, read-only. Raises Closed."""
        self._check_open()
        return self._metadata

    @property
    def weights(self) -> WeightSet:
        """All tensors over all parts. Raises Closed."""
        return self._check_open()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._weights is None

    def close(self) -> None:
        """Let go of metadata and weights; closing twice is fine."""
        self._weights = None
        self._metadata = MappingProxyType({})

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> WeightSet:
        if self._weights is None:
            raise Closed(f"{self.path} was closed; open it again")
        return self._weights


@dataclass(frozen=True, slots=True)
class _Part:
    """One file, read and checked by itself."""

    path: Path
    header: Header
    weights: dict[str, Weight]
    file_bytes: int


def open_gguf(path: str | PathLike[str]) -> GgufFile:
    """Map and check a GGUF file (version 2 or 3, little endian); of a split model any part opens them all.

    Tensor data is not read, only its place is checked. Raises UnknownModel where there is no file, ModelFileError with
    its kinds (NotGguf, TruncatedFile, BadHeader, BadTensor, MissingPart) and UnsupportedFormat.
    """
    opened = _open_part(Path(path))
    n_files = split.n_parts(opened.path, opened.header.metadata)
    parts = [opened] if n_files == 1 else _open_all(opened, n_files)
    first = parts[0]
    check_vocabulary(first.path, first.header.metadata)
    weights: dict[str, Weight] = {}
    for part in parts:
        for name, weight in part.weights.items():
            if name in weights:
                raise BadHeader(part.path, f"tensor {shown(name)} is in an earlier part too")
            weights[name] = weight
    if n_files > 1:
        split.check_tensor_count(first.path, first.header.metadata, len(weights))
    file_bytes = sum(part.file_bytes for part in parts)
    return GgufFile(tuple(part.path for part in parts), first.header, WeightSet(str(first.path), weights), file_bytes)


def _open_all(opened: _Part, n_files: int) -> list[_Part]:
    parts: list[_Part] = []
    for index, path in enumerate(split.part_paths(opened.path, n_files)):
        part = opened if path == opened.path else _open_part(path)
        split.check_part(part.path, part.header.metadata, index, n_files)
        if parts:
            split.check_same_model(part.path, part.header.metadata, parts[0].header.metadata)
        parts.append(part)
    return parts


def _open_part(path: Path) -> _Part:
    data = map_file(path)
    cursor = Cursor(path, data)
    header = read_header(cursor)
    weights = read_directory(cursor, header.n_tensors, header.alignment)
    return _Part(path, header, weights, len(data))
