"""Vocabularies to try grammars on, and walks through a grammar that choose tokens by chance and come to an end."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.decoding.grammar.compiler import Compiler
from fucina.decoding.grammar.contract import Matcher
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.storage.gguf import open_gguf
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.tiny_vocabulary import byte_level_vocabulary, sentencepiece_vocabulary
from fucina.text.tokenizer import Tokenizer


class Grammars:
    """One vocabulary with what a test needs of it."""

    def __init__(self, tokenizer: Tokenizer | ByteTokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = GrammarVocabulary(tokenizer)
        self.compiler = Compiler(self.vocabulary)
        self.texts = tokenizer.text_bytes()
        self._rank = np.array([_rank(text) for text in self.texts])

    def allowed(self, matcher: Matcher) -> NDArray[np.int64]:
        """The ids that the mask of the next token allows."""
        mask = np.zeros((1, matcher.n_words), np.uint32)
        assert matcher.masks((), mask) == 1
        return ids_of(mask[0])

    def walk(
        self,
        matcher: Matcher,
        rng: np.random.Generator,
        *,
        n_free: int = 60,
        n_most: int = 4000,
        text: bytes = b"",
    ) -> tuple[list[int], bytes]:
        """Consume tokens up to an end, some by chance, then those that lead to it soonest; give them and their text.

        `text`: what the matcher has behind it.
        """
        tokens: list[int] = []
        while len(tokens) < n_most:
            ids = self.allowed(matcher)
            assert len(ids), "nothing may follow"
            ends = ids[np.isin(ids, self.vocabulary.end_ids)]
            assert bool(len(ends)) == matcher.is_accepting
            if len(ends) and (len(ends) == len(ids) or len(tokens) >= n_free or rng.random() < 0.2):
                matcher.consume(int(ends[0]))
                assert matcher.is_complete
                return tokens, text
            tokens.append(self.choose(ids, text, rng, freely=len(tokens) < n_free and rng.random() < 0.8))
            matcher.consume(tokens[-1])
            text += self.texts[tokens[-1]]
        raise AssertionError(f"no end after {n_most} tokens: ...{text[-200:]!r}")

    def choose(self, ids: NDArray[np.int64], text: bytes, rng: np.random.Generator, *, freely: bool) -> int:
        """Any of these tokens but an end, or one that brings JSON nearer to its end."""
        ids = ids[self._rank[ids] < _NO_TEXT]
        if not freely:
            ranks = self._rank[ids]
            if _in_string(text):
                ranks = np.where(ranks == _QUOTE, -1, _NO_TEXT)
            ids = ids[ranks == ranks.min()]
        return int(rng.choice(ids))


def ids_of(mask: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


_SOONEST = (b"}", b"]", b'"', b",", b"n", b"0", b"1")
_QUOTE = _SOONEST.index(b'"')
_NO_TEXT = 1 << 20
_STRING = re.compile(rb'"(?:\\.|[^"\\])*"', re.DOTALL)


def _rank(text: bytes) -> int:
    """How soon a text ends JSON outside of strings: brackets close first."""
    return _SOONEST.index(text) if text in _SOONEST else 10 + len(text) if text else _NO_TEXT


def _in_string(text: bytes) -> bool:
    return text.startswith((b'"', b"{", b"[")) and b'"' in _STRING.sub(b"", text)


@pytest.fixture(scope="session")
def byte_grammars() -> Grammars:
    return Grammars(ByteTokenizer())


@pytest.fixture(scope="session", params=["bytes", "byte-level", "sentencepiece"])
def grammars(request: pytest.FixtureRequest) -> Grammars:
    return Grammars(_SMALL[request.param]())


@pytest.fixture(scope="session", params=["smollm2_path", "gemma3_path"])
def model_grammars(request: pytest.FixtureRequest) -> Grammars:
    path: Path = request.getfixturevalue(request.param)
    return Grammars(Tokenizer.from_metadata(open_gguf(path).metadata))


_SMALL: dict[str, Callable[[], Tokenizer | ByteTokenizer]] = {
    "bytes": ByteTokenizer,
    "byte-level": lambda: Tokenizer.from_metadata(byte_level_vocabulary("smollm")),
    "sentencepiece": lambda: Tokenizer.from_metadata(sentencepiece_vocabulary()),
}
