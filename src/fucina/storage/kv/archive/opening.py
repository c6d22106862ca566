"""Opening a conversation file: ours alone, no link, private to its owner when it is made."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from fucina.errors import ConversationFileError

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make us wait
_REASONS = {
    errno.ELOOP: "is a symbolic link; give the name of the file itself",
    errno.ENOENT: "cannot be made: there is no such folder; make it first",
    errno.ENOTDIR: "cannot be made: a part of its name is no folder; give another name",
    errno.EISDIR: "is a folder; give the name of a file in it",
    errno.EACCES: "may not be read and written by you; change its permissions, or give another file",
}


def open_locked(path: Path) -> int:
    """A descriptor of the file, made if there is none, that nobody else has locked. Raises ConversationFileError."""
    try:
        fd = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise ConversationFileError(path, _REASONS.get(error.errno or 0, f"cannot be opened ({error})")) from error
    except ValueError as error:
        raise ConversationFileError(path, f"cannot be opened ({error}); give another name") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConversationFileError(path, "is not a regular file; give another name")
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        what = "is in use by another conversation, of this process or another; close that, or give another file"
        raise ConversationFileError(path, what) from error
    except OSError as error:
        os.close(fd)
        raise ConversationFileError(path, f"cannot be locked ({error}); give a file on another disk") from error
    except ConversationFileError:
        os.close(fd)
        raise
    return fd


def sync_folder(path: Path) -> None:
    """Let the file's name survive a power cut."""
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
