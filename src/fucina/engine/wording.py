"""What the engine needs to know of text: how tokens become text as it grows, and text and messages become tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

#: One message of a chat: {"role": "user", "content": "Hello"}.
Message = Mapping[str, object]


class TextStream(Protocol):
    """Turns one answer's tokens into text, holding back what is not certain yet (half a code point)."""

    def push(self, token: int) -> str:
        """Take the next token; give the text that is certain now, maybe none."""

    def flush(self) -> str:
        """Give what was held back; the stream has ended."""


class Codec(Protocol):
    """Text to tokens and back: what a caller sees of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Tokens are 0 to vocab_size - 1."""

    @property
    def eog_ids(self) -> frozenset[int]:
        """Tokens with which the model ends an answer."""

    def text_bytes(self) -> Sequence[bytes]:
        """Give the bytes of every token in a text; none where it stands for no text."""

    def encode(self, text: str, special: bool = False, *, at_start: bool = True) -> list[int]:
        """Give the tokens of `text`, which begins one or continues it; its markers become tokens only if `special`."""

    def decode(self, ids: Iterable[int]) -> str:
        """Give the text of tokens; control tokens say nothing."""


class Wording(Protocol):
    """The engine's view of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Tokens there are; wider logits are padding, and never chosen."""

    @property
    def eog_ids(self) -> frozenset[int]:
        """Tokens with which the model ends an answer."""

    def text_stream(self) -> TextStream:
        """Start the text of one answer."""


class Speech(Wording, Protocol):
    """All that a model needs to talk: wording, and prompts from text and from chat messages."""

    @property
    def tokenizer(self) -> Codec:
        """The tokenizer itself."""

    def prompt_ids(self, text: str) -> list[int]:
        """Give the tokens of a raw prompt, with the model's begin token where it wants one."""

    def whole_text_ids(self, text: str) -> list[int]:
        """Give those of a text that nothing follows: with the model's end token, too, where it wants one."""

    def chat_ids(
        self, messages: Sequence[Message], *, tools: Sequence[object] | None = None, **variables: object
    ) -> list[int]:
        """Give the tokens that ask for an answer to these messages. Raises TemplateError.

        `tools`: descriptions of functions, and `variables`, such as enable_thinking: for templates that know of them.
        """

    def chat_text(
        self, messages: Sequence[Message], *, tools: Sequence[object] | None = None, **variables: object
    ) -> str:
        """Give the same as text, to be looked at: what of it is marker and what is content is not told any more."""
