"""Writing GGUF files, for tests: any metadata, any float32 arrays in any format that runs.

Source: the GGUF specification, versions 2 and 3, little endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fucina.core.formats import Format
from fucina.testing.quantize import quantize

#: Type number and layout of every numeric value type.
_NUMBERS: dict[str, tuple[int, str]] = {
    "uint8": (0, "<B"),
    "int8": (1, "<b"),
    "uint16": (2, "<H"),
    "int16": (3, "<h"),
    "uint32": (4, "<I"),
    "int32": (5, "<i"),
    "float32": (6, "<f"),
    "bool": (7, "<?"),
    "uint64": (10, "<Q"),
    "int64": (11, "<q"),
    "float64": (12, "<d"),
}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class Typed:
    """A number with its value type said: Typed("uint16", 3)."""

    type_name: str
    value: float


#: Plain numbers become uint32 (int32 below 0) and float32; NumPy arrays keep their type; strings may be raw bytes.
Value: TypeAlias = bool | int | float | str | bytes | Typed | NDArray[np.generic] | Sequence[str] | Sequence[bytes]

#: A tensor to write: its weights (d_out, d_in) or (width,) f32, and the format to store them in.
Tensor: TypeAlias = tuple[NDArray[np.float32], Format]


def write_gguf(
    path: str | PathLike[str],
    metadata: Mapping[str, Value],
    tensors: Mapping[str, Tensor],
    *,
    alignment: int = 32,
    version: int = 3,
) -> Path:
    """Write a file and return its path. An `alignment` other than 32 is written as general.alignment too."""
    if alignment != 32:
        metadata = {"general.alignment": alignment, **metadata}
    packed = {name: (array.shape, fmt, quantize(array, fmt)) for name, (array, fmt) in tensors.items()}
    head = b"GGUF" + struct.pack("<IQQ", version, len(packed), len(metadata))
    head += b"".join(encode_text(key) + encode_value(value) for key, value in metadata.items())
    offset = 0
    for name, (shape, fmt, data) in packed.items():
        head += encode_tensor(name, shape, fmt.type_id, offset)
        offset += len(data) + -len(data) % alignment
    with Path(path).open("wb") as file:
        file.write(head + bytes(-len(head) % alignment))
        for _, _, data in packed.values():
            file.write(data.tobytes())
            file.write(bytes(-len(data) % alignment))
    return Path(path)


def encode_text(text: str | bytes) -> bytes:
    """A length-prefixed string."""
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def encode_tensor(name: str | bytes, shape: Sequence[int], type_id: int, offset: int) -> bytes:
    """One line of the tensor directory; `shape` is row-major, the file lists it the other way round."""
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return encode_text(name) + dimensions + struct.pack("<IQ", type_id, offset)


def encode_value(value: Value) -> bytes:
    """The type number of a metadata value, and the value."""
    if isinstance(value, (str, bytes)):
        return struct.pack("<I", _STRING) + encode_text(value)
    if isinstance(value, (bool, int, float)):
        value = Typed(_type_name(value), value)
    if isinstance(value, Typed):
        type_id, layout = _NUMBERS[value.type_name]
        return struct.pack("<I", type_id) + struct.pack(layout, value.value)
    if isinstance(value, np.ndarray):
        type_id, layout = _NUMBERS[value.dtype.name]
        return struct.pack("<IIQ", _ARRAY, type_id, len(value)) + value.astype(np.dtype(layout)).tobytes()
    return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(encode_text, value))


def _type_name(value: float) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "uint32" if value >= 0 else "int32"
    return "float32"
