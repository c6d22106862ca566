"""Whatever happens to a conversation file, it gives the state of a commit or an error: never anything else."""

from __future__ import annotations

import errno
import os
import random
import runpy
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fucina.errors import ConversationFileError
from fucina.storage.kv.archive.conversation_file import ConversationFile, ConversationFileWarning
from fucina.storage.kv.archive.record import PAGE
from fucina.storage.kv.disk.files import Files

CHILD = runpy.run_path(str(Path(__file__).with_name("kill_archive.py")))
GEOMETRY, IDENTITY, blocks_of, is_right = (CHILD[name] for name in ("GEOMETRY", "IDENTITY", "blocks_of", "is_right"))
RECORDS = 3 * PAGE


class Quick(Files):
    """Files without waiting for the disk."""

    def sync(self, fd: int) -> None: ...


class State(NamedTuple):
    messages: list[dict[str, str]]
    ids: list[int]


def steps() -> list[tuple[str, State]]:
    """A conversation with a turn that is written in another way, one taken back, and another in its place."""
    said = [{"role": "user", "content": content} for content in ("one", "two", "three", "four")]
    first = list(range(90))
    return [
        ("commit", State(said[:1], first)),
        ("commit", State(said[:2], [*first, *range(500, 560)])),
        ("commit", State(said[:3], [*first, *range(500, 530), *range(700, 720)])),
        ("forget", State(said[:2], [*first, *range(500, 510)])),
        ("commit", State([*said[:2], said[3]], [*first, *range(500, 510), *range(900, 920)])),
    ]


def take(file: ConversationFile, step: tuple[str, State]) -> None:
    kind, (messages, ids) = step
    if kind == "commit":
        file.commit(messages, ids, blocks_of(ids[:-1]), len(ids) - 1)
    else:
        file.forget(len(messages), ids)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, bytes]:
    file = ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY, files=Quick())
    for step in steps():
        take(file, step)
    file.close()
    return file.path, file.path.read_bytes()


def check(path: Path, content: bytes) -> tuple[ConversationFile | None, int]:
    """Open these bytes as a conversation: a commit's state, and how many warnings; or None."""
    path.write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            file = ConversationFile(path, GEOMETRY, IDENTITY, files=Quick())
        except ConversationFileError:
            return None, 0
        assert all(warning.category is ConversationFileWarning for warning in caught)
        n_warnings = len(caught)
        caught.clear()
        known, states = file.ids, [State([], []), *(state for _, state in steps())]
        assert file.messages in [state.messages for state in states]
        assert any(known == state.ids[: len(known)] for state in states)
        assert is_right(file)
        state = (file.messages, file.ids)
        file.close()
        file = ConversationFile(path, GEOMETRY, IDENTITY, files=Quick())  # it is whole again
        assert not caught
        assert (file.messages, file.ids) == state
        return file, n_warnings


def test_cut_at_any_byte(made: tuple[Path, bytes]) -> None:
    path, sound = made
    before = -1
    for size in [*range(1, RECORDS, 61), *range(RECORDS, len(sound) + 1)]:
        file, n_warnings = check(path, sound[:size])
        assert (file is None) == (size < PAGE + 48)
        if file is not None:
            assert bool(n_warnings) == (size < len(sound))
            assert file.n_tokens >= before  # more bytes never give less
            before = file.n_tokens
            file.close()
    assert before == len(steps()[-1][1].ids) - 1


def test_any_bit_may_flip(made: tuple[Path, bytes]) -> None:
    path, sound = made
    rng = random.Random(7)
    for place in [
        *range(120),
        *range(PAGE - 8, PAGE + 48),
        *range(2 * PAGE, 2 * PAGE + 48),
        *range(RECORDS, len(sound)),
    ]:
        flipped = bytearray(sound)
        flipped[place] ^= 1 << rng.randrange(8)
        file, n_warnings = check(path, bytes(flipped))
        assert (file is None) == (place < PAGE)
        if file is not None:
            assert n_warnings
            file.close()


def test_what_was_not_committed_is_cut_off(made: tuple[Path, bytes]) -> None:
    path, sound = made
    file, n_warnings = check(path, sound + os.urandom(5000))
    assert file is not None
    assert n_warnings == 0
    assert path.stat().st_size == len(sound)
    take(file, steps()[0])
    file.close()


def test_a_file_that_was_just_being_made(made: tuple[Path, bytes]) -> None:
    path, _ = made
    for size in (0, 1, PAGE, RECORDS):
        file, n_warnings = check(path, bytes(size))
        assert file is not None
        assert (file.messages, n_warnings) == ([], 0)
        file.close()


class Failing(Quick):
    """Fails at the n-th call of a kind: at once, or after a part of the bytes."""

    def __init__(self, kind: str, n_calls: int, is_short: bool) -> None:
        self.kind, self.n_left, self.is_short = kind, n_calls, is_short

    def _count(self, kind: str) -> bool:
        self.n_left -= kind == self.kind
        return self.n_left < 0

    def write_some(self, fd: int, parts: Sequence[memoryview], offset: int) -> int:
        if not self._count("write"):
            return super().write_some(fd, parts, offset)
        if self.is_short and self.n_left == -1 and len(parts[0]) > 1:
            return super().write_some(fd, [parts[0][: len(parts[0]) // 2]], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self, fd: int) -> None:  # noqa: ARG002
        if self._count("sync"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def truncate(self, fd: int, size: int) -> None:
        if self._count("truncate"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(fd, size)


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize("kind", ["write", "sync", "truncate"])
def test_any_call_may_fail(tmp_path: Path, kind: str, is_short: bool) -> None:
    path, n_failures = tmp_path / "talk", 0
    for n_calls in range(100):
        path.unlink(missing_ok=True)
        states = [State([], [])]
        try:
            file = ConversationFile(path, GEOMETRY, IDENTITY, files=Failing(kind, n_calls, is_short))
        except ConversationFileError:
            n_failures += 1
            ConversationFile(path, GEOMETRY, IDENTITY).close()  # nothing was lost, so nothing is in the way
            continue
        try:
            for step in steps():
                states.append(step[1])
                take(file, step)
        except OSError:
            n_failures += 1
            file.give_up()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConversationFileWarning)  # a commit may be torn
                file = ConversationFile(path, GEOMETRY, IDENTITY, files=Quick())
            assert file.messages in [state.messages for state in states[-2:]]
            known = file.ids[: file.n_tokens]
            assert any(known == state.ids[: len(known)] for state in states[-2:])
            assert is_right(file)
            file.close()
        else:
            file.close()
            break
    assert n_failures >= 4


def test_short_writes_and_reads_go_on(tmp_path: Path) -> None:
    class Slow(Quick):
        def write_some(self, fd: int, parts: Sequence[memoryview], offset: int) -> int:
            return super().write_some(fd, [parts[0][:7]], offset)

        def read_some(self, fd: int, parts: Sequence[memoryview], offset: int) -> int:
            return super().read_some(fd, [parts[0][:5]], offset)

    opened: Callable[[], Any] = lambda: ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY, files=Slow())  # noqa: E731
    file = opened()
    for step in steps():
        take(file, step)
    file.close()
    file = opened()
    assert (file.messages, file.ids) == steps()[-1][1]
    assert is_right(file)
    file.close()


def test_a_deleted_file_takes_no_more(tmp_path: Path) -> None:
    file = ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY, files=Quick())
    file.path.unlink()
    with pytest.raises(OSError, match="deleted"):
        take(file, steps()[0])
    file.give_up()
