"""The front of a GGUF file: magic, version, counts, metadata.

Source: the GGUF specification, versions 2 and 3, little endian.
"""

from __future__ import annotations

from dataclasses import dataclass

from fucina.errors import BadHeader, NotGguf, TruncatedFile
from fucina.storage.gguf import limits
from fucina.storage.gguf.cursor import Cursor, shown
from fucina.storage.gguf.values import TYPE_NAMES, UINT32, MetadataValue, ValueReader

MAGIC = b"GGUF"
VERSIONS = (2, 3)

#: What else people have in their model folders, by its first bytes.
_OTHER_MAGICS: dict[bytes, str] = {
    b"lmgg": "a GGML file from before GGUF",
    b"fmgg": "a GGML file from before GGUF",
    b"tjgg": "a GGJT file from before GGUF",
    b"PK\x03\x04": "a zip archive, such as a PyTorch checkpoint or a wheel",
    b"vers": "a Git LFS pointer, not the file it points to",
    b"<!DO": "a web page",
    b"<htm": "a web page",
}

#: The smallest key (length, no characters, type, one byte) and tensor entry (name length, one dimension, type, offset).
_LEAST_KEY_BYTES, _LEAST_TENSOR_BYTES = 8 + 4 + 1, 8 + 4 + 8 + 4 + 8


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the tensor directory."""

    version: int
    n_tensors: int
    alignment: int
    metadata: dict[str, MetadataValue]


def read_header(cursor: Cursor) -> Header:
    """Read from the start of the file to the tensor directory.

    Raises NotGguf, TruncatedFile, and BadHeader for counts, keys, values, duplicates and alignments that cannot be.
    """
    version = _read_version(cursor)
    n_tensors = cursor.u64("the number of tensors")
    n_keys = cursor.u64("the number of metadata keys")
    _check_count(cursor, n_tensors, "tensors", limits.TENSORS, _LEAST_TENSOR_BYTES)
    _check_count(cursor, n_keys, "metadata keys", limits.KEYS, _LEAST_KEY_BYTES)
    metadata: dict[str, MetadataValue] = {}
    values = ValueReader(cursor)
    alignment = limits.DEFAULT_ALIGNMENT
    for index in range(n_keys):
        key = cursor.text(f"metadata key {index}", limits.KEY_BYTES)
        if not key:
            raise BadHeader(cursor.path, f"metadata key {index} has no name")
        if key in metadata:
            raise BadHeader(cursor.path, f"metadata key {shown(key)} appears twice")
        value_type = cursor.u32(f"the type of {shown(key)}")
        value = values.read(value_type, key)
        if key == "general.alignment":
            alignment = _checked_alignment(cursor, value_type, value)
        metadata[key] = value
    return Header(version, n_tensors, alignment, metadata)


def _read_version(cursor: Cursor) -> int:
    magic = cursor.data[:4].tobytes()
    if not MAGIC.startswith(magic[:4]):
        what = _OTHER_MAGICS.get(magic, f"not a GGUF file (it begins with {magic!r})")
        raise NotGguf(cursor.path, f"this is {what}; give a model in GGUF format")
    cursor.need(4, "the magic number")
    cursor.position = 4
    version = cursor.u32("the version")
    if version in VERSIONS:
        return version
    if version == 1:
        raise NotGguf(cursor.path, "this is GGUF version 1; convert the model again to version 3")
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, *VERSIONS):
        raise NotGguf(cursor.path, "this is a big-endian GGUF file; convert the model for little-endian machines")
    raise NotGguf(cursor.path, f"this is GGUF version {version}; versions 2 and 3 are read")


def _check_count(cursor: Cursor, count: int, what: str, most: int, least_bytes: int) -> None:
    if count > most:
        raise BadHeader(cursor.path, f"the header announces {count} {what}, more than the limit of {most}")
    if count * least_bytes > cursor.left_bytes:
        raise TruncatedFile(
            cursor.path,
            f"the header announces {count} {what}, but only {cursor.left_bytes} bytes follow. Fetch the file again",
        )


def _checked_alignment(cursor: Cursor, value_type: int, value: MetadataValue) -> int:
    least, most = limits.SMALLEST_ALIGNMENT, limits.LARGEST_ALIGNMENT
    if value_type != UINT32 or not isinstance(value, int):
        raise BadHeader(cursor.path, f"general.alignment is of type {TYPE_NAMES[value_type]}; it must be uint32")
    if not least <= value <= most or value & (value - 1):
        raise BadHeader(cursor.path, f"general.alignment is {value}; it must be a power of two from {least} to {most}")
    return value
