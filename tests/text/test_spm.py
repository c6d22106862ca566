"""The native encoder, the Python one and Google's `sentencepiece` give the same ids."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fucina.core.nativelib import Absent, open_native
from fucina.errors import UnsupportedTokenizer
from fucina.text import spm
from fucina.text.pieces import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from fucina.text.spm import PlainSpm, open_spm
from fucina.text.tokenizer import Tokenizer
from fucina.text.vocabulary import Vocabulary

needs_native = pytest.mark.skipif(isinstance(open_native(), Absent), reason="the extension is not built")

TYPES = (NORMAL, NORMAL, NORMAL, USER_DEFINED, UNUSED, CONTROL)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def make(pieces: Sequence[tuple[str, float, int]], *, bytes_too: bool = True) -> Vocabulary:
    """A vocabulary of `pieces` (text, score, type) behind an unknown token and the byte pieces."""
    rows = [("<unk>", 0.0, UNKNOWN), *((piece, 0.0, BYTE) for piece in BYTES if bytes_too), *pieces]
    return Vocabulary.from_metadata(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [text for text, _, _ in rows],
            "tokenizer.ggml.scores": np.array([score for _, score, _ in rows], dtype=np.float32),
            "tokenizer.ggml.token_type": np.array([kind for _, _, kind in rows], dtype=np.int32),
            "tokenizer.ggml.add_space_prefix": False,
        }
    )


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    """Few letters and few scores, so that pieces overlap and tie."""
    texts = draw(st.lists(st.text("ab▁é", min_size=1, max_size=5), unique=True, max_size=30))
    letters = [text for text in "ab▁é" if text not in texts and draw(st.booleans())]
    scores = st.sampled_from([-1.0, -2.0, -3.0, -4.5])
    rows = [(text, draw(scores), draw(st.sampled_from(TYPES))) for text in texts]
    return make([*rows, *((letter, -9.0, NORMAL) for letter in letters)], bytes_too=draw(st.booleans()))


@needs_native
@settings(max_examples=300)
@given(vocabulary=vocabularies(), texts=st.lists(st.text("ab é▁c\n", max_size=30), max_size=5))
def test_native_and_plain_encoders_agree(vocabulary: Vocabulary, texts: list[str]) -> None:
    native, plain = open_spm(vocabulary), PlainSpm(vocabulary)
    for text in texts:
        assert native.encode(text.encode()) == plain.encode(text.encode())


@settings(max_examples=200)
@given(vocabulary=vocabularies(), texts=st.lists(st.text("ab éc\n", max_size=30), max_size=5))
def test_sentencepiece_agrees_on_any_vocabulary(vocabulary: Vocabulary, texts: list[str]) -> None:
    assume(BYTE in vocabulary.types)  # without them the peer joins unknown letters, which GGUF's tokenizers do not
    peer = sentencepiece.SentencePieceProcessor(model_proto=model_proto(vocabulary))
    ours = open_spm(vocabulary)
    for text in texts:
        assert ours.encode(text.encode()) == peer.encode(text)


@pytest.mark.model
@pytest.mark.parametrize("adds_space", [False, True])
def test_sentencepiece_agrees_on_gemmas_vocabulary(gemma3_metadata: dict[str, Any], adds_space: bool) -> None:
    tokenizer = Tokenizer.from_metadata({**gemma3_metadata, "tokenizer.ggml.add_space_prefix": adds_space})
    peer = sentencepiece.SentencePieceProcessor(model_proto=model_proto(tokenizer.vocabulary, adds_space=adds_space))
    pieces = list(pieces_like_text(tokenizer.vocabulary))
    letters = st.characters(exclude_categories=("Cs",), exclude_characters="▁")  # one space for us, as for llama.cpp
    texts = st.lists(st.one_of(st.text(letters, max_size=8), st.sampled_from(pieces)), max_size=12).map("".join)
    n_equal = 0

    @settings(max_examples=400)
    @given(text=texts)
    def check(text: str) -> None:
        nonlocal n_equal
        assert tokenizer.encode(text) == peer.encode(text)
        n_equal += 1

    check()
    print(f"{n_equal} texts equal to sentencepiece")


def pieces_like_text(vocabulary: Vocabulary) -> Iterator[str]:
    """Pieces as they look in text, user-defined ones first; markers of that type are no text to us."""
    user_defined = set(np.flatnonzero(vocabulary.types == USER_DEFINED).tolist()) - vocabulary.marker_ids
    for token_id in [*sorted(user_defined), *range(1000, 250_000, 500)]:
        yield vocabulary.pieces.text(token_id).replace("▁", " ")


def test_without_the_extension_the_plain_encoder_serves(
    vocabulary: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    native = Tokenizer.from_metadata(vocabulary("llama"))
    monkeypatch.setattr(spm, "open_native", lambda: Absent("not built"))
    plain = Tokenizer.from_metadata(vocabulary("llama"))
    assert isinstance(open_spm(plain.vocabulary), PlainSpm)
    text = "The hello world of 日本 and é\n\twas 100 ▁ '<bos>'" * 20
    assert plain.encode(text) == native.encode(text)


@pytest.mark.model
@needs_native
def test_the_plain_encoder_equals_the_native_one_on_gemma(gemma3: Tokenizer, golden: Callable[[str], Any]) -> None:
    plain = PlainSpm(gemma3.vocabulary)
    for text in golden("tokenize-peer.json")["texts"]:
        assert plain.encode(text.encode()) == gemma3.encode(text)


def test_malformed_utf8_never_reaches_beyond_the_text() -> None:
    vocabulary = make([("a", -1.0, NORMAL)])
    for text in (b"\xff", b"a\xe2\x96", b"\x80\x80", b"\xf0\x9f\x98", b"\xc3", b"\xe2\x28\xa1"):
        expected = [vocabulary.pieces[:].index(b"a") if byte == 0x61 else byte + 1 for byte in text]
        assert PlainSpm(vocabulary).encode(text) == open_spm(vocabulary).encode(text) == expected


def test_unused_pieces_that_nest_without_end_do_not_overflow_the_stack() -> None:
    depth = 20_000
    vocabulary = make([("a" * n, float(n), UNUSED if n > 1 else NORMAL) for n in range(1, 200)])
    a = vocabulary.pieces[:].index(b"a")
    assert open_spm(vocabulary).encode(b"a" * depth) == PlainSpm(vocabulary).encode(b"a" * depth) == [a] * depth


def test_vocabularies_that_cannot_spell_are_refused() -> None:
    with pytest.raises(UnsupportedTokenizer, match="fall back"):
        open_spm(replace(make([], bytes_too=False), unknown_id=None))
    for piece in ("<0x-1>", "<0xGG>", "<0x0>", "0x41", "<0x4a>"):
        vocabulary = make([(piece, 0.0, BYTE)])
        for build in (open_spm, PlainSpm):
            with pytest.raises(UnsupportedTokenizer, match="byte piece"):
                build(vocabulary)


def model_proto(vocabulary: Vocabulary, *, adds_space: bool = False) -> bytes:
    """The vocabulary as SentencePiece's own model file: a protocol buffer, written by hand.

    Field numbers are those of sentencepiece_model.proto. GGUF files write user-defined pieces with plain spaces.
    """
    model = bytearray()
    kinds = vocabulary.types.tolist()
    if UNKNOWN not in kinds:
        assert vocabulary.unknown_id is not None
        kinds[vocabulary.unknown_id] = UNKNOWN  # the peer insists on the type
    for piece, score, kind in zip(vocabulary.pieces, vocabulary.scores.tolist(), kinds, strict=True):
        text = piece.replace(b" ", "▁".encode()) if kind == USER_DEFINED else piece
        model += field(1, field(1, text) + b"\x15" + struct.pack("<f", score) + number(3, kind))
    unknown = kinds.index(UNKNOWN)
    trainer = number(3, 2) + number(35, 1) + number(40, unknown) + b"".join(number(i, 2**64 - 1) for i in (41, 42, 43))
    model += field(2, trainer)
    model += field(3, field(1, b"identity") + number(3, int(adds_space)) + number(4, 0) + number(5, 1))
    return bytes(model)


def field(key: int, content: bytes) -> bytes:
    return varint(key << 3 | 2) + varint(len(content)) + content


def number(key: int, value: int) -> bytes:
    return varint(key << 3) + varint(value)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
