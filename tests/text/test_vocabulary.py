from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fucina.errors import BadHeader, MissingKey, UnsupportedTokenizer
from fucina.text.pieces import CONTROL, NORMAL, USER_DEFINED, Pieces
from fucina.text.tokenizer import Tokenizer
from fucina.text.vocabulary import Vocabulary

Build = Callable[..., dict[str, Any]]
PREFIX = "tokenizer.ggml."


@pytest.mark.model
def test_the_real_vocabularies_read_as_their_makers_meant(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    assert (smollm2.bos_id, smollm2.eos_id, smollm2.add_bos, smollm2.vocab_size) == (1, 2, False, 49152)
    assert (gemma3.bos_id, gemma3.eos_id, gemma3.add_bos, gemma3.vocab_size) == (2, 1, True, 262144)
    assert smollm2.eog_ids == {0, 2}  # <|endoftext|>, <|im_end|>
    assert gemma3.eog_ids == {1, 106}  # <eos>, <end_of_turn>; its user-defined </s> is HTML


@pytest.mark.parametrize(("model", "adds_bos", "adds_space"), [("gpt2", False, False), ("llama", True, True)])
def test_absent_flags_take_the_defaults_of_the_kind(
    vocabulary: Build, model: str, adds_bos: bool, adds_space: bool
) -> None:
    metadata = vocabulary(model)
    for name in ("add_bos_token", "add_eos_token", "add_space_prefix", "pre"):
        metadata.pop(PREFIX + name, None)
    found = Vocabulary.from_metadata(metadata)
    assert (found.add_bos, found.add_eos, found.add_space_prefix) == (adds_bos, False, adds_space)
    assert found.pre == "default"


def test_llama_3_files_add_bos_by_default(vocabulary: Build) -> None:
    metadata = vocabulary("gpt2", pre="llama-bpe")
    del metadata[PREFIX + "add_bos_token"]
    assert Vocabulary.from_metadata(metadata).add_bos


def test_an_absent_special_id_means_none(vocabulary: Build) -> None:
    metadata = {key: value for key, value in vocabulary("gpt2").items() if not key.endswith("_token_id")}
    found = Vocabulary.from_metadata(metadata)
    assert (found.bos_id, found.eos_id, found.unknown_id, found.padding_id) == (None, None, None, None)
    assert found.eog_ids == {0, 2}  # known by their names


@pytest.mark.parametrize("value", [-1, 10**6, 2**63, True, 1.0, "1"])
@pytest.mark.parametrize("name", ["bos", "eos", "eot", "eom", "unknown", "padding"])
def test_special_ids_must_lie_in_the_vocabulary(vocabulary: Build, name: str, value: object) -> None:
    with pytest.raises(BadHeader, match=f"some.gguf: .*{name}_token_id"):
        Vocabulary.from_metadata(vocabulary("gpt2", **{f"{name}_token_id": value}), path="some.gguf")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", []),
        ("tokens", "abc"),
        ("tokens", [1, 2]),
        ("token_type", np.array([1], dtype=np.int32)),
        ("token_type", 3),
        ("scores", np.array([0.0], dtype=np.float32)),
        ("model", 3),
        ("add_bos_token", 1),
    ],
)
def test_arrays_that_do_not_fit_are_refused(vocabulary: Build, name: str, value: object) -> None:
    with pytest.raises(BadHeader, match=name):
        Vocabulary.from_metadata(vocabulary("llama", **{name: value}))


def test_types_and_scores_must_be_possible(vocabulary: Build) -> None:
    metadata = vocabulary("llama")
    n_tokens = len(metadata[PREFIX + "tokens"])
    for wrong in (7, -1, 2**31 - 1):
        with pytest.raises(BadHeader, match="type outside"):
            Vocabulary.from_metadata({**metadata, PREFIX + "token_type": np.full(n_tokens, wrong, dtype=np.int32)})
    with pytest.raises(BadHeader, match="not a number"):
        Vocabulary.from_metadata({**metadata, PREFIX + "scores": np.full(n_tokens, np.nan, dtype=np.float32)})


@pytest.mark.parametrize("name", ["model", "tokens", "scores"])
def test_what_cannot_be_done_without_is_missed_by_name(vocabulary: Build, name: str) -> None:
    metadata = vocabulary("llama")
    del metadata[PREFIX + name]
    with pytest.raises(MissingKey, match=name):
        Vocabulary.from_metadata(metadata)
    bpe = vocabulary("gpt2")
    del bpe[PREFIX + "merges"]
    with pytest.raises(MissingKey, match="merges"):
        Tokenizer.from_metadata(bpe)


def test_other_tokenizer_models_are_refused_with_those_that_run(vocabulary: Build) -> None:
    with pytest.raises(UnsupportedTokenizer, match=r"'bert'.*gpt2.*llama"):
        Vocabulary.from_metadata(vocabulary("gpt2", model="bert"))


def test_end_markers_are_known_by_name_whatever_their_type(vocabulary: Build) -> None:
    more = [("<|eot_id|>", NORMAL), ("<|eom_id|>", USER_DEFINED), ("</s>", USER_DEFINED), ("<eos>", CONTROL)]
    metadata = vocabulary("gpt2", more)
    found = Vocabulary.from_metadata(metadata)
    eot, eom, html, eos = range(len(found.pieces) - 4, len(found.pieces))
    assert found.eog_ids == {0, 2, eot, eom, eos}
    assert [found.types[i] for i in (eot, eom, html, eos)] == [CONTROL, CONTROL, USER_DEFINED, CONTROL]


def test_harmonys_end_marker_ends_a_message_only(vocabulary: Build) -> None:
    more = [("<|end|>", CONTROL), ("<|return|>", CONTROL), ("<|call|>", CONTROL)]
    found = Vocabulary.from_metadata(vocabulary("gpt2", more))
    assert [found.pieces.text(i) for i in sorted(found.eog_ids)][-2:] == ["<|return|>", "<|call|>"]
    assert "<|end|>" not in {found.pieces.text(i) for i in found.eog_ids}


def test_a_word_named_as_special_stays_a_word(vocabulary: Build) -> None:
    metadata = vocabulary("gpt2")
    comma = metadata[PREFIX + "tokens"].index(",")
    tokenizer = Tokenizer.from_metadata({**metadata, PREFIX + "bos_token_id": comma})
    assert comma in tokenizer.encode("a,b")
    assert tokenizer.decode(tokenizer.encode("a,b")) == "a,b"


def test_pieces_from_a_list() -> None:
    pieces = Pieces.of(["a", "", "日本", "<x>", "<yy>"])
    assert list(pieces) == [b"a", b"", "日本".encode(), b"<x>", b"<yy>"]
    assert list(pieces[1:3]) == [b"", "日本".encode()]
    assert pieces.to_list() == ["a", "", "日本", "<x>", "<yy>"]
    assert pieces.starting_with(b"<", longest=3) == [3]
    assert len(Pieces.of([])) == 0
