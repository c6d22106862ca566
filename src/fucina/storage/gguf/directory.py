"""The tensor directory: names, dimensions, formats and places, all checked against each other and the file."""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass
from pathlib import Path

from fucina.core.formats import KNOWN_UNSUPPORTED, SUPPORTED, Format, supported_names
from fucina.errors import BadHeader, BadTensor, TruncatedFile, UnsupportedFormat
from fucina.storage.gguf import limits
from fucina.storage.gguf.cursor import Cursor, shown
from fucina.storage.weights import Place, Weight

#: What follows the number of dimensions: the dimensions, the type number, the offset.
_LAYOUTS = {n: struct.Struct(f"<{n}QIQ") for n in range(1, limits.DIMENSIONS + 1)}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One line of the directory. `shape` is row-major (the file lists it the other way round)."""

    name: str
    format: Format
    shape: tuple[int, ...]
    offset: int
    n_bytes: int

    @property
    def end(self) -> int:
        """Offset just past the tensor, from the start of the data section."""
        return self.offset + self.n_bytes


def read_directory(cursor: Cursor, n_tensors: int, alignment: int) -> dict[str, Weight]:
    """Read the directory at the cursor and borrow every tensor from the file.

    Raises BadHeader for bad names and duplicates, BadTensor, UnsupportedFormat and TruncatedFile.
    """
    entries: dict[str, TensorEntry] = {}
    for index in range(n_tensors):
        entry = _read_entry(cursor, index, alignment)
        if entry.name in entries:
            raise BadHeader(cursor.path, f"tensor {shown(entry.name)} appears twice")
        entries[entry.name] = entry
    data_start = _aligned(cursor.position, alignment)
    _check_places(cursor.path, list(entries.values()), len(cursor.data) - data_start, alignment)
    return {entry.name: _borrowed(cursor, data_start, entry) for entry in entries.values()}


def _borrowed(cursor: Cursor, data_start: int, entry: TensorEntry) -> Weight:
    data = cursor.data[data_start + entry.offset : data_start + entry.end]
    return Weight(entry.name, entry.format, entry.shape, data, Place(cursor.path, data_start + entry.offset))


def _read_entry(cursor: Cursor, index: int, alignment: int) -> TensorEntry:
    name = cursor.text(f"the name of tensor {index}", limits.NAME_BYTES)
    if not name:
        raise BadHeader(cursor.path, f"tensor {index} has no name")
    what = f"the directory entry of tensor {shown(name)}"
    n_dimensions = cursor.u32(what)
    if not 1 <= n_dimensions <= limits.DIMENSIONS:
        raise BadTensor(
            cursor.path, f"tensor {shown(name)} has {n_dimensions} dimensions; 1 to {limits.DIMENSIONS} are possible"
        )
    *dimensions, type_id, offset = cursor.unpack(_LAYOUTS[n_dimensions], what)
    shape = tuple(reversed(dimensions))
    tensor_format = _format_of(cursor.path, name, type_id)
    n_bytes = _checked_bytes(cursor.path, name, shape, tensor_format)
    if offset >= limits.OFFSET_BYTES:
        raise BadTensor(cursor.path, f"tensor {shown(name)} begins at offset {offset}, which no file reaches")
    if offset % alignment:
        raise BadTensor(
            cursor.path,
            f"tensor {shown(name)} begins at offset {offset}, not at a multiple of the alignment {alignment}",
        )
    return TensorEntry(name, tensor_format, shape, offset, n_bytes)


def _format_of(path: Path, name: str, type_id: int) -> Format:
    if type_id in SUPPORTED:
        return SUPPORTED[type_id]
    if type_id in KNOWN_UNSUPPORTED:
        raise UnsupportedFormat(
            f"{path}: tensor {shown(name)} is stored as {KNOWN_UNSUPPORTED[type_id]}, which does not run here. "
            f"Formats that run: {supported_names()}. Get the model in one of these"
        )
    raise BadTensor(
        path, f"tensor {shown(name)} has the unknown type number {type_id}. Formats that run: {supported_names()}"
    )


def _checked_bytes(path: Path, name: str, shape: tuple[int, ...], tensor_format: Format) -> int:
    if min(shape) < 1:
        raise BadTensor(path, f"tensor {shown(name)} has shape {shape}; every dimension must be at least 1")
    if math.prod(shape) * tensor_format.block_bytes >= limits.OFFSET_BYTES:
        raise BadTensor(path, f"tensor {shown(name)} has shape {shape}, more than any file holds")
    if shape[-1] % tensor_format.block_weights:
        raise BadTensor(
            path,
            f"tensor {shown(name)} has rows of {shape[-1]} weights, but {tensor_format.name} stores them in blocks "
            f"of {tensor_format.block_weights}",
        )
    return math.prod(shape[:-1]) * tensor_format.row_bytes(shape[-1])


def _check_places(path: Path, entries: list[TensorEntry], data_bytes: int, alignment: int) -> None:
    """No tensor may overlap another or leave the data section of `data_bytes` bytes."""
    by_place = sorted(entries, key=lambda entry: entry.offset)
    for before, after in itertools.pairwise(by_place):
        if after.offset < before.end:
            raise BadTensor(path, f"tensors {shown(before.name)} and {shown(after.name)} overlap")
    packed_bytes = sum(_aligned(entry.n_bytes, alignment) for entry in entries)
    for entry in by_place:
        if entry.end <= data_bytes:
            continue
        if entry.end > packed_bytes:
            raise BadTensor(
                path, f"tensor {shown(entry.name)} ends at offset {entry.end} of the data, which has {data_bytes} bytes"
            )
        raise TruncatedFile(
            path,
            f"tensor {shown(entry.name)} ends at offset {entry.end} of the data, but the file has only "
            f"{max(0, data_bytes)} bytes of it. Fetch the file again",
        )


def _aligned(n_bytes: int, alignment: int) -> int:
    return (n_bytes + alignment - 1) // alignment * alignment
