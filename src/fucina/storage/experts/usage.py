"""How often each expert was used, over all runs: a small file beside the model.

Layout, little endian: the magic, the number of layers (u32), the model's name (32 bytes); for each layer the number of
experts (u32) and a count for each (u64); at the end the blake2b of all that, 16 bytes.
"""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"FUCEXU\x00\x01"
_HEAD = struct.Struct("<8sI32s")
_COUNT = struct.Struct("<I")
_CHECK_BYTES = 16
#: No file that we wrote is longer.
_LONGEST = 1 << 26

#: Uses of experts 0, 1, ... of every layer.
Uses = list[NDArray[np.uint64]]


class ExpertUsageWarning(UserWarning):
    """What is known of the experts' uses could not be read or kept. It is learned anew; answers do not depend on it."""


class UsageFile:
    """The uses of a model's experts, in one of several places: the first that can be written to."""

    def __init__(self, places: Sequence[Path], identity: bytes, n_experts: Sequence[int]) -> None:
        """`identity` (32 bytes) names the model; a file of another one, or of other layers, is ignored whole."""
        self._places, self._identity, self._n_experts = tuple(places), identity, tuple(n_experts)

    def read(self) -> Uses | None:
        """What was kept; None where nothing was. Warns with ExpertUsageWarning of a file that cannot be used."""
        for place in self._places:
            try:
                with place.open("rb") as file:
                    data = file.read(_LONGEST + 1)
            except OSError:
                continue
            uses = self._decode(data)
            if uses is not None:
                return uses
            warnings.warn(
                f"{place}: not the uses of this model's experts, or damaged: they are learned anew; remove the file "
                "if it is something else",
                ExpertUsageWarning,
                stacklevel=2,
            )
        return None

    def add(self, uses: Uses) -> bool:
        """Add to what was kept, replacing the file in one step; whether it could be. Warns with ExpertUsageWarning."""
        before = self._quietly_read()
        total = uses if before is None else [a + b for a, b in zip(before, uses, strict=True)]
        data = self._encode(total)
        failure: OSError | None = None
        for place in self._places:
            try:
                _refuse_foreign(place)
                _replace(place, data)
            except OSError as error:
                failure = error
            else:
                return True
        warnings.warn(f"the uses of experts cannot be kept ({failure})", ExpertUsageWarning, stacklevel=2)
        return False

    def _quietly_read(self) -> Uses | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExpertUsageWarning)
            return self.read()

    def _encode(self, uses: Uses) -> bytes:
        layers = b"".join(_COUNT.pack(len(counts)) + counts.astype("<u8").tobytes() for counts in uses)
        body = _HEAD.pack(_MAGIC, len(uses), self._identity) + layers
        return body + _check(body)

    def _decode(self, data: bytes) -> Uses | None:
        lengths = [_COUNT.size + 8 * n for n in self._n_experts]
        body, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if len(body) != _HEAD.size + sum(lengths) or _check(body) != check:
            return None
        if body[: _HEAD.size] != _HEAD.pack(_MAGIC, len(lengths), self._identity):
            return None
        uses: Uses = []
        at = _HEAD.size
        for n, length in zip(self._n_experts, lengths, strict=True):
            if _COUNT.unpack_from(body, at)[0] != n:
                return None
            uses.append(np.frombuffer(body, "<u8", n, at + _COUNT.size).astype(np.uint64))
            at += length
        return uses


def _check(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECK_BYTES).digest()


def _refuse_foreign(place: Path) -> None:
    """Raise FileExistsError for a file that was never ours to replace."""
    with suppress(FileNotFoundError), place.open("rb") as file:
        if (beginning := file.read(len(_MAGIC))) and beginning != _MAGIC:
            raise FileExistsError(f"{place} is something else")


def _replace(place: Path, data: bytes) -> None:
    """Write a file beside it and give that the name: whoever reads finds all of the old or all of the new."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh: Path | None = None
    try:
        with NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}.", delete=False) as file:
            fresh = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(place)
    except OSError:
        if fresh is not None:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
        raise
