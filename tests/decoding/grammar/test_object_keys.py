"""Keys followed byte by byte, against a parser that sees each beginning of the text completed."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.grammar.key_tokens import KeyTokens, allows, forbid
from fucina.decoding.grammar.object_keys import JsonState, Place

KEYS = st.sampled_from(["", "a", "b", "ab", 'a"', "\\", "a\\", '\\"', "é", "\n", "{", "}, ", ": ", "日", "/"])
STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)


class Pairs(list[tuple[str, Any]]):
    """An object whose keys may come twice."""


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([1, -2.5, None, True]) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(KEYS, inner), max_size=4).map(Pairs),
    max_leaves=8,
)


def written(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{written(key)}: {written(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return json.dumps(value, ensure_ascii=False)


def repeats(beginning: str) -> bool:
    """Whether a beginning of a JSON text has a key twice when it is completed; False where it is cut within a token."""
    bare = STRING.sub("", beginning)
    closers = ""
    for bracket in bare:
        if bracket in "{[":
            closers = ("}" if bracket == "{" else "]") + closers
        elif bracket in "}]":
            closers = closers[1:]
    seen: list[bool] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen.append(len(dict(pairs)) < len(pairs))

    for middle in ("", ": 0"):
        seen.clear()
        try:
            json.loads(beginning + middle + closers, object_pairs_hook=look)
        except ValueError:
            continue
        return any(seen)
    return False


@given(VALUES)
def test_a_key_is_known_to_be_there_twice_at_its_last_quote(value: Any) -> None:
    text = written(value)
    state: JsonState | None = JsonState()
    was_repeated = False
    for n, character in enumerate(text, 1):
        was_repeated = was_repeated or repeats(text[:n])
        state = state.after(character.encode()) if state is not None else None
        assert (state is None) == was_repeated, text[:n]
    if state is not None:
        assert (state.place, state.level, state.is_escaped) == (Place.OUTSIDE, None, False)


@given(VALUES, st.data())
def test_it_does_not_matter_how_a_text_is_cut(value: Any, data: Any) -> None:
    text = written(value).encode()
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text))))})
    state: JsonState | None = JsonState()
    for start, end in pairwise(cuts):
        state = state.after(text[start:end]) if state is not None else None
        whole, bytewise = JsonState().after(text[:end]), JsonState()
        for byte in text[:end]:
            bytewise = bytewise.after(bytes([byte])) if bytewise is not None else None  # type: ignore[assignment]
        assert state == whole == bytewise


def test_states_are_values() -> None:
    state = JsonState().after(b'{"a": 1, "a')
    assert state is not None and state.keys == (b"a",) and state.key == b"a" and state.may_repeat
    longer = state.after(b'b": {"b": "x')
    assert longer is not None and longer.keys == (b"b",) and not longer.may_repeat
    assert state.after(b'"') is None and state.keys == (b"a",)
    back = longer.after(b'"}, ')
    assert back is not None and back.keys == (b"a", b"ab") and back.wants_key and back.may_repeat


TOKENS = st.lists(st.text('"\\ab:,{}[] 1', max_size=8).map(str.encode), max_size=40)


@given(VALUES, st.data(), TOKENS)
def test_forbidden_are_exactly_the_tokens_that_repeat_a_key(value: Any, data: Any, texts: list[bytes]) -> None:
    text = written(value).encode()
    state = JsonState().after(text[: data.draw(st.integers(0, len(text)))])
    if state is None:
        return
    texts = [*texts, b'"', b'a"', b'b": 1, "a"', *(key[len(state.key) :] + b'": ' for key in state.keys)]
    vocabulary = KeyTokens(texts)
    mask = np.full((len(texts) + 31) // 32, 0xFFFFFFFF, np.uint32)
    for token in data.draw(st.lists(st.integers(0, len(texts) - 1))):  # the grammar forbids these
        forbid(token, mask)
    before = [token for token in range(len(texts)) if allows(mask, token)]
    repeated = [token for token in before if state.after(texts[token]) is None]
    assert vocabulary.forbid(state, mask) == bool(repeated)
    left = [token for token in before if token not in repeated]
    assert [token for token in range(len(texts)) if allows(mask, token)] == left


@given(VALUES, st.data(), TOKENS)
def test_tokens_towards_known_keys(value: Any, data: Any, texts: list[bytes]) -> None:
    text = written(value).encode()
    state = JsonState().after(text[: data.draw(st.integers(0, len(text)))])
    if state is None:
        return
    texts = [text for text in [*texts, b"a", b"b", b"\\", b", ", b" ", b'"', b', "a'] if text]
    mask = np.full((len(texts) + 31) // 32, 0xFFFFFFFF, np.uint32)
    found = KeyTokens(texts).towards_known(state, mask)
    # between a comma and a key nothing stands but space
    possible = [
        i for i, t in enumerate(texts) if state.place is not Place.OUTSIDE or b'"' in t or b"," in t or t.isspace()
    ]
    behind = {token: state.after(texts[token]) for token in possible}
    assert sorted(found) == [token for token, after in behind.items() if after is not None and after.may_repeat]
