"""The tokens of a model as the engine for grammars wants them: a trie of their bytes, built once per model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol

import llguidance
import numpy as np

from fucina.decoding.grammar.key_tokens import KeyTokens
from fucina.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# So many forced texts, none of more bytes, are known with their tokens.
_MOST_KNOWN, _LONGEST_KNOWN = 2048, 512


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
    ask for them. `trie` is the engine's own object, `texts` the bytes of each token. Masks, (n_words,) uint32:
    `end_mask` holds the tokens that end an answer, `known_mask` these and all that stand for text.
    """

    def __init__(self, tokenizer: TextTokens, *, slices: Sequence[str] | None = None) -> None:
        """Build it, which holds the GIL for some 0.1 s per 50,000 tokens. Raises ConfigError without an end token.

        `slices`: sets of tokens whose masks are computed once; None takes the general ones.
        """
        if not tokenizer.eog_ids:
            expected = "a model whose vocabulary has an end token; without one no constrained answer could end"
            raise ConfigError("constraint", got="no end token", expected=expected)
        self.end_ids = tuple(sorted(tokenizer.eog_ids))
        self.vocab_size = tokenizer.vocab_size
        self.n_words = (self.vocab_size + 31) // 32
        texts = list(tokenizer.text_bytes())
        for token in self.end_ids:
            texts[token] = b""
        self.texts: Sequence[bytes] = texts
        self._textless = frozenset(token for token, text in enumerate(texts) if not text)
        is_end = np.isin(np.arange(self.vocab_size), self.end_ids)
        self.end_mask = self._mask(is_end)
        self.known_mask = self._mask(is_end | np.fromiter(map(len, texts), dtype=np.int64).astype(bool))
        self.trie = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Source(tokenizer.encode, texts, self.end_ids)),
            n_vocab=self.vocab_size,
            eos_token=list(self.end_ids),
            slices=llguidance.LLTokenizer.general_slices() if slices is None else list(slices),
        )

    @cached_property  # threads that come at the same time make the same
    def key_tokens(self) -> KeyTokens:
        """The tokens that matter to the keys of objects."""
        return KeyTokens(self.texts)

    def is_text(self, token: int) -> bool:
        """Whether a token stands for text. False for a number that is no token."""
        return 0 <= token < self.vocab_size and token not in self._textless

    def _mask(self, tokens: NDArray[np.bool_]) -> NDArray[np.uint32]:
        padded = np.zeros(32 * self.n_words, np.bool_)
        padded[: self.vocab_size] = tokens
        return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)


class _Source:
    """What llguidance reads a vocabulary from; afterwards it only calls it, to tokenize text that is forced."""

    bos_token_id = None

    def __init__(self, encode: Callable[..., list[int]], texts: list[bytes], end_ids: Sequence[int]) -> None:
        self._encode = encode
        self._known = lru_cache(_MOST_KNOWN)(self._tokens)
        self.eos_token_id = end_ids[0]
        self.special_token_ids = [i for i, text in enumerate(texts) if not text]
        # a leading byte 0xFF marks a token that no text can match
        self.tokens = [text or b"\xff<[%d]>" % i for i, text in enumerate(texts)]

    def __call__(self, text: bytes) -> Sequence[int]:
        # the keys of a schema come again with every answer, and with every item of an array
        return self._known(text) if len(text) <= _LONGEST_KNOWN else self._tokens(text)

    def _tokens(self, text: bytes) -> Sequence[int]:
        return self._encode(text.decode(), at_start=False)
