"""A position in a header: every read is checked against the bytes that are left."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fucina.errors import BadHeader, TruncatedFile
from fucina.storage.gguf import limits

_SHOWN_LETTERS = 80
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


def shown(name: str) -> str:
    """A name from a file, quoted for a message: control characters escaped, and not longer than a line."""
    return repr(name if len(name) <= _SHOWN_LETTERS else f"{name[:_SHOWN_LETTERS]}...")


class Cursor:
    """Reads little-endian values from the front of a file; `end` is the file's end or the header limit."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path, self.data = path, data
        self.view = data.data
        self.position = 0
        self._text_left_bytes = limits.TEXT_BYTES
        self.end = min(len(data), limits.HEADER_BYTES)

    @property
    def left_bytes(self) -> int:
        """Bytes that may still be read."""
        return self.end - self.position

    def need(self, n_bytes: int, what: str) -> None:
        """Check that `n_bytes` more bytes exist before anything is read or allocated. Raises TruncatedFile."""
        if n_bytes > self.end - self.position:
            self._too_long(n_bytes, what)

    def u32(self, what: str) -> int:
        """An unsigned 32-bit number."""
        self.need(4, what)
        value: int = _U32.unpack_from(self.view, self.position)[0]
        self.position += 4
        return value

    def u64(self, what: str) -> int:
        """An unsigned 64-bit number."""
        self.need(8, what)
        value: int = _U64.unpack_from(self.view, self.position)[0]
        self.position += 8
        return value

    def unpack(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        """The numbers of a layout, integers or floats as it says."""
        self.need(layout.size, what)
        values = layout.unpack_from(self.view, self.position)
        self.position += layout.size
        return values

    def text(self, what: str, most_bytes: int) -> str:
        """A length-prefixed UTF-8 string of at most `most_bytes` bytes. Raises BadHeader, TruncatedFile."""
        length = self.u64(f"the length of {what}")
        self.need(length, what)
        if length > most_bytes:
            raise BadHeader(self.path, f"{what} has {length} bytes, more than the limit of {most_bytes}")
        self._text_left_bytes -= length
        if self._text_left_bytes < 0:
            raise BadHeader(self.path, f"{what} brings all names and strings above {limits.TEXT_BYTES} bytes")
        raw = bytes(self.view[self.position : self.position + length])
        self.position += length
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise BadHeader(self.path, f"{what} is not UTF-8 ({error.reason} at its byte {error.start})") from error

    def _too_long(self, n_bytes: int, what: str) -> NoReturn:
        if self.end < len(self.data):
            raise BadHeader(
                self.path, f"{what} runs past the {limits.HEADER_BYTES} bytes that metadata and directory may take"
            )
        raise TruncatedFile(
            self.path,
            f"{what} needs {n_bytes} bytes at offset {self.position}, but only {self.left_bytes} are left. "
            "Fetch the file again",
        )
