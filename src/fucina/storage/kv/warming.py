"""The first touch of memory, ahead of need: a page that was never written to is made by the kernel when it is.

That takes a fifth of a millisecond for two megabytes where the kernel has them at hand, and thirty in a virtual machine
whose host must find them first: many steps of a small model. So a thread of low priority does it before a step would.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading

import numpy as np

#: Makes pages as writing would, and leaves what is in them alone. Linux has it from 5.14 on; elsewhere it is refused.
_POPULATE_WRITE = 23
#: Bytes at a time: one huge page, for while they are made nobody else may map memory.
_STRIDE = 2 << 20
#: A smaller mapping is not worth a thread.
_WORTHWHILE = 16 << 20
#: The thread gives way to those that compute, and still gets enough of a processor to keep ahead of them.
_NICENESS = 10


class Warming:
    """Keeps `ahead_bytes` of a mapping touched past where its owner has come to. The owner's thread calls it.

    Only the time of later steps depends on it, so nothing here raises: a kernel that refuses is asked no more.
    """

    def __init__(self, memory: mmap.mmap, ahead_bytes: int) -> None:
        self._memory, self._ahead_bytes = memory, ahead_bytes
        self._end = 0  # touched, or being touched, up to here
        self._is_possible = sys.platform == "linux" and len(memory) >= _WORTHWHILE
        self._thread: threading.Thread | None = None

    def need(self, start: int) -> None:
        """Tell that everything before byte `start` is in use: what is missing past it gets touched."""
        if not self._is_possible or self._end - start > self._ahead_bytes // 2 or self._end == len(self._memory):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        first = max(self._end, start // _STRIDE * _STRIDE)
        self._end = min(-(-(start + self._ahead_bytes) // _STRIDE) * _STRIDE, len(self._memory))
        if first < self._end:
            self._thread = threading.Thread(target=self._touch, args=(first, self._end), daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until all that was asked for is touched."""
        if self._thread is not None:
            self._thread.join()

    def _touch(self, start: int, end: int) -> None:
        """Touch bytes start to end of the mapping, which is kept as long as this takes."""
        bytes_ = np.frombuffer(self._memory, np.uint8)
        os.nice(_NICENESS)  # on Linux that is of this thread alone
        libc = ctypes.CDLL(None)
        for at in range(start, end, _STRIDE):
            n_bytes = ctypes.c_size_t(min(_STRIDE, end - at))
            if libc.madvise(ctypes.c_void_p(bytes_.ctypes.data + at), n_bytes, _POPULATE_WRITE) != 0:
                self._is_possible = False
                return
