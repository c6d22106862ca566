"""A conversation file holds what was committed, is private, and is refused where it is not ours."""

from __future__ import annotations

import os
import random
import runpy
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.core.shapes import KV_BLOCK
from fucina.errors import ConversationFileError
from fucina.storage.kv.archive.conversation_file import ConversationFile
from fucina.storage.kv.archive.record import PAGE, Text, checksum
from fucina.storage.kv.archive.runs import Cutter, run_bytes, runs_of
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry

CHILD = runpy.run_path(str(Path(__file__).with_name("kill_archive.py")))
GEOMETRY, IDENTITY, blocks_of, is_right = (CHILD[name] for name in ("GEOMETRY", "IDENTITY", "blocks_of", "is_right"))
RECORDS = 3 * PAGE
LAYERS = (LayerGeometry(2, 32), LayerGeometry(1, 64))


def told(*contents: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content} for content in contents]


def commit(file: ConversationFile, messages: list[dict[str, str]], ids: list[int], n_tokens: int | None = None) -> None:
    n_tokens = len(ids) - 1 if n_tokens is None else n_tokens
    file.commit(messages, ids, blocks_of(ids[:n_tokens]), n_tokens)


def reopened(file: ConversationFile) -> ConversationFile:
    file.close()
    return ConversationFile(file.path, GEOMETRY, IDENTITY)


def expected_run(geometry: KvGeometry, block: np.ndarray, start: int, end: int) -> bytes:
    """Cut a run as KvGeometry describes blocks, with typed arrays."""
    out, offset = b"", 0
    for layer in geometry.layers:
        d, width = layer.d_head, {"f16": 2, "f32": 4, "q8_0": 1}[geometry.format]
        shapes = {"K": [(d, KV_BLOCK, width)], "V": [(KV_BLOCK, d, width)]}
        if geometry.format == "q8_0":
            shapes["K"].append((d // 32, KV_BLOCK, 4))
            shapes["V"].append((KV_BLOCK, d // 32, 4))
        for kind in "KV":
            for _ in range(layer.kv_heads):
                for shape in shapes[kind]:
                    n_bytes = int(np.prod(shape))
                    piece = block[offset : offset + n_bytes].reshape(shape)
                    out += (piece[:, start:end] if kind == "K" else piece[start:end]).tobytes()
                    offset += n_bytes
    return out


@pytest.mark.parametrize("kv_format", ["f16", "f32", "q8_0"])
@pytest.mark.parametrize(("start", "end"), [(0, 64), (0, 1), (63, 64), (5, 41), (40, 64)])
def test_a_run_is_the_positions_of_a_block_and_goes_back_there(kv_format: str, start: int, end: int) -> None:
    geometry = KvGeometry(LAYERS, kv_format)
    rng = np.random.default_rng(start)
    block, other = rng.integers(0, 256, (2, geometry.block_bytes)).astype(np.uint8)
    cutter = Cutter(geometry)
    run = cutter.cut(block, start, end)
    assert run.tobytes() == expected_run(geometry, block, start, end)
    assert len(run) == run_bytes(geometry, end - start)
    before = other.copy()
    cutter.put(run, other, start, end)
    assert expected_run(geometry, other, start, end) == run.tobytes()
    for outside in ((0, start), (end, KV_BLOCK)):
        assert expected_run(geometry, other, *outside) == expected_run(geometry, before, *outside)


def test_runs_end_with_blocks() -> None:
    assert list(runs_of(10, 200)) == [(10, 64), (64, 128), (128, 192), (192, 200)]
    assert list(runs_of(64, 64)) == []


def test_what_is_committed_is_there_again(tmp_path: Path) -> None:
    file = ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY)
    assert (file.messages, file.ids, file.n_tokens) == ([], [], 0)
    rng = random.Random(1)
    messages, ids = told("a", "\udc80"), [rng.randrange(1 << 32) for _ in range(150)]
    for n_tokens in (100, 149, 149):
        commit(file, messages, ids, n_tokens)
        size = file.path.stat().st_size
        file = reopened(file)
        assert (file.messages, file.ids, file.n_tokens) == (messages, ids, n_tokens)
        assert is_right(file)
    commit(file, messages, ids)
    assert file.path.stat().st_size == size  # nothing was new
    file.close()


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    file = ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY)
    ids = list(range(1000))
    commit(file, told("a"), ids[:901])
    before = file.path.stat().st_size
    commit(file, told("a", "b"), ids[:911])
    n_bytes = GEOMETRY.block_bytes // KV_BLOCK + 4
    assert file.path.stat().st_size - before < 10 * n_bytes + 200
    assert before - RECORDS < 900 * n_bytes + 1000
    assert is_right(reopened(file))


def test_what_is_taken_back_is_cut_off(tmp_path: Path) -> None:
    file = ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY)
    first, size = list(range(100)), []
    for n_turns in (1, 2, 3):
        commit(file, told(*"abc"[:n_turns]), list(range(100 * n_turns)))
        size.append(file.path.stat().st_size)
    file.forget(1, first)
    assert file.path.stat().st_size < size[1]
    file = reopened(file)
    assert (file.messages, file.ids) == (told("a"), first)
    commit(file, told("a", "z"), [*first[:70], 7, 8, 9])
    assert file.path.stat().st_size < size[1]
    file = reopened(file)
    assert (file.messages, file.ids) == (told("a", "z"), [*first[:70], 7, 8, 9])
    assert is_right(file)
    file.forget(0, [])
    file = reopened(file)
    assert (file.messages, file.ids, file.path.stat().st_size) == ([], [], RECORDS)
    file.close()


def test_keys_and_values_that_memory_lost_are_kept(tmp_path: Path) -> None:
    file = ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY)
    ids = list(range(200))
    commit(file, told("a"), ids)
    commit(file, told("a", "b"), [*ids, 5], 64)
    file = reopened(file)
    assert (file.n_tokens, file.ids) == (199, [*ids, 5])
    assert is_right(file)
    file.close()


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.close()


def test_one_at_a_time(tmp_path: Path) -> None:
    file = ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY)
    with pytest.raises(ConversationFileError, match="in use") as caught:
        ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY)
    assert caught.value.path == tmp_path / "talk"
    reopened(file).close()
    file = ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY)
    del file  # forgotten without `close`
    ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY).close()


def test_names_that_cannot_be(tmp_path: Path) -> None:
    ConversationFile(tmp_path / "talk", GEOMETRY, IDENTITY).close()
    (tmp_path / "link").symlink_to(tmp_path / "talk")
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    os.mkfifo(tmp_path / "pipe")
    for name, what in {
        "link": "symbolic link",
        "dangling": "symbolic link",
        "none/talk": "no such folder",
        "talk/talk": "no folder",
        ".": "folder",
        "pipe": "not a regular file",
        "a\0b": "cannot be opened",
    }.items():
        with pytest.raises(ConversationFileError, match=what):
            ConversationFile(tmp_path / name, GEOMETRY, IDENTITY)
    assert not (tmp_path / "new").exists()


def test_files_of_others_are_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "talk"
    file = ConversationFile(path, GEOMETRY, IDENTITY)
    commit(file, told("a"), [1, 2, 3])
    file.close()
    sound = path.read_bytes()
    newer = bytearray(sound[:PAGE])
    newer[8] = 2
    newer[-8:] = checksum(bytes(newer[:-8])).to_bytes(8, "little")
    q8 = KvGeometry((LayerGeometry(1, 32),), "q8_0")
    cases = [
        (sound, GEOMETRY, bytes(32), "another model"),
        (sound, KvGeometry(GEOMETRY.layers, "f32"), IDENTITY, "'f16'"),
        (sound, KvGeometry(GEOMETRY.layers * 2), IDENTITY, "another shape"),
        (sound, KvGeometry((LayerGeometry(1, 2),) * 900), IDENTITY, "another shape"),
        (sound, q8, IDENTITY, "'f16'"),
        (bytes(newer) + sound[PAGE:], GEOMETRY, IDENTITY, "version 2"),
        (sound[:100], GEOMETRY, IDENTITY, "damaged header"),
        (sound[: PAGE + 10], GEOMETRY, IDENTITY, "no sound commit"),
        (b"GGUF" + bytes(60), GEOMETRY, IDENTITY, "not a conversation file"),
        (b"Dear diary", GEOMETRY, IDENTITY, "not a conversation file"),
        (bytes(1 << 20), GEOMETRY, IDENTITY, "not a conversation file"),
    ]
    for content, geometry, identity, what in cases:
        path.write_bytes(content)
        with pytest.raises(ConversationFileError, match=what):
            ConversationFile(path, geometry, identity)
        assert path.read_bytes() == content


@given(st.binary(max_size=300))
def test_texts_are_checked(data: bytes) -> None:
    assert Text.from_bytes(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'{"messages":[],"since":0,"at":0}',
        b'{"messages":[],"since":null,"at":0,"rest":[]}',
        b'{"messages":{},"since":0,"at":0,"rest":[]}',
        b'{"messages":[{"role":"user"}],"since":0,"at":0,"rest":[]}',
        b'{"messages":[{"role":"user","content":1}],"since":0,"at":0,"rest":[]}',
        b'{"messages":[],"since":0,"at":0,"rest":[-1]}',
        b'{"messages":[],"since":0,"at":0,"rest":[true]}',
        b'{"messages":[],"since":0,"at":0.0,"rest":[]}',
        b'{"messages":[],"since":0,"at":0,"rest":[4294967296]}',
        b"[" * 100_000,
    ],
)
def test_texts_of_the_wrong_form(data: bytes) -> None:
    assert Text.from_bytes(data) is None
