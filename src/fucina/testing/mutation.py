"""Random damage to honest headers, for property tests of the reader: flips, edited lengths, splices, cuts."""

from __future__ import annotations

import random
from pathlib import Path

from fucina.storage.gguf import GgufFile, StringArray
from fucina.storage.gguf.cursor import Cursor
from fucina.storage.gguf.directory import read_directory
from fucina.storage.gguf.header import read_header
from fucina.storage.mapping import map_file

#: Numbers that lengths and counts are set to: nothing, one, the ends of the integer types, wrap-arounds.
_NUMBERS = (0, 1, 2, 3, 7, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**60, 2**61, 2**63 - 1, 2**63, 2**64 - 1)


def mutate(honest: bytes, rng: random.Random) -> bytes:
    """`honest` with one to four random edits, half of them near its ends, where counts and directories lie."""
    damaged = bytearray(honest)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if damaged:
            rng.choice(_EDITS)(damaged, _place(len(damaged), rng), rng)
    return bytes(damaged)


def header_bytes(path: Path) -> bytes:
    """Everything before the tensor data of an honest file."""
    cursor = Cursor(path, map_file(path))
    header = read_header(cursor)
    read_directory(cursor, header.n_tensors, header.alignment)
    return cursor.data[: cursor.position].tobytes()


def write_over_hole(path: Path, head: bytes, file_bytes: int) -> None:
    """Write `head`, and where the tensor data would be a hole up to `file_bytes`, which takes no disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(max(len(head), file_bytes))


def check_promises(opened: GgufFile) -> None:
    """Assert what every opened file keeps: all its strings decode, all its tensors have exactly their bytes."""
    for value in opened.metadata.values():
        if isinstance(value, StringArray):
            assert len(value.to_list()) == len(value)
    for weight in opened.weights.values():
        assert len(weight.data) == weight.d_out * weight.format.row_bytes(weight.d_in)
        assert weight.data[-1] >= 0


def _place(n_bytes: int, rng: random.Random) -> int:
    first, last = rng.choice(((0, 1024), (n_bytes - 16384, n_bytes), (0, n_bytes), (0, n_bytes)))
    return rng.randrange(max(0, first), min(n_bytes, last))


def _flip(damaged: bytearray, at: int, rng: random.Random) -> None:
    damaged[at] ^= 1 << rng.randrange(8)


def _set_number(damaged: bytearray, at: int, rng: random.Random) -> None:
    width = rng.choice((1, 2, 4, 8))
    if at + width <= len(damaged):
        damaged[at : at + width] = (rng.choice(_NUMBERS) % 2 ** (8 * width)).to_bytes(width, "little")


def _shift_number(damaged: bytearray, at: int, rng: random.Random) -> None:
    if at + 8 <= len(damaged):
        number = int.from_bytes(damaged[at : at + 8], "little") + rng.choice((-8, -1, 1, 8, 32))
        damaged[at : at + 8] = (number % 2**64).to_bytes(8, "little")


def _delete(damaged: bytearray, at: int, rng: random.Random) -> None:
    del damaged[at : at + rng.choice((1, 4, 8, 100))]


def _insert(damaged: bytearray, at: int, rng: random.Random) -> None:
    damaged[at:at] = rng.randbytes(rng.choice((1, 4, 8, 100)))


def _splice(damaged: bytearray, at: int, rng: random.Random) -> None:
    source = _place(len(damaged), rng)
    piece = damaged[source : source + rng.choice((8, 32, 64, 512))]
    damaged[at : at + len(piece)] = piece


def _cut(damaged: bytearray, at: int, rng: random.Random) -> None:
    del damaged[rng.randrange(at, len(damaged) + 1) :]


_EDITS = (_flip, _flip, _set_number, _set_number, _shift_number, _shift_number, _delete, _insert, _splice, _cut)
