"""SentencePiece's BPE over scores: the adjacent pair with the highest score merges first, the leftmost on ties.

`open_spm` gives the compiled encoder where there is one, else `PlainSpm`, the same algorithm in Python: same ids,
some thirty times slower. Source: SentencePiece's BPE model with byte fallback, as GGUF files carry it.
"""

from __future__ import annotations

import heapq
from typing import Protocol

import numpy as np

from fucina.core.nativelib import Absent, open_native
from fucina.errors import UnsupportedTokenizer
from fucina.text.pieces import BYTE, CONTROL, NORMAL, UNDEFINED, UNUSED, USER_DEFINED
from fucina.text.vocabulary import Vocabulary

#: How a piece writes a space.
SPACE_MARK = "▁"
_MARK = SPACE_MARK.encode()


class SpmEncoder(Protocol):
    """Anything that turns UTF-8 into ids by this algorithm."""

    def encode(self, text: bytes, /) -> list[int]:
        """The ids of `text`: spaces become U+2581, user-defined pieces match first, the rest falls back to bytes."""


def open_spm(vocabulary: Vocabulary) -> SpmEncoder:
    """The fastest encoder there is for `vocabulary`. Raises UnsupportedTokenizer."""
    native = open_native()
    if isinstance(native, Absent):
        return PlainSpm(vocabulary)
    pieces, unknown = vocabulary.pieces, vocabulary.unknown_id
    types = _types_for_text(vocabulary)
    try:
        encoder: SpmEncoder = native.module.SpmEncoder(
            pieces.storage, pieces.starts, pieces.ends, vocabulary.scores, types, -1 if unknown is None else unknown
        )
    except ValueError as error:
        raise UnsupportedTokenizer(f"the vocabulary cannot be used: {error}") from error
    return encoder


class PlainSpm:
    """The algorithm in Python: linear but for a heap."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        types = _types_for_text(vocabulary)
        self._types: list[int] = types.tolist()
        self._scores: list[float] = vocabulary.scores.tolist()
        self._unknown = vocabulary.unknown_id
        self._ids: dict[bytes, int] = {}
        self._bytes: dict[int, int] = {}
        self._user_defined: dict[bytes, int] = {}
        for token_id, (piece, piece_type) in enumerate(zip(vocabulary.pieces, self._types, strict=True)):
            if piece_type == BYTE:
                self._bytes[byte_of_piece(piece)] = token_id
            elif piece and piece_type in (UNDEFINED, NORMAL, USER_DEFINED, UNUSED):
                self._ids[piece] = token_id
                if piece_type == USER_DEFINED:
                    self._user_defined[piece.replace(_MARK, b" ")] = token_id
        self._prefixes = {piece[:n] for piece in self._user_defined for n in range(1, len(piece) + 1)}

    def encode(self, text: bytes, /) -> list[int]:
        """The ids of UTF-8 `text`."""
        symbols, ids = self._split(text)
        halves: dict[bytes, tuple[bytes, bytes]] = {}
        self._merge(symbols, ids, halves)
        found: list[int] = []
        for symbol, token_id in zip(symbols, ids, strict=True):
            if symbol:
                self._emit(symbol, self._ids.get(symbol) if token_id is None else token_id, halves, found)
        return found

    def _split(self, text: bytes) -> tuple[list[bytes], list[int | None]]:
        """Symbols, and the ids of those that never merge."""
        symbols: list[bytes] = []
        ids: list[int | None] = []
        at = 0
        while at < len(text):
            matched = self._longest(text, at)
            taken = matched or _character_length(text, at)
            symbol = text[at : at + taken]
            ids.append(self._user_defined[symbol] if matched else None)
            symbols.append(_MARK if symbol == b" " and not matched else symbol)
            at += taken
        return symbols, ids

    def _longest(self, text: bytes, at: int) -> int:
        """Bytes of the longest user-defined piece at `at`, 0 where there is none."""
        best, end = 0, at + 1
        while end <= len(text) and text[at:end] in self._prefixes:
            if text[at:end] in self._user_defined:
                best = end - at
            end += 1
        return best

    def _merge(self, symbols: list[bytes], ids: list[int | None], halves: dict[bytes, tuple[bytes, bytes]]) -> None:
        """Merge in place; a symbol that went into its left neighbor becomes empty."""
        n_symbols = len(symbols)
        frozen = [token_id is not None for token_id in ids]
        previous, following = list(range(-1, n_symbols - 1)), list(range(1, n_symbols + 1))
        heap: list[tuple[float, int, int, int, int]] = []

        def propose(left: int, right: int) -> None:
            if left < 0 or right >= n_symbols or frozen[left] or frozen[right]:
                return
            piece = symbols[left] + symbols[right]
            token_id = self._ids.get(piece)
            if token_id is None:
                return
            heapq.heappush(heap, (-self._scores[token_id], left, right, len(piece), token_id))
            if self._types[token_id] == UNUSED:
                halves[piece] = symbols[left], symbols[right]

        for i in range(1, n_symbols):
            propose(i - 1, i)
        while heap:
            _, left, right, length, token_id = heapq.heappop(heap)
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != length:
                continue
            symbols[left] += symbols[right]
            symbols[right] = b""
            ids[left] = token_id
            following[left] = after = following[right]
            if after < n_symbols:
                previous[after] = left
            propose(previous[left], left)
            propose(left, after)

    def _emit(
        self, symbol: bytes, token_id: int | None, halves: dict[bytes, tuple[bytes, bytes]], found: list[int]
    ) -> None:
        """Append the ids of one symbol: unused pieces go back into their halves, uncovered ones into bytes."""
        parts = [(symbol, token_id)]
        while parts:
            part, token_id = parts.pop()
            if token_id is not None and self._types[token_id] != UNUSED:
                found.append(token_id)
            elif token_id is not None and part in halves:
                parts += [(half, self._ids.get(half)) for half in reversed(halves[part])]
            elif all(byte in self._bytes for byte in part):
                found.extend(self._bytes[byte] for byte in part)
            elif self._unknown is not None:
                found.append(self._unknown)


def byte_of_piece(piece: bytes) -> int:
    """The byte that a piece of the form <0x41> stands for. Raises UnsupportedTokenizer."""
    if len(piece) == 6 and piece.startswith(b"<0x") and piece.endswith(b">"):
        digits = piece[3:5]
        if all(digit in b"0123456789ABCDEF" for digit in digits):
            return int(digits, 16)
    raise UnsupportedTokenizer(f"a byte piece must read <0x00> to <0xFF>, not {piece!r}")


def _types_for_text(vocabulary: Vocabulary) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The types, with user-defined markers shut off from text like control tokens."""
    types = vocabulary.types.copy()
    types[list(vocabulary.marker_ids)] = CONTROL
    has_bytes = np.count_nonzero(types == BYTE) == 256
    if not has_bytes and vocabulary.unknown_id is None:
        raise UnsupportedTokenizer("the vocabulary has neither all byte pieces nor an unknown token to fall back to")
    return types


def _character_length(text: bytes, at: int) -> int:
    """Bytes of the UTF-8 character at `at`, 1 where it is malformed."""
    lead = text[at]
    length = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    tail = text[at + 1 : at + length]
    return length if len(tail) == length - 1 and all(byte & 0xC0 == 0x80 for byte in tail) else 1
