"""Which tokens a grammar knows, and how text that is forced becomes tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.errors import ConfigError
from fucina.testing.byte_tokenizer import EOS, ByteTokenizer
from fucina.testing.tiny_vocabulary import sentencepiece_vocabulary
from fucina.text.tokenizer import Tokenizer


class Endless(ByteTokenizer):
    eog_ids = frozenset()


def test_a_vocabulary_without_an_end_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no end token"):
        GrammarVocabulary(Endless())


def test_masks_of_the_vocabulary() -> None:
    vocabulary = GrammarVocabulary(ByteTokenizer())
    assert _ids(vocabulary.end_mask) == [EOS]
    assert _ids(vocabulary.known_mask) == [*range(256), EOS]
    assert [vocabulary.is_text(token) for token in (-1, 0, 255, 256, EOS, 261, 10**9)] == [False, True, True] + [
        False
    ] * 4


def test_every_token_without_text_is_unknown(grammars: Any) -> None:
    texts, vocabulary = grammars.texts, grammars.vocabulary
    known = [token for token, text in enumerate(texts) if text or token in vocabulary.end_ids]
    assert _ids(vocabulary.known_mask) == known


def test_text_bytes_are_those_of_each_token(grammars: Any) -> None:
    tokenizer = grammars.tokenizer
    for token, text in enumerate(tokenizer.text_bytes()):
        assert text in (b"", tokenizer.token_bytes(token))


@pytest.mark.model
def test_text_bytes_of_real_vocabularies(model_grammars: Any) -> None:
    test_text_bytes_are_those_of_each_token(model_grammars)
    test_every_token_without_text_is_unknown(model_grammars)


def test_forced_text_is_cut_as_the_tokenizer_does(grammars: Any) -> None:
    text = '{"the hello world": null'
    schema = {"type": "object", "properties": {"the hello world": {"type": "null"}}, "required": ["the hello world"]}
    matcher = grammars.compiler.matcher(Constraint.json_schema(schema))
    forced = list(matcher.forced_tokens())
    assert len(forced) > 1
    assert grammars.tokenizer.encode(text, at_start=False)[: len(forced)] == forced


def test_forced_text_has_no_space_of_its_own() -> None:
    """Where a vocabulary puts a space in front of every text, what continues one must go without."""
    tokenizer = Tokenizer.from_metadata(sentencepiece_vocabulary() | {"tokenizer.ggml.add_space_prefix": True})
    assert tokenizer.encode("the") != tokenizer.encode("the", at_start=False)
    assert tokenizer.decode(tokenizer.encode("the", at_start=False), at_start=False) == "the"
    vocabulary = GrammarVocabulary(tokenizer)
    assert vocabulary.trie.tokenize_str("the") == tokenizer.encode("the", at_start=False)


def _ids(mask: np.ndarray[Any, np.dtype[np.uint32]]) -> list[int]:
    found: list[int] = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
    return found
