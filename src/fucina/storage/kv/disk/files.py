"""The system calls that move a segment's bytes: a seam, so that tests can make each of them fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence


class Files:
    """Whole reads and writes at a place; a short one goes on where it stopped. Raises OSError as the system does."""

    def write(self, fd: int, parts: Sequence[memoryview], offset: int) -> None:
        """Write all of `parts`, one behind the other, from `offset` on."""
        parts = list(parts)
        while parts:
            done = self.write_some(fd, parts, offset)
            if done <= 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            offset += done
            parts = _behind(parts, done)

    def read(self, fd: int, parts: Sequence[memoryview], offset: int) -> bool:
        """Fill all of `parts`; False where the file ends before."""
        parts = list(parts)
        while parts:
            done = self.read_some(fd, parts, offset)
            if done <= 0:
                return False
            offset += done
            parts = _behind(parts, done)
        return True

    def write_some(self, fd: int, parts: Sequence[memoryview], offset: int) -> int:
        """Write some bytes; give how many."""
        return os.pwritev(fd, parts, offset)

    def read_some(self, fd: int, parts: Sequence[memoryview], offset: int) -> int:
        """Read some bytes; give how many."""
        return os.preadv(fd, parts, offset)

    def sync(self, fd: int) -> None:
        """Return when what was written would survive a power cut."""
        os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file."""
        os.ftruncate(fd, size)


def _behind(parts: list[memoryview], done: int) -> list[memoryview]:
    """What is left of `parts` after the first `done` bytes."""
    while parts and done >= len(parts[0]):
        done -= len(parts[0])
        parts = parts[1:]
    return [parts[0][done:], *parts[1:]] if parts else []
