"""A file mapped read-only: its bytes without a copy, for as long as anybody holds a view of them."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fucina.errors import ModelFileError, NotGguf, UnknownModel


def map_file(path: str | PathLike[str]) -> NDArray[np.uint8]:
    """All bytes of a regular file, (file_bytes,) uint8, read-only.

    The file is unmapped when the array and the last view of it are gone; it must not be shortened before that.
    Raises UnknownModel where there is no file, NotGguf for a folder or a device, and ModelFileError where it cannot be
    read.
    """
    path = Path(path)
    try:
        # without O_NONBLOCK, opening a named pipe would wait for ever
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnknownModel("model file", got=str(path), expected="the path of an existing GGUF file") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(path, f"cannot be opened ({error}); check its name and permissions") from error
    try:
        return np.frombuffer(_map_regular(path, descriptor), dtype=np.uint8)
    except OSError as error:
        raise ModelFileError(path, f"cannot be mapped ({error})") from error
    finally:
        os.close(descriptor)


def _map_regular(path: Path, descriptor: int) -> mmap.mmap | bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise NotGguf(path, f"this is {what}; give the path of a GGUF file")
    if status.st_size == 0:
        return b""  # an empty mapping does not exist
    return mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)


def expect_views(views: Iterable[NDArray[np.uint8]]) -> None:
    """Have the kernel begin to read these views of mapped files, and from now on no more than is touched.

    Otherwise it reads megabytes around whatever is touched. Views of anything but a mapping are left alone.
    """
    parts = [part for view in views if (part := _part(view)) is not None]
    for owner in {id(owner): owner for owner, _, _ in parts}.values():
        owner.madvise(mmap.MADV_RANDOM)
    for owner, begin, end in parts:
        first = begin // mmap.PAGESIZE * mmap.PAGESIZE
        owner.madvise(mmap.MADV_WILLNEED, first, end - first)


def forget_pages(view: NDArray[np.uint8]) -> None:
    """Let the kernel drop the pages wholly inside a view of a mapped file: whoever reads it again reads the file again.

    A view of anything but a mapping is left alone.
    """
    part = _part(view)
    if part is None:
        return
    owner, begin, end = part
    first, last = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        owner.madvise(mmap.MADV_DONTNEED, first, last - first)


def _part(view: NDArray[np.uint8]) -> tuple[mmap.mmap, int, int] | None:
    """The mapping that a view with bytes is of, and where in it those begin and end."""
    owner: object = view
    while isinstance(owner, np.ndarray):
        root, owner = owner, owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if not isinstance(owner, mmap.mmap) or not view.size:
        return None
    begin = view.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return owner, begin, begin + view.nbytes
