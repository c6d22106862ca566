"""How a block lies in a segment: a header of 512 bytes that says all about it, then its bytes.

Little endian: magic 8 B, checksum of the payload u64, bytes of the payload u64, tokens in use u32, identity 16 B, name
32 B, name of the block before 32 B, 64 tokens u32 big endian (so that they sort as numbers do), zeros, and the checksum
of the 504 bytes before u64. Checksums are XXH3, 64 bits. A segment begins with 512 constant bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import xxhash

from fucina.core.shapes import KV_BLOCK

HEADER_BYTES = 512
IDENTITY_BYTES = 16
NAME_BYTES = 32
TOKEN_BYTES = 4

_MAGIC = b"FUKVREC1"
_FIELDS = struct.Struct(f"<8sQQI{IDENTITY_BYTES}s{NAME_BYTES}s{NAME_BYTES}s{KV_BLOCK * TOKEN_BYTES}s")
_CHECKSUM = struct.Struct("<Q")


class Record(NamedTuple):
    """What a header says. `tokens` are packed; see pack_tokens."""

    identity: bytes
    name: bytes
    parent: bytes
    tokens: bytes
    payload_bytes: int
    payload_checksum: int

    def to_bytes(self) -> bytes:
        """Give the header's bytes."""
        fields = _FIELDS.pack(
            _MAGIC,
            self.payload_checksum,
            self.payload_bytes,
            len(self.tokens) // TOKEN_BYTES,
            self.identity,
            self.name,
            self.parent,
            self.tokens,
        )
        return _sealed(fields)

    @classmethod
    def from_bytes(cls, header: bytes | bytearray) -> Record | None:
        """Read a header; None if it is not one, to the last bit."""
        if len(header) != HEADER_BYTES or _sealed(header[: _FIELDS.size]) != header:
            return None
        magic, payload_checksum, payload_bytes, n_tokens, identity, name, parent, tokens = _FIELDS.unpack_from(header)
        if magic != _MAGIC or not 0 < n_tokens <= KV_BLOCK:
            return None
        return cls(identity, name, parent, tokens[: n_tokens * TOKEN_BYTES], payload_bytes, payload_checksum)


def checksum(data: bytes | memoryview) -> int:
    """The checksum of a header or a payload: fast enough not to be noticed beside the copy."""
    return xxhash.xxh3_64_intdigest(data)


def _sealed(fields: bytes | bytearray) -> bytes:
    body = bytes(fields).ljust(HEADER_BYTES - _CHECKSUM.size, b"\0")
    return body + _CHECKSUM.pack(checksum(body))


#: What a segment begins with.
SEGMENT_HEADER = _sealed(b"FUKVSEG1")


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Pack tokens so that the bytes sort as the tokens do. Raises struct.error for what is no u32."""
    return struct.pack(f">{len(tokens)}I", *tokens)


def unpack_tokens(packed: bytes) -> tuple[int, ...]:
    """Undo pack_tokens."""
    return struct.unpack(f">{len(packed) // TOKEN_BYTES}I", packed)


def n_common_tokens(ours: bytes, theirs: bytes) -> int:
    """How many packed tokens agree from the start."""
    n_common = 0
    for a, b in zip(unpack_tokens(ours), unpack_tokens(theirs), strict=False):
        if a != b:
            break
        n_common += 1
    return n_common
