from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fucina.errors import BadHeader, TruncatedFile
from fucina.storage.gguf import StringArray
from fucina.storage.gguf.cursor import Cursor
from fucina.storage.gguf.strings import StringReader


def encoded(texts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(text)) + text for text in texts)


def read(content: bytes, n_strings: int) -> StringArray:
    """Read from the middle of a buffer, with zeros before and lengths of nothing behind."""
    cursor = Cursor(Path("test.gguf"), np.frombuffer(b"\0" * 5 + content, dtype=np.uint8))
    cursor.position = 5
    strings = StringReader(cursor).read(n_strings, "the array 'a'")
    cursor.need(0, "the rest")
    assert cursor.position == 5 + len(content)
    return strings


def assert_reads_back(texts: list[bytes]) -> None:
    strings = read(encoded(texts), len(texts))
    assert len(strings) == len(texts)
    assert strings.to_bytes_list() == texts
    assert strings.to_list() == [text.decode() for text in texts] == list(strings)
    for i in (0, len(texts) // 2, len(texts) - 1) if texts else ():
        assert strings.raw(i) == texts[i]
        assert strings[i] == texts[i].decode()


#: What defeats guessing by zeros: empty strings, NULs at every place, lengths around powers of two.
ODD = [
    "",
    "\0",
    "\0" * 8,
    "a\0",
    "\0a",
    "é",
    "日",
    "😀",
    "a" * 127,
    "a" * 128,
    "é" * 128,
    "b" * 255,
    "c" * 256,
    "d" * 257,
]


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), n_strings=st.integers(0, 1500), n_odd=st.sampled_from([0, 1, 20, 900]))
@example(seed=0, n_strings=257, n_odd=257)
@example(seed=0, n_strings=256, n_odd=256)
def test_any_mixture_of_strings_reads_back(seed: int, n_strings: int, n_odd: int) -> None:
    rng = random.Random(seed)
    texts = ["".join(rng.choices("abc éĠ▁日😀", k=rng.randrange(1, 12))) for _ in range(n_strings)]
    for _ in range(n_odd if texts else 0):
        texts[rng.randrange(n_strings)] = rng.choice(ODD)
    assert_reads_back([text.encode() for text in texts])


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=30))
def test_any_text_reads_back(texts: list[str]) -> None:
    assert_reads_back([text.encode() for text in texts])


@pytest.mark.parametrize("length", [0, 1, 7, 127, 128, 247, 248, 255, 256, 65_535, 65_536, 300_000])
def test_strings_of_every_size_read_back_among_many(length: int) -> None:
    few = [b"x" * length] * (3 if length > 60_000 else 300)
    assert_reads_back([b"a"] * 300 + few + [b"b"] * 300)


def test_arrays_over_many_windows_read_back() -> None:
    rng = random.Random(1)
    assert_reads_back([rng.randbytes(rng.randrange(40)).hex().encode() for _ in range(60_000)])


def test_runs_of_empty_strings_may_cross_windows() -> None:
    # 262,144 bytes a window: 40,000 lengths of zero are 320,000
    assert_reads_back([b"word"] * 1000 + [b""] * 40_000 + [b"word"] * 1000)


@pytest.mark.parametrize("n_strings", [3, 700])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xc0\x80", b"ok\x80"])
def test_strings_that_are_not_utf8_are_named(n_strings: int, bad: bytes) -> None:
    for index in (0, 1, n_strings - 1):
        texts = [b"good"] * n_strings
        texts[index] = bad
        with pytest.raises(BadHeader, match=f"string {index} of the array 'a' is not UTF-8"):
            read(encoded(texts), n_strings)


def test_a_code_point_may_not_be_shared_by_two_strings() -> None:
    euro = "€".encode()
    for n_others in (0, 500):
        with pytest.raises(BadHeader, match="not UTF-8"):
            read(encoded([euro[:2], euro[2:]] + [b"a"] * n_others), 2 + n_others)


def test_lengths_that_look_like_text_do_not_mend_it() -> None:
    # a string of 0xA9 = 169 bytes after a half code point: together they would spell a letter
    texts = [b"a" * 20 + b"\xc3", b"b" * 0xA9] + [b"c"] * 400
    with pytest.raises(BadHeader, match=r"string 0 .* not UTF-8"):
        read(encoded(texts), len(texts))


@pytest.mark.parametrize("n_strings", [5, 600])
def test_every_cut_is_truncated(n_strings: int) -> None:
    whole = encoded([b"word"] * n_strings)
    for n_bytes in {*range(0, len(whole), 1 if n_strings < 10 else 97), len(whole) - 1}:
        with pytest.raises(TruncatedFile):
            read(whole[:n_bytes], n_strings)


def test_slices_and_comparison() -> None:
    strings = read(encoded([b"a", b"b", b"c"]), 3)
    assert isinstance(strings[1:], StringArray)
    assert list(strings[1:]) == ["b", "c"]
    assert strings[-1] == "c"
    assert strings == read(encoded([b"a", b"b", b"c"]), 3)
    assert strings != read(encoded([b"a", b"b", b"d"]), 3)
    assert strings != ["a", "b", "c"]
    assert repr(strings[:2]) == "StringArray(['a', 'b'], 2 strings)"
    with pytest.raises(IndexError):
        strings.raw(3)
