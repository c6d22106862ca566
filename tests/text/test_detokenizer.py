from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.text.detokenizer import Detokenizer
from fucina.text.tokenizer import Tokenizer

Build = Callable[..., dict[str, Any]]


def tokenizer_of(vocabulary: Build, model: str, adds_space: bool) -> Tokenizer:
    return Tokenizer.from_metadata(vocabulary(model, add_space_prefix=adds_space))


@pytest.mark.parametrize("model", ["gpt2", "llama"])
@given(data=st.data())
def test_parts_join_to_what_decode_gives(vocabulary: Build, model: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_of(vocabulary, model, data.draw(st.booleans()))
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    special, at_start = data.draw(st.booleans()), data.draw(st.booleans())
    detokenizer = Detokenizer(tokenizer, special=special, at_start=at_start)
    parts = [detokenizer.push(token_id) for token_id in ids] + [detokenizer.flush()]
    assert "".join(parts) == tokenizer.decode(ids, special, at_start=at_start)
    visible = [i for i in ids if special or not tokenizer.is_control(i)]
    if not (at_start and tokenizer.adds_space):
        assert "".join(parts) == b"".join(map(tokenizer.token_bytes, visible)).decode(errors="replace")


@pytest.mark.parametrize("model", ["gpt2", "llama"])
@given(text=st.text(st.characters(exclude_characters="▁\ufffd", exclude_categories=("Cs",))))
def test_no_half_character_is_ever_given_out(vocabulary: Build, model: str, text: str) -> None:
    tokenizer = tokenizer_of(vocabulary, model, False)
    detokenizer = Detokenizer(tokenizer)
    shown = ""
    for token_id in tokenizer.encode(text):
        shown += detokenizer.push(token_id)
        assert text.startswith(shown)
    assert shown + detokenizer.flush() == text


def test_a_character_that_stays_incomplete_is_replaced_at_the_end(vocabulary: Build) -> None:
    for model in ("gpt2", "llama"):
        tokenizer = tokenizer_of(vocabulary, model, False)
        detokenizer = Detokenizer(tokenizer)
        *most, _ = tokenizer.encode("a😀")
        assert [detokenizer.push(token_id) for token_id in most] == ["a", "", "", ""]
        assert detokenizer.flush() == "\ufffd"
        assert detokenizer.flush() == ""


@given(at=st.integers(0, 20))
def test_a_copy_goes_on_by_itself(vocabulary: Build, at: int) -> None:
    tokenizer = tokenizer_of(vocabulary, "llama", True)
    ids = tokenizer.encode("h😀llo 日本 ü")
    first = Detokenizer(tokenizer, at_start=True)
    shown = "".join([first.push(token_id) for token_id in ids[:at]])
    second = first.copy()
    first.push(tokenizer.encode("x")[-1])
    rest = "".join([second.push(token_id) for token_id in ids[at:]]) + second.flush()
    assert shown + rest == "h😀llo 日本 ü"


def test_a_continuation_keeps_the_space_it_begins_with(vocabulary: Build) -> None:
    tokenizer = tokenizer_of(vocabulary, "llama", True)
    space_a = tokenizer.encode("a")
    assert Detokenizer(tokenizer).push(space_a[0]) == " a" or Detokenizer(tokenizer).push(space_a[0]) == " "
    assert tokenizer.decode(space_a, at_start=False) == " a"
    assert tokenizer.decode(space_a) == "a"
