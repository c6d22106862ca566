"""A tokenizer of 256 bytes and a few markers, with a chat template: text to tokens and back without a model file."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

BOS, EOS, SYSTEM, USER, ASSISTANT = 256, 257, 258, 259, 260
_MARKERS = {"<bos>": BOS, "<eos>": EOS, "<system>": SYSTEM, "<user>": USER, "<assistant>": ASSISTANT}
_ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT, "tool": USER}
_SPLIT = re.compile("(" + "|".join(_MARKERS) + ")")


class ByteTokenizer:
    """Token i is byte i; 256 to 260 are <bos>, <eos> (which ends an answer), <system>, <user> and <assistant>.

    It is a whole `Speech`: what an Engine or a Model needs to talk.
    """

    vocab_size = 261
    eog_ids = frozenset({EOS})

    @property
    def tokenizer(self) -> ByteTokenizer:
        """Itself."""
        return self

    def encode(self, text: str, special: bool = False, *, at_start: bool = True) -> list[int]:  # noqa: ARG002
        """Give the bytes of the text, whether it begins one or not; its markers become tokens only if `special`."""
        if not special:
            return list(text.encode())
        return [
            token for part in _SPLIT.split(text) for token in ([_MARKERS[part]] if part in _MARKERS else part.encode())
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Give the text of the bytes; markers say nothing, broken UTF-8 becomes U+FFFD."""
        return b"".join(self.token_bytes(token) for token in ids).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """Give the bytes of a token; markers have none."""
        return bytes([token]) if token < BOS else b""

    def text_bytes(self) -> list[bytes]:
        """Give the bytes of every token."""
        return [self.token_bytes(token) for token in range(self.vocab_size)]

    def text_stream(self) -> ByteStream:
        """Start the text of one answer."""
        return ByteStream()

    def prompt_ids(self, text: str) -> list[int]:
        """Give <bos> and the text, whose markers are tokens."""
        return [BOS, *self.encode(text, special=True)]

    def whole_text_ids(self, text: str) -> list[int]:
        """Give <bos>, the text and <eos>."""
        return [*self.prompt_ids(text), EOS]

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[object] | None = None,
        **_: object,
    ) -> list[int]:
        """Give <bos>, tools as JSON, each message between its role's marker and <eos>, and <assistant>."""
        ids = [BOS, *(self.encode(json.dumps(tools)) if tools else ())]
        for message in messages:
            ids += [_ROLES[str(message["role"])], *self.encode(str(message["content"])), EOS]
        return [*ids, ASSISTANT]

    def chat_text(self, messages: Sequence[Mapping[str, object]], **variables: Any) -> str:
        """Give the same as text, markers by their names."""
        names = {token: name.encode() for name, token in _MARKERS.items()}
        ids = self.chat_ids(messages, **variables)
        return b"".join(names.get(token) or self.token_bytes(token) for token in ids).decode(errors="replace")


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
