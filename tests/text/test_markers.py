from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fucina.text.markers import Markers

words = st.lists(st.text("<|a>", min_size=1, max_size=4), unique=True, max_size=8)


@given(words=words, text=st.text("<|a>b", max_size=40))
def test_cuts_like_a_regular_expression_that_tries_the_longest_first(words: list[str], text: str) -> None:
    markers = Markers({word: i for i, word in enumerate(words)})
    longest_first = sorted(words, key=len, reverse=True)
    expected: list[str | int] = []
    if not words:
        expected = [text] if text else []
    else:
        for part in re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text):
            if part in words:
                expected.append(words.index(part))
            elif part:
                expected.append(part)
    assert list(markers.split(text)) == expected


@given(words=words, text=st.text("<|a>b", min_size=1, max_size=5))
def test_knows_the_parts_of_its_words(words: list[str], text: str) -> None:
    markers = Markers({word: i for i, word in enumerate(words)})
    assert markers.starts_with(text) == any(word.startswith(text) for word in words)
    assert markers.ends_with(text) == any(word.endswith(text) for word in words)
    assert markers.contains(text) == any(text in word for word in words)
    assert markers.longest == max(map(len, words), default=0)
