"""GGUF files that lie: one small builder a lie, and the error that must come of it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fucina.core.formats import Q4_K
from fucina.errors import (
    BadHeader,
    BadTensor,
    FucinaError,
    MissingPart,
    NotGguf,
    TruncatedFile,
    UnsupportedFormat,
)
from fucina.storage.gguf import limits
from fucina.testing.gguf_writer import Typed, Value, encode_tensor, encode_text
from fucina.testing.raw_gguf import Builder, Parts, RawBytes, RawFile, key, raw_array, raw_key


@dataclass(frozen=True, slots=True)
class Lie:
    """A hostile file and the error that opening it must raise."""

    build: Builder
    error: type[FucinaError]


def _metadata(*keys: bytes, n_keys: int | None = None, data_bytes: int = 0) -> RawFile:
    return RawFile(keys=keys, n_keys=n_keys, data_bytes=data_bytes)


def _tensor(*tensors: bytes, data_bytes: int = 4096) -> RawFile:
    return RawFile(tensors=tensors, data_bytes=data_bytes)


def _vector(name: str | bytes = "t", *, shape: Sequence[int] = (32,), type_id: int = 0, offset: int = 0) -> bytes:
    return encode_tensor(name, shape, type_id, offset)


def _vocabulary(changes: Mapping[str, Value], tokens: Value = ("a", "b", "c")) -> RawFile:
    entries: dict[str, Value] = {"tokens": tokens, **changes}
    return _metadata(*(key(f"tokenizer.ggml.{name}", value) for name, value in entries.items()))


def _folder(folder: Path) -> Path:
    (folder / "hostile.gguf").mkdir()
    return folder / "hostile.gguf"


_WRONG_FRONTS: dict[str, Lie] = {
    "empty file": Lie(RawBytes(b""), TruncatedFile),
    "magic only": Lie(RawBytes(b"GGUF"), TruncatedFile),
    "half a magic": Lie(RawBytes(b"GG"), TruncatedFile),
    "folder": Lie(_folder, NotGguf),
    "other magic": Lie(RawBytes(b"lmgg" + bytes(64)), NotGguf),
    "zip archive": Lie(RawBytes(b"PK\x03\x04" + bytes(64)), NotGguf),
    "version 0": Lie(RawFile(version=0), NotGguf),
    "version 1": Lie(RawFile(version=1), NotGguf),
    "version 4": Lie(RawFile(version=4), NotGguf),
    "big endian": Lie(RawFile(version=3 << 24), NotGguf),
    "2^60 keys": Lie(RawFile(n_keys=2**60), BadHeader),
    "2^64-1 keys": Lie(RawFile(n_keys=2**64 - 1), BadHeader),
    "2^60 tensors": Lie(RawFile(n_tensors=2**60), BadHeader),
    "2^31 tensors": Lie(RawFile(n_tensors=2**31), BadHeader),
    "more tensors than bytes": Lie(RawFile(n_tensors=4_000), TruncatedFile),
    "more keys than bytes": Lie(RawFile(n_keys=500), TruncatedFile),
    "one key too many": Lie(_metadata(key("a", 1), n_keys=2, data_bytes=64), BadHeader),
}

_ALIGNMENTS: dict[str, Value] = {
    "0": 0,
    "3": 3,
    "4": 4,
    "48": 48,
    "2^17": 2**17,
    "2^31": 2**31,
    "int32": Typed("int32", 32),
    "uint64": Typed("uint64", 32),
    "float": 32.0,
    "true": True,
    "text": "32",
    "array": np.array([32], dtype=np.uint32),
}

_WRONG_VALUES: dict[str, Lie] = {
    "key of 2^63 bytes": Lie(_metadata(struct.pack("<Q", 2**63), data_bytes=64), TruncatedFile),
    "key of 2^64-1 bytes": Lie(_metadata(struct.pack("<Q", 2**64 - 1), data_bytes=64), TruncatedFile),
    "key of 70,000 bytes": Lie(_metadata(key("k" * 70_000, 1)), BadHeader),
    "key not UTF-8": Lie(_metadata(key(b"general.\xff\xfe", 1)), BadHeader),
    "key half a code point": Lie(_metadata(key(b"general.\xe2\x82", 1)), BadHeader),
    "key without name": Lie(_metadata(key("", 1)), BadHeader),
    "key twice": Lie(_metadata(key("a", 1), key("a", 1)), BadHeader),
    "key twice, other type": Lie(_metadata(key("a", 1), key("a", ["b"])), BadHeader),
    "string past the end": Lie(_metadata(raw_key("a", 8, struct.pack("<Q", 2**40) + b"b")), TruncatedFile),
    "string not UTF-8": Lie(_metadata(key("a", b"\x80")), BadHeader),
    "string of 16 MiB": Lie(_metadata(key("a", b"b" * 2**24)), BadHeader),
    "string of 1 TiB that is there": Lie(
        RawBytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + raw_key("a", 8, struct.pack("<Q", 2**40)), 2**40 + 2**12),
        BadHeader,
    ),
    "unknown value type": Lie(_metadata(raw_key("a", 13, bytes(64))), BadHeader),
    "value type 2^32-1": Lie(_metadata(raw_key("a", 2**32 - 1, bytes(64))), BadHeader),
    "bool of 2": Lie(_metadata(raw_key("a", 7, b"\x02")), BadHeader),
    "array of bools with a 7": Lie(_metadata(raw_array("a", 7, 3, b"\x00\x01\x07")), BadHeader),
    "array of 2^60 bytes": Lie(_metadata(raw_array("a", 0, 2**60)), TruncatedFile),
    "array of 2^61 doubles": Lie(_metadata(raw_array("a", 12, 2**61, bytes(64))), TruncatedFile),
    "array of 2^60 strings": Lie(_metadata(raw_array("a", 8, 2**60, bytes(64))), BadHeader),
    "array of 1000 strings, none there": Lie(_metadata(raw_array("a", 8, 1000, bytes(64))), TruncatedFile),
    "array string past the end": Lie(
        _metadata(raw_array("a", 8, 2, encode_text("b") + struct.pack("<Q", 2**62) + bytes(64))), TruncatedFile
    ),
    "array string not UTF-8": Lie(_metadata(key("a", [b"good", b"\xc3\x28"])), BadHeader),
    "array string ends in half a code point": Lie(_metadata(key("a", [b"\xe2\x82", b"\xac"])), BadHeader),
    "array of arrays": Lie(_metadata(raw_array("a", 9, 1, struct.pack("<IQ", 4, 1) + bytes(4))), BadHeader),
    "arrays 10,000 deep": Lie(_metadata(raw_array("a", 9, 1, struct.pack("<IQ", 9, 1) * 10_000)), BadHeader),
    "array of unknown type": Lie(_metadata(raw_array("a", 13, 1, bytes(64))), BadHeader),
    "more metadata than any model": Lie(
        RawBytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + raw_array("a", 0, 2**28), 2**28), BadHeader
    ),
    **{
        f"alignment {name}": Lie(_metadata(key("general.alignment", value)), BadHeader)
        for name, value in _ALIGNMENTS.items()
    },
}

_WRONG_TENSORS: dict[str, Lie] = {
    "tensor without name": Lie(_tensor(_vector("")), BadHeader),
    "tensor name of 300 bytes": Lie(_tensor(_vector("t" * 300)), BadHeader),
    "tensor name not UTF-8": Lie(_tensor(_vector(b"\xff")), BadHeader),
    "tensor name of 2^64-1 bytes": Lie(_tensor(struct.pack("<Q", 2**64 - 1) + bytes(64)), TruncatedFile),
    "tensor twice": Lie(_tensor(_vector(), _vector(offset=128)), BadHeader),
    "no dimensions": Lie(_tensor(_vector(shape=())), BadTensor),
    "five dimensions": Lie(_tensor(_vector(shape=(1, 1, 1, 1, 32))), BadTensor),
    "2^32-1 dimensions": Lie(_tensor(encode_text("t") + struct.pack("<I", 2**32 - 1) + bytes(256)), BadTensor),
    "dimension 0": Lie(_tensor(_vector(shape=(0, 32))), BadTensor),
    "dimension 2^63": Lie(_tensor(_vector(shape=(2**63,))), BadTensor),
    "dimension 2^64-1": Lie(_tensor(_vector(shape=(2**64 - 1, 32))), BadTensor),
    "product wraps to 0": Lie(_tensor(_vector(shape=(2**32, 2**32))), BadTensor),
    "product wraps to 32": Lie(_tensor(_vector(shape=(2**59 + 1, 32))), BadTensor),
    "bytes wrap": Lie(_tensor(_vector(shape=(2**61, 2))), BadTensor),
    "row of half a block": Lie(_tensor(_vector(shape=(128,), type_id=Q4_K.type_id)), BadTensor),
    "rows of half a block, whole together": Lie(_tensor(_vector(shape=(2, 128), type_id=Q4_K.type_id)), BadTensor),
    "unknown type": Lie(_tensor(_vector(type_id=999)), BadTensor),
    "type 2^32-1": Lie(_tensor(_vector(type_id=2**32 - 1)), BadTensor),
    "type without kernels": Lie(_tensor(_vector(type_id=16, shape=(256,))), UnsupportedFormat),
    "removed type": Lie(_tensor(_vector(type_id=4)), UnsupportedFormat),
    "integers": Lie(_tensor(_vector(type_id=26)), UnsupportedFormat),
    "offset not aligned": Lie(_tensor(_vector(offset=1)), BadTensor),
    "offset out of range": Lie(_tensor(_vector(offset=2**20)), BadTensor),
    "offset 2^60": Lie(_tensor(_vector(offset=2**60)), BadTensor),
    "offset 2^64-32": Lie(_tensor(_vector(offset=2**64 - 32)), BadTensor),
    "same place": Lie(_tensor(_vector("a"), _vector("b")), BadTensor),
    "overlap": Lie(_tensor(_vector("a", shape=(64,)), _vector("b", offset=128)), BadTensor),
    "overlap, out of order": Lie(_tensor(_vector("b", offset=128), _vector("a", shape=(64,))), BadTensor),
    "data cut": Lie(_tensor(_vector(shape=(64,)), data_bytes=252), TruncatedFile),
    "no data": Lie(_tensor(_vector(shape=(2**20,)), data_bytes=0), TruncatedFile),
}

_WRONG_VOCABULARIES: dict[str, Lie] = {
    "bos is the number of tokens": Lie(_vocabulary({"bos_token_id": 3}), BadHeader),
    "eos 2^32-1": Lie(_vocabulary({"eos_token_id": 2**32 - 1}), BadHeader),
    "eos -1": Lie(_vocabulary({"eos_token_id": -1}), BadHeader),
    "padding id beyond": Lie(_vocabulary({"padding_token_id": 1000}), BadHeader),
    "unknown kind of id beyond": Lie(_vocabulary({"fim_pre_token_id": 1000}), BadHeader),
    "eos float": Lie(_vocabulary({"eos_token_id": 1.0}), BadHeader),
    "eos true": Lie(_vocabulary({"eos_token_id": True}), BadHeader),
    "eos text": Lie(_vocabulary({"eos_token_id": "1"}), BadHeader),
    "one of several ids beyond": Lie(_vocabulary({"eog_token_ids": np.array([0, 3], dtype=np.uint32)}), BadHeader),
    "too few scores": Lie(_vocabulary({"scores": np.zeros(2, dtype=np.float32)}), BadHeader),
    "too many scores": Lie(_vocabulary({"scores": np.zeros(4, dtype=np.float32)}), BadHeader),
    "integer scores": Lie(_vocabulary({"scores": np.zeros(3, dtype=np.int32)}), BadHeader),
    "scores one number": Lie(_vocabulary({"scores": 1.0}), BadHeader),
    "too few token types": Lie(_vocabulary({"token_type": np.zeros(2, dtype=np.int32)}), BadHeader),
    "float token types": Lie(_vocabulary({"token_type": np.zeros(3, dtype=np.float32)}), BadHeader),
    "text token types": Lie(_vocabulary({"token_type": ["a", "b", "c"]}), BadHeader),
    "tokens numbers": Lie(_vocabulary({}, tokens=np.zeros(3, dtype=np.int32)), BadHeader),
    "tokens text": Lie(_vocabulary({}, tokens="abc"), BadHeader),
    "merges numbers": Lie(_vocabulary({"merges": np.zeros(3, dtype=np.int32)}), BadHeader),
}

_WRONG_PARTS: dict[str, Lie] = {
    "part missing": Lie(Parts({1: None}), MissingPart),
    "first part missing": Lie(Parts({0: None}, opened="m-00002-of-00003.gguf"), MissingPart),
    "opened part says another count": Lie(Parts({0: ({"split.count": 4}, ["t0"])}), BadHeader),
    "other part says another count": Lie(Parts({2: ({"split.count": 4}, ["t2"])}), BadHeader),
    "other part is whole": Lie(Parts({2: ({"split.count": 1}, ["t2"])}), BadHeader),
    "parts out of order": Lie(Parts({1: ({"split.no": 2}, ["t1"]), 2: ({"split.no": 1}, ["t2"])}), BadHeader),
    "tensor in two parts": Lie(Parts({1: ({}, ["t0"])}), BadHeader),
    "tensor count too high": Lie(Parts({0: ({"split.tensors.count": 4}, ["t0"])}), BadHeader),
    "tensor count negative": Lie(Parts({0: ({"split.tensors.count": -3}, ["t0"])}), BadHeader),
    "tensor count text": Lie(Parts({0: ({"split.tensors.count": "3"}, ["t0"])}), BadHeader),
    "count 0": Lie(Parts({0: ({"split.count": 0}, ["t0"])}), BadHeader),
    "count 65,535": Lie(Parts({0: ({"split.count": 65535}, ["t0"])}), BadHeader),
    "count text": Lie(Parts({0: ({"split.count": "../../etc/passwd"}, ["t0"])}), BadHeader),
    "count array": Lie(Parts({0: ({"split.count": np.array([3], dtype=np.uint16)}, ["t0"])}), BadHeader),
    "another model": Lie(
        Parts({0: ({"general.architecture": "llama"}, ["t0"]), 1: ({"general.architecture": "qwen3"}, ["t1"])}),
        BadHeader,
    ),
    "another model, another type": Lie(
        Parts({0: ({"a": np.array([1, 2], dtype=np.int32)}, ["t0"]), 1: ({"a": 1}, ["t1"])}), BadHeader
    ),
    "name that hides the parts": Lie(lambda folder: Parts()(folder).rename(folder / "model.gguf"), BadHeader),
}


def _late_lie(*costly: bytes) -> RawFile:
    """A file whose lie, a key that appears twice, comes after something costly."""
    return _metadata(*costly, key("twice", 1), key("twice", 1))


def _strings(*texts: bytes, n_strings: int = limits.STRINGS) -> bytes:
    """An array that repeats these strings."""
    pieces = b"".join(map(encode_text, texts))
    n_times, n_more = divmod(n_strings, len(texts))
    return raw_array("a", 8, n_strings, pieces * n_times + b"".join(map(encode_text, texts[:n_more])))


#: Files that cost as much as a file may before the lie comes out; made only when asked for, since they are large.
_COSTLY: dict[str, Lie] = {
    "costly: as many empty strings as may be": Lie(lambda folder: _late_lie(_strings(b""))(folder), BadHeader),
    "costly: as many words as may be": Lie(lambda folder: _late_lie(_strings(b"word"))(folder), BadHeader),
    "costly: as many NULs as may be": Lie(lambda folder: _late_lie(_strings(b"\0"))(folder), BadHeader),
    "costly: chains that break often": Lie(
        lambda folder: _late_lie(_strings(*[b"a"] * 255, b"\0b"))(folder), BadHeader
    ),
    "costly: many small arrays": Lie(
        lambda folder: _late_lie(
            *(key(f"k{i}", ["a"] * 256) for i in range(limits.KEYS - 2)),
        )(folder),
        BadHeader,
    ),
    "costly: many arrays of words": Lie(
        lambda folder: _late_lie(*(key(f"k{i}", ["word"] * 257) for i in range(limits.KEYS - 2)))(folder), BadHeader
    ),
    "costly: many arrays of odd strings": Lie(
        lambda folder: _late_lie(
            *(key(f"k{i}", ["\0"] * 257) for i in range(limits.KEYS - 2)),
        )(folder),
        BadHeader,
    ),
    "costly: as many numbers as may be": Lie(
        lambda folder: _late_lie(key("a", np.zeros(limits.HEADER_BYTES - 1000, dtype=np.uint8)))(folder), BadHeader
    ),
    "costly: a text that grows when decoded": Lie(
        lambda folder: _late_lie(key("a", "\U0001f600" + "a" * (limits.TEXT_BYTES - 100)))(folder), BadHeader
    ),
    "costly: long strings": Lie(
        lambda folder: _late_lie(_strings(b"a" * 2**20, "é".encode() * 2**19, n_strings=20))(folder), BadHeader
    ),
    "costly: as many tensors as may be": Lie(
        lambda folder: _tensor(
            *(_vector(f"t{i}", offset=128 * i) for i in range(limits.TENSORS - 1)),
            _vector(),
            data_bytes=128 * limits.TENSORS,
        )(folder),
        BadTensor,
    ),
}

#: Every lie by name.
LIES: dict[str, Lie] = {
    **_WRONG_FRONTS,
    **_WRONG_VALUES,
    **_WRONG_TENSORS,
    **_WRONG_VOCABULARIES,
    **_WRONG_PARTS,
    **_COSTLY,
}
