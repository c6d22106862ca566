from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fucina.errors import ConfigError, UnsupportedTokenizer
from fucina.text.pieces import CONTROL, USER_DEFINED
from fucina.text.tokenizer import Tokenizer

TINY = ("gpt2", "llama")


def differences(tokenizer: Tokenizer, texts: list[str], expected: list[list[int]], *, special: bool) -> list[Any]:
    found = [(text, tokenizer.encode(text, special), ids) for text, ids in zip(texts, expected, strict=True)]
    return [case for case in found if case[1] != case[2]]


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "gemma3-270m"])
def test_ids_equal_llama_cpp_on_every_golden_case(
    real: dict[str, Tokenizer], golden: Callable[[str], Any], name: str, record_property: Callable[[str, object], None]
) -> None:
    cases = golden(f"tokenize-{name}.json")["cases"]
    texts = [case["text"] for case in cases]
    plain = differences(real[name], texts, [case["ids"] for case in cases], special=False)
    special = differences(real[name], texts, [case["ids_special"] for case in cases], special=True)
    record_property("equal", f"{2 * len(cases) - len(plain) - len(special)} of {2 * len(cases)}")
    print(f"{name}: {len(cases) - len(plain)} and {len(cases) - len(special)} of {len(cases)} cases equal")
    assert plain + special == []
    assert len(cases) == 70


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "gemma3-270m"])
def test_ids_equal_llama_cpp_over_many_scripts(
    real: dict[str, Tokenizer], golden: Callable[[str], Any], name: str
) -> None:
    peer = golden("tokenize-peer.json")
    texts = peer["texts"]
    plain = differences(real[name], texts, peer[name]["ids"], special=False)
    # the one difference is meant: `<start_of_image>` is user-defined, and only a template may write such a marker
    allowed = [text for text in texts if "<start_of_image>" in text] if name == "gemma3-270m" else []
    print(f"{name}: {len(texts) - len(plain)} of {len(texts)} texts equal")
    assert [text for text, _, _ in plain] == allowed
    assert differences(real[name], texts, peer[name]["ids_special"], special=True) == []


@pytest.mark.model
@pytest.mark.parametrize(
    "pre", ["default", "gpt-2", "llama-bpe", "qwen2", "smaug-bpe", "deepseek-r1-qwen", "starcoder"]
)
def test_every_kind_of_pretokenizer_cuts_as_llama_cpp_does(
    smollm2_metadata: dict[str, Any], golden: Callable[[str], Any], pre: str
) -> None:
    peer = golden("tokenize-peer.json")
    tokenizer = Tokenizer.from_metadata({**smollm2_metadata, "tokenizer.ggml.pre": pre})
    assert differences(tokenizer, peer["texts"], peer["pre"][pre], special=False) == []


def test_an_unknown_pretokenizer_is_refused_with_the_known_ones(vocabulary: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(UnsupportedTokenizer, match=r"gpt-9.*gpt-2.*qwen2"):
        Tokenizer.from_metadata(vocabulary("gpt2", pre="gpt-9"))


@pytest.mark.parametrize("pre", ["default", "gpt-2", "smollm", "llama-bpe", "qwen2"])
@pytest.mark.parametrize("unit", ["A", " ", "\n", "7", "你", ".", "'", " a", "\u0301"])
def test_long_runs_take_linear_time_in_every_pretokenizer(
    vocabulary: Callable[..., dict[str, Any]], pre: str, unit: str
) -> None:
    check_run(Tokenizer.from_metadata(vocabulary("gpt2", pre=pre)), unit)


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "gemma3-270m"])
@pytest.mark.parametrize("unit", ["a", " ", "\n", "7", "你", "<", "<|", "é"])
def test_long_runs_take_linear_time_in_real_vocabularies(real: dict[str, Tokenizer], name: str, unit: str) -> None:
    check_run(real[name], unit)


def check_run(tokenizer: Tokenizer, unit: str) -> None:
    text = unit * (100_000 // len(unit))
    begin = time.process_time()
    ids = tokenizer.encode(text, special=True)
    assert time.process_time() - begin < 20  # some 0.2 s; in quadratic time it is minutes
    assert text.startswith(tokenizer.decode(ids[:300]).rstrip("\ufffd")) and len(ids) > 1000


@pytest.mark.parametrize("model", TINY)
@given(data=st.data())
def test_text_survives_the_way_through_ids(
    vocabulary: Callable[..., dict[str, Any]], model: str, data: st.DataObject
) -> None:
    adds_space = data.draw(st.booleans())
    tokenizer = Tokenizer.from_metadata(vocabulary(model, add_space_prefix=adds_space, pre="llama-bpe"))
    text = data.draw(st.text().filter(lambda text: model == "gpt2" or "▁" not in text))
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.token_bytes, ids)).removeprefix(b" " * (tokenizer.adds_space and text != "")) == (
        text.encode()
    )


@pytest.mark.model
@settings(max_examples=300)
@given(text=st.text(st.characters(exclude_categories=("Cs", "Cn"), exclude_characters="▁\x04\x06\x13\x14\x16\x1d")))
def test_text_survives_the_way_through_real_vocabularies(real: dict[str, Tokenizer], text: str) -> None:
    for tokenizer in real.values():
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("model", TINY)
def test_markers_of_both_types_stay_text_unless_asked_for(
    vocabulary: Callable[..., dict[str, Any]], model: str
) -> None:
    plain = Tokenizer.from_metadata(vocabulary(model))
    types = {"<|control|>": CONTROL, "<|user_defined|>": USER_DEFINED, "<tool>": USER_DEFINED, "<b>": USER_DEFINED}
    metadata = {**vocabulary(model, [*types.items()]), "tokenizer.chat_template": "{{ '<tool>' }}"}
    tokenizer = Tokenizer.from_metadata(metadata)
    control, user_defined, tool, bold = range(plain.vocab_size, plain.vocab_size + 4)
    for marker, token_id in (("<|control|>", control), ("<|user_defined|>", user_defined), ("<tool>", tool)):
        assert tokenizer.encode(f"a{marker}b") == plain.encode(f"a{marker}b")
        assert tokenizer.encode(f"a{marker}b", special=True) == [*plain.encode("a"), token_id, *plain.encode("b")]
    # a user-defined piece that is no marker is a word of the vocabulary like any other
    assert tokenizer.encode("a<b>b") == [*plain.encode("a"), bold, *plain.encode("b")]


def test_runs_of_user_defined_pieces_take_the_longest(vocabulary: Callable[..., dict[str, Any]]) -> None:
    for model in TINY:
        more = [("  ", USER_DEFINED), ("   ", USER_DEFINED), ("\n\n", USER_DEFINED)]
        tokenizer = Tokenizer.from_metadata(vocabulary(model, more))
        first = tokenizer.vocab_size - 3
        assert tokenizer.encode("     \n\n\n\n") == [first + 1, first, first + 2, first + 2]


def test_the_space_in_front_stands_at_the_true_start_only(vocabulary: Callable[..., dict[str, Any]]) -> None:
    tokenizer = Tokenizer.from_metadata(vocabulary("llama", add_space_prefix=True))
    bare = Tokenizer.from_metadata(vocabulary("llama", add_space_prefix=False))
    bos = tokenizer.bos_id
    assert tokenizer.encode("G") == bare.encode(" G")
    assert tokenizer.encode("<bos>G", special=True) == [bos, *bare.encode("G")]
    assert tokenizer.prompt_ids("G") == [bos, *bare.encode(" G")]
    assert tokenizer.encode("") == []
    assert tokenizer.decode(tokenizer.prompt_ids("G")) == "G"
    assert tokenizer.decode(bare.encode(" G"), at_start=False) == " G"
    assert tokenizer.decode([bos, *bare.encode(" G")], special=True) == "<bos> G"


def test_bos_comes_from_the_file_alone(vocabulary: Callable[..., dict[str, Any]]) -> None:
    metadata = vocabulary("gpt2", add_bos_token=True)
    assert Tokenizer.from_metadata(metadata).prompt_ids("a")[0] == metadata["tokenizer.ggml.bos_token_id"]
    del metadata["tokenizer.ggml.bos_token_id"]
    without = Tokenizer.from_metadata(metadata)
    assert (without.bos_id, without.add_bos) == (None, False)
    assert without.prompt_ids("a") == without.encode("a", add_bos=True) == without.encode("a")


def test_a_prompt_that_begins_with_bos_gets_no_second_one(vocabulary: Callable[..., dict[str, Any]]) -> None:
    tokenizer = Tokenizer.from_metadata(vocabulary("llama"))
    assert tokenizer.prompt_ids("<bos>a") == tokenizer.prompt_ids("a") == [2, *tokenizer.encode("a")]


def test_a_whole_text_ends_with_eos_where_the_file_asks_for_it(vocabulary: Callable[..., dict[str, Any]]) -> None:
    asking = Tokenizer.from_metadata(vocabulary("llama", add_eos_token=True))
    assert asking.whole_text_ids("a") == [2, *asking.encode("a"), 1]
    assert asking.whole_text_ids("a<eos>") == asking.whole_text_ids("a")  # never twice
    assert asking.prompt_ids("a") == [2, *asking.encode("a")]  # what is to be continued has no end
    silent = Tokenizer.from_metadata(vocabulary("llama", add_eos_token=False))
    assert silent.whole_text_ids("a") == silent.prompt_ids("a")


def test_bytes_that_the_vocabulary_lacks_keep_their_neighbors_apart(vocabulary: Callable[..., dict[str, Any]]) -> None:
    metadata = vocabulary("gpt2")
    tokens = metadata["tokenizer.ggml.tokens"]
    tokens[tokens.index("Ć")] = "<nothing>"  # the letter of byte 6
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("h\x06e") == [*tokenizer.encode("h"), *tokenizer.encode("e")] != tokenizer.encode("he")


def test_what_is_no_text_or_no_id_is_refused_by_name(vocabulary: Callable[..., dict[str, Any]]) -> None:
    for model in TINY:
        tokenizer = Tokenizer.from_metadata(vocabulary(model))
        with pytest.raises(ConfigError, match="lone surrogate U\\+D800 at character 1"):
            tokenizer.encode("a\ud800")
        for wrong in (-1, tokenizer.vocab_size):
            with pytest.raises(ConfigError, match="token id"):
                tokenizer.decode([wrong])


def test_control_tokens_are_shown_only_when_asked_for(vocabulary: Callable[..., dict[str, Any]]) -> None:
    for model, marker in (("gpt2", "<|im_end|>"), ("llama", "<end_of_turn>")):
        tokenizer = Tokenizer.from_metadata(vocabulary(model))
        ids = tokenizer.encode(f"hi{marker} there", special=True)
        assert tokenizer.decode(ids) == "hi there"
        assert tokenizer.decode(ids, special=True) == f"hi{marker} there"


def test_broken_merges_are_refused(vocabulary: Callable[..., dict[str, Any]]) -> None:
    for merges in (["a"], ["a b c"], ["zz qq"], [" a"]):
        with pytest.raises(UnsupportedTokenizer, match="merge"):
            Tokenizer.from_metadata(vocabulary("gpt2", merges=merges))
