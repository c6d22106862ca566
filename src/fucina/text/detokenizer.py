"""Token ids to text as it becomes certain: a character is given out once all its bytes are there."""

from __future__ import annotations

import codecs
from typing import Protocol


class TokenBytes(Protocol):
    """What a detokenizer asks of a tokenizer."""

    adds_space: bool  # whether encoding puts a space in front of a text
    whole_texts: dict[int, str]  # filled by detokenizers: what tokens say that neither begin nor end inside a character

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; for a control token those of its name."""

    def is_control(self, token_id: int) -> bool:
        """Whether a token stands for no text."""


class Detokenizer:
    """Turns ids into text one by one. The parts that `push` and `flush` give join to `decode` of all ids.

    `special`: show control tokens by name. `at_start`: the ids begin a text instead of continuing a prompt, so that
    the space which some vocabularies put in front of a text is taken away again.
    """

    def __init__(self, tokenizer: TokenBytes, *, special: bool = False, at_start: bool = False) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._drops_space = at_start and tokenizer.adds_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # names of control tokens are not text to remember
        self._whole: dict[int, str] = {} if special else tokenizer.whole_texts
        self._is_between = not self._drops_space  # characters, so that the next token's text depends on nothing else

    def push(self, token_id: int) -> str:
        """The text that is certain now; empty while a character is incomplete. Raises ConfigError for no token id."""
        if not self._is_between:
            return self._decoded(token_id)
        text = self._whole.get(token_id)
        if text is None:
            text = self._decoded(token_id)
            if self._is_between:
                self._whole[token_id] = text
        return text

    def flush(self) -> str:
        """The rest at the end: U+FFFD where a character stayed incomplete, else nothing."""
        return self._decoder.decode(b"", final=True)

    def copy(self) -> Detokenizer:
        """A detokenizer in the same state that goes its own way."""
        twin = Detokenizer(self._tokenizer, special=self._special)
        twin._drops_space, twin._is_between = self._drops_space, self._is_between
        twin._decoder.setstate(self._decoder.getstate())
        return twin

    def _decoded(self, token_id: int) -> str:
        text = self._decoder.decode(self._next_bytes(token_id))
        self._is_between = not self._drops_space and not self._decoder.getstate()[0]
        return text

    def _next_bytes(self, token_id: int) -> bytes:
        is_control = self._tokenizer.is_control(token_id)
        if is_control and not self._special:
            return b""
        piece = self._tokenizer.token_bytes(token_id)
        if self._drops_space and piece:
            self._drops_space = False
            return piece if is_control else piece.removeprefix(b" ")
        return piece
