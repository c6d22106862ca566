"""A directory of our own: private, never a link, and locked while its files come and go."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from fucina.errors import ConfigError

#: The format's version is in every name, so that versions live side by side and leave each other alone.
_INDEX_NAME = "kv1.{}.sqlite"
_ANY_INDEX_NAME = re.compile(r"kv1\.([0-9]{1,9})\.sqlite")
_LOCK_NAME = "kv1.lock"
_SEGMENT_NAME = re.compile(r"[0-9a-f]{32}\.kv1")
_OPTION = "kv_cache_dir"
_PATIENCE_S = 10.0


class Folder:
    """Segments and the index's file in one directory. Raises ConfigError where it cannot be used, or is not safe."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise self._refusal(error) from error
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the directory back."""
        os.close(self._fd)

    def segments(self) -> list[str]:
        """Names of files that look like segments."""
        with os.scandir(self._fd) as entries:
            return sorted(entry.name for entry in entries if _SEGMENT_NAME.fullmatch(entry.name))

    def create(self) -> tuple[str, int]:
        """Make an empty segment, locked by us. The caller holds `locked`. Gives its name and descriptor."""
        name = f"{uuid.uuid4().hex}.kv1"
        fd = self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return name, fd

    def take(self, name: str) -> int | None:
        """Open a segment to change it; None while another process writes it. Raises OSError, also for a link."""
        fd = self._open(name, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def open_to_read(self, name: str) -> int:
        """Open a segment to read it. Raises OSError, also for a link or a name that no segment has."""
        return self._open(name, os.O_RDONLY)

    def remove(self, name: str) -> None:
        """Delete a segment; who reads it now can read on."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def sync(self) -> None:
        """Return when names that came and went would survive a power cut."""
        os.fsync(self._fd)

    def index(self) -> Path:
        """Where the newest index is, made empty and private if there is none. The caller holds `locked`.

        Raises OSError for a link. No index is opened here: closing it would take away the locks of whoever in this
        process has it open. None is renamed or deleted either, for then another's journal could go with it.
        """
        newest = self._newest_index()
        if newest == 0:
            return self.begin_index()
        name = _INDEX_NAME.format(newest)
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):  # an index closed in good order has no journal
                _refuse_others(name, os.stat(name + suffix, dir_fd=self._fd, follow_symlinks=False))
        return self.path / name

    def begin_index(self) -> Path:
        """Make a new index in place of all before, which are left as they are. The caller holds `locked`."""
        name = _INDEX_NAME.format(self._newest_index() + 1)
        os.close(self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        return self.path / name

    def _newest_index(self) -> int:
        with os.scandir(self._fd) as entries:
            found = [_ANY_INDEX_NAME.fullmatch(entry.name) for entry in entries]
        return max((int(match[1]) for match in found if match is not None), default=0)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory among processes, while segments come, go or change hands. Raises OSError after a while."""
        fd = self._open(_LOCK_NAME, os.O_RDWR | os.O_CREAT)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise TimeoutError(errno.ETIMEDOUT, "another process keeps it locked") from error
                    time.sleep(0.002)
            yield
        finally:
            os.close(fd)

    def _open(self, name: str, flags: int) -> int:
        """Open a regular file here that is ours, following no link."""
        if os.sep in name or "\0" in name:
            raise OSError(errno.EINVAL, f"{name!r} is not the name of a file here")
        safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not hold us up
        fd = os.open(name, flags | safe, 0o600, dir_fd=self._fd)
        try:
            _refuse_others(name, os.fstat(fd))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check(self) -> None:
        found = os.fstat(self._fd)
        if found.st_uid != os.geteuid():
            raise ConfigError(
                _OPTION, got=str(self.path), expected="a directory that belongs to the user who runs this"
            )
        if found.st_mode & 0o022:
            expected = "a directory that nobody else can write to: chmod go-w it, or give another"
            raise ConfigError(_OPTION, got=str(self.path), expected=expected)
        try:
            with self.locked():
                pass
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> ConfigError:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) or self.path.is_symlink():
            expected = "a directory without symbolic links in it, and not one itself: give the directory it leads to"
        else:
            expected = f"a directory that can be made, read and written ({error.strerror or error})"
        return ConfigError(_OPTION, got=str(self.path), expected=expected)


def _refuse_others(name: str, found: os.stat_result) -> None:
    """Raise OSError for a link, a pipe, or a file that belongs to somebody else."""
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, f"{name} is a symbolic link")
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"{name} is not a file of this user")
