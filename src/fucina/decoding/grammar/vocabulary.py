"""The tokens of a model as the engine for grammars wants them: a trie of their bytes, built once per model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import llguidance
import numpy as np

from fucina.errors import ConfigError


class TextTokens(Protocol):
    """What a grammar needs of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Tokens are 0 to vocab_size - 1."""

    @property
    def eog_ids(self) -> frozenset[int]:
        """The tokens that end an answer."""

    def text_bytes(self) -> Sequence[bytes]:
        """Give the bytes of every token in a text; none where it stands for no text."""

    def encode(self, text: str, *, at_start: bool = True) -> list[int]:
        """Give the ids of a text; at_start: whether it begins one, or continues it."""


class GrammarVocabulary:
    """The trie of a model's tokens. It never changes; any number of threads may use it.

    Tokens without text (control, unknown and unused ones, and markers) are known by number only, so that no text can
    ask for them. `trie` is the engine's own object.
    """

    def __init__(self, tokenizer: TextTokens) -> None:
        """Build it, which holds the GIL for some 0.1 s per 50,000 tokens. Raises ConfigError without an end token."""
        if not tokenizer.eog_ids:
            expected = "a model whose vocabulary has an end token; without one no constrained answer could end"
            raise ConfigError("constraint", got="no end token", expected=expected)
        self.end_ids = tuple(sorted(tokenizer.eog_ids))
        self.vocab_size = tokenizer.vocab_size
        self.n_words = (self.vocab_size + 31) // 32
        self.end_mask = np.zeros(self.n_words, np.uint32)
        for token in self.end_ids:
            self.end_mask[token >> 5] |= np.uint32(1 << (token & 31))
        self.trie = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Source(tokenizer)),
            n_vocab=self.vocab_size,
            eos_token=list(self.end_ids),
            slices=llguidance.LLTokenizer.json_slices(),
        )


class _Source:
    """What llguidance reads a vocabulary from; afterwards it only calls it, to tokenize text that is forced."""

    bos_token_id = None

    def __init__(self, tokenizer: TextTokens) -> None:
        self._encode = tokenizer.encode
        self.eos_token_id = min(tokenizer.eog_ids)
        texts = tokenizer.text_bytes()
        self.special_token_ids = [i for i, text in enumerate(texts) if not text]
        # a leading byte 0xFF marks a token that no text can match
        self.tokens = [text or b"\xff<[%d]>" % i for i, text in enumerate(texts)]

    def __call__(self, text: bytes) -> list[int]:
        return self._encode(text.decode(), at_start=False)
