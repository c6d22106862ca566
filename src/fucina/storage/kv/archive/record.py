"""The bytes of a conversation file: its header, its two commit slots, its records. Little endian throughout.

docs/reference/conversation-file.md describes them for readers of the file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import NamedTuple

import xxhash

from fucina.core.shapes import KV_BLOCK
from fucina.storage.kv.geometry import KvGeometry

MAGIC = b"FUCHAT\r\n"
VERSION = 1
#: Header and slots each begin a page, so that a write torn in one leaves the others alone.
PAGE = 4096
IDENTITY_BYTES = 32
#: Kinds of records.
RUN, TEXT = 1, 2
#: More than any model has; a number in a file beyond it is a lie.
_MOST_LAYERS = 1 << 14

_HEADER = struct.Struct(f"<8sII{IDENTITY_BYTES}s8sI")  # magic, version, layers, identity, KV format, block
_LAYER = struct.Struct("<II")
_SLOT = struct.Struct("<QQQQQ")
_RECORD = struct.Struct("<IIQQ")
_CHECKSUM = struct.Struct("<Q")

RECORD_BYTES = _RECORD.size + _CHECKSUM.size
TOKEN_BYTES = 4


def checksum(data: bytes | memoryview, seed: int = 0) -> int:
    """XXH3, 64 bits."""
    return xxhash.xxh3_64_intdigest(data, seed)


def header(geometry: KvGeometry, identity: bytes) -> bytes:
    """The header of a file for this geometry and model, whole pages."""
    layers = geometry.layers
    fields = _HEADER.pack(MAGIC, VERSION, len(layers), identity, geometry.format.encode(), KV_BLOCK)
    fields += b"".join(_LAYER.pack(layer.kv_heads, layer.d_head) for layer in layers)
    size = header_bytes(len(layers))
    body = fields.ljust(size - _CHECKSUM.size, b"\0")
    return body + _CHECKSUM.pack(checksum(body))


def header_bytes(n_layers: int) -> int:
    """Bytes of a header, a multiple of the page."""
    return -(-(_HEADER.size + _LAYER.size * n_layers + _CHECKSUM.size) // PAGE) * PAGE


def claimed_header_bytes(front: bytes) -> int:
    """How long the header is, as a file's front has it; 0 where it has no header."""
    if len(front) < _HEADER.size or front[: len(MAGIC)] != MAGIC:
        return 0
    return header_bytes(min(_HEADER.unpack_from(front)[2], _MOST_LAYERS))


def header_fault(found: bytes, wanted: bytes) -> str | None:
    """Say why a file's header is not the one that is wanted, and what to do about it; None if it is."""
    if found == wanted:
        return None
    if found[: len(MAGIC)] != MAGIC:
        return "is not a conversation file; give the name of one, or of a file that does not exist yet"
    if len(found) < PAGE or found[-_CHECKSUM.size :] != _CHECKSUM.pack(checksum(found[: -_CHECKSUM.size])):
        return "has a damaged header, or one of another version; nothing can be read from it: give another file"
    _, version, _, identity, kv_format, _ = _HEADER.unpack_from(found)
    _, our_version, _, our_identity, our_format, _ = _HEADER.unpack_from(wanted)
    if version != our_version:
        return f"has version {version} of the format, and this Fucina reads version {our_version}; give another file"
    if identity != our_identity:
        return "is a conversation with another model, or of another backend or release; load that, or give another file"
    if kv_format != our_format:
        name = kv_format.rstrip(b"\0").decode("ascii", "replace")
        return f"has keys and values in the format {name!r}: load the model with that kv_format, or give another file"
    return "has keys and values of another shape; load the model that wrote it, or give another file"


class Slot(NamedTuple):
    """A commit: the `sequence`-th. The log ends at `end`, where its chain of checksums is `chain`.

    Of what it holds, the first `n_tokens` tokens and `n_messages` messages count.
    """

    sequence: int
    end: int
    n_tokens: int
    n_messages: int
    chain: int

    def to_bytes(self) -> bytes:
        """Give the slot's bytes."""
        fields = _SLOT.pack(*self)
        return fields + _CHECKSUM.pack(checksum(fields))

    @classmethod
    def from_bytes(cls, data: bytes) -> Slot | None:
        """Read a slot; None if it is not one, to the last bit."""
        if len(data) < _SLOT.size + _CHECKSUM.size:
            return None
        fields = data[: _SLOT.size]
        slot = cls(*_SLOT.unpack(fields))
        return slot if data[: len(fields) + _CHECKSUM.size] == slot.to_bytes() and slot.sequence else None


class RecordHeader(NamedTuple):
    """What precedes a record's payload: positions `first` .. of a run, or messages `first` .. of a text.

    The checksum covers these fields, the payload, and by its seed every record before.
    """

    kind: int
    first: int
    n_items: int
    payload_bytes: int
    checksum: int

    def to_bytes(self) -> bytes:
        """Give the header's bytes."""
        return _fields(self.kind, self.first, self.n_items, self.payload_bytes) + _CHECKSUM.pack(self.checksum)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> RecordHeader:
        """Read a header; whether it is true, its checksum tells together with the payload."""
        kind, n_items, first, payload_bytes = _RECORD.unpack_from(data)
        return cls(kind, first, n_items, payload_bytes, _CHECKSUM.unpack_from(data, _RECORD.size)[0])

    def seed(self, chain: int) -> int:
        """The seed for the payload's checksum behind a log with that chain."""
        return checksum(_fields(self.kind, self.first, self.n_items, self.payload_bytes), chain)


def _fields(kind: int, first: int, n_items: int, payload_bytes: int) -> bytes:
    return _RECORD.pack(kind, n_items, first, payload_bytes)


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Tokens as u32."""
    return struct.pack(f"<{len(tokens)}I", *tokens)


def unpack_tokens(data: bytes | memoryview) -> tuple[int, ...]:
    """Undo pack_tokens."""
    return struct.unpack(f"<{len(data) // TOKEN_BYTES}I", data)


class Text(NamedTuple):
    """Messages; runs from position `since` to `at` follow, and `rest` are the tokens behind those, without runs."""

    messages: list[dict[str, str]]
    since: int
    at: int
    rest: list[int]

    def to_bytes(self) -> bytes:
        """As JSON, in ASCII."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Text | None:
        """Read a text; None if it is not what `to_bytes` gives."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or set(value) != set(cls._fields):
            return None
        text = cls(**value)
        if not isinstance(text.messages, list) or not all(map(_is_message, text.messages)):
            return None
        if not isinstance(text.rest, list) or not all(map(_is_u32, [text.since, text.at, *text.rest])):
            return None
        return text


def _is_u32(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 32


def _is_message(value: object) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"role", "content"}
        and all(isinstance(part, str) for part in value.values())
    )
