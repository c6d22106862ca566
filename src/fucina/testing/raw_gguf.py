"""GGUF files piece by piece, nothing checked: for tests of what a reader must refuse."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fucina.core.formats import F32
from fucina.testing.gguf_writer import Typed, Value, encode_text, encode_value, write_gguf

#: Writes a lying file into a folder and returns its path.
Builder = Callable[[Path], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFile:
    """A GGUF file piece by piece, nothing checked; counts follow from the pieces unless they are said."""

    version: int = 3
    keys: Sequence[bytes] = ()
    tensors: Sequence[bytes] = ()
    n_keys: int | None = None
    n_tensors: int | None = None
    data_bytes: int = 0

    def __call__(self, folder: Path) -> Path:
        """Write it."""
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        head = b"GGUF" + struct.pack("<IQQ", self.version, n_tensors, n_keys)
        head += b"".join(self.keys) + b"".join(self.tensors)
        return RawBytes(head + bytes(-len(head) % 32 + self.data_bytes))(folder)


@dataclass(frozen=True, slots=True)
class RawBytes:
    """Any bytes under a model's name; `hole_bytes` zeros follow that take no disk."""

    content: bytes
    hole_bytes: int = 0

    def __call__(self, folder: Path) -> Path:
        """Write them."""
        path = folder / "hostile.gguf"
        with path.open("wb") as file:
            file.write(self.content)
            file.truncate(len(self.content) + self.hole_bytes)
        return path


@dataclass(frozen=True, slots=True)
class Parts:
    """A split model of `n_files` files; each file's metadata and tensor names may be replaced, None leaves it out."""

    replaced: Mapping[int, tuple[Mapping[str, Value], Sequence[str]] | None] = field(default_factory=dict)
    n_files: int = 3
    opened: str = "m-00001-of-00003.gguf"

    def __call__(self, folder: Path) -> Path:
        """Write them and return the path of the one to open."""
        for i in range(self.n_files):
            metadata: dict[str, Value] = {
                "split.no": Typed("uint16", i),
                "split.count": Typed("uint16", self.n_files),
                "split.tensors.count": Typed("int32", self.n_files),
            }
            names: Sequence[str] = (f"t{i}",)
            change = self.replaced.get(i, ({}, names))
            if change is None:
                continue
            metadata |= change[0]
            tensors = {name: (np.zeros(8, dtype=np.float32), F32) for name in change[1]}
            write_gguf(folder / f"m-{i + 1:05d}-of-{self.n_files:05d}.gguf", metadata, tensors)
        return folder / self.opened


def key(name: str | bytes, value: Value) -> bytes:
    """One metadata entry."""
    return encode_text(name) + encode_value(value)


def raw_key(name: str | bytes, value_type: int, value: bytes) -> bytes:
    """One metadata entry with any type number and any bytes as value."""
    return encode_text(name) + struct.pack("<I", value_type) + value


def raw_array(name: str, element_type: int, n_elements: int, elements: bytes = b"") -> bytes:
    """One array entry whose count need not fit what follows."""
    return raw_key(name, 9, struct.pack("<IQ", element_type, n_elements) + elements)
