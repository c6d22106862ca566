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
INDEX_NAME = "kv1.sqlite"
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

    def prepare_index(self) -> Path:
        """Make the index's file, so that it is private from its first moment. Raises ConfigError for a link."""
        try:
            for suffix in ("", "-wal", "-shm"):
                os.close(self._open(INDEX_NAME + suffix, os.O_RDWR | (os.O_CREAT if not suffix else 0)))
        except FileNotFoundError:
            pass  # the index was closed in good order and has no journal now
        except OSError as error:
            raise self._refusal(error) from error
        return self.path / INDEX_NAME

    def quarantine_index(self) -> Path:
        """Put an index that cannot be read out of the way, whole. The caller holds `locked`. Gives its new name."""
        name = f"{INDEX_NAME}.broken-{uuid.uuid4().hex[:8]}"
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(INDEX_NAME + suffix, name + suffix, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        return self.path / name

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
        if os.sep in name:
            raise OSError(errno.EINVAL, f"{name!r} is not the name of a file here")
        safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not hold us up
        fd = os.open(name, flags | safe, 0o600, dir_fd=self._fd)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            os.close(fd)
            raise OSError(errno.EPERM, f"{name} is not a file of this user")
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
