"""A position in a header: every read is checked against the bytes that are left."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fucina.errors import BadHeader, TruncatedFile
from fucina.storage.gguf import limits

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class Cursor:
    """Reads little-endian values from the front of a file; `end` is the file's end or the header limit."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path, self.data = path, data
        self.view = data.data
        self.position = 0
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

    def scalar(self, layout: struct.Struct, what: str) -> int | float:
        """One number of any layout."""
        self.need(layout.size, what)
        value: int | float = layout.unpack_from(self.view, self.position)[0]
        self.position += layout.size
        return value

    def text(self, what: str, most_bytes: int) -> str:
        """A length-prefixed UTF-8 string of at most `most_bytes` bytes. Raises BadHeader, TruncatedFile."""
        length = self.u64(f"the length of {what}")
        self.need(length, what)
        if length > most_bytes:
            raise BadHeader(self.path, f"{what} has {length} bytes, more than the limit of {most_bytes}")
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
