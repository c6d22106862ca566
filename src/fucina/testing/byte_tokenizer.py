"""A tokenizer of 256 bytes and a few markers: text to tokens without a model file."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

BOS, EOS, USER, ASSISTANT = 256, 257, 258, 259


class ByteTokenizer:
    """Token i is byte i; 256 to 259 are <bos>, <eos> (which ends an answer), <user> and <assistant>."""

    vocab_size = 260
    eog_ids = frozenset({EOS})

    def encode(self, text: str) -> list[int]:
        """Give the bytes of the text; markers in it stay text."""
        return list(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        """Give the text of the bytes; markers say nothing, broken UTF-8 becomes U+FFFD."""
        return bytes(token for token in ids if token < BOS).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """Give the bytes of a token; markers have none."""
        return bytes([token]) if token < BOS else b""

    def text_stream(self) -> ByteStream:
        """Start the text of one answer."""
        return ByteStream()


class ByteStream:
    """Bytes to text as it grows; never half a code point."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Take the next token; give the text that is certain now."""
        return self._decoder.decode(bytes([token])) if token < BOS else ""

    def flush(self) -> str:
        """Give what was held back; the stream has ended."""
        return self._decoder.decode(b"", final=True)
