"""Thoughts apart from answers, and the switches that templates have for them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.grammar.processor import Thinking
from fucina.errors import ConfigError
from fucina.server.reasoning import ReasoningSplitter, ThinkingSwitches
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.text.template import ChatTemplate

OPEN, CLOSE = 300, 301


class Spelling(ByteTokenizer):
    """Its markers of thoughts are user-defined tokens, which stand in the text."""

    def token_bytes(self, token: int) -> bytes:
        return {OPEN: b"<think>", CLOSE: b"</think>"}.get(token) or super().token_bytes(token)


def tokens(text: str) -> list[tuple[int, str]]:
    """One token a letter; [ and ] are the markers."""
    return [({"[": OPEN, "]": CLOSE}.get(letter, 65), letter) for letter in text]


def split(text: str, thinking: Thinking | None, *, spells: bool, late: Sequence[int] = ()) -> tuple[str, str, int]:
    """Feed it; `late`: how many events each token's text is late, as a stop string may hold it back."""
    tokenizer = Spelling() if spells else ByteTokenizer()
    splitter = ReasoningSplitter(thinking, tokenizer)
    spelled = {OPEN: "<think>", CLOSE: "</think>"} if spells else {OPEN: "", CLOSE: ""}
    events = [(token, spelled.get(token, letter)) for token, letter in tokens(text)]
    pieces, held = [], ""
    for (token, said), is_late in itertools.zip_longest(events, late[: len(events)], fillvalue=0):
        held += said
        pieces.append(splitter.feed(token, "" if is_late else held))
        held = held if is_late else ""
    pieces.append(splitter.flush(held))
    assert sum(piece.is_thought for piece in pieces) == splitter.n_tokens
    return "".join(p.reasoning for p in pieces), "".join(p.answer for p in pieces), splitter.n_tokens


WRITES, OPENED = Thinking(OPEN, CLOSE), Thinking(OPEN, CLOSE, is_open=True)


@pytest.mark.parametrize("spells", [False, True])
@pytest.mark.parametrize(
    ("text", "thinking", "expected"),
    [
        ("[\na\n\nb\n]\n\nc\nd\n", WRITES, ("a\n\nb", "c\nd\n", 8)),
        ("\na\n]\n\nc", OPENED, ("a", "c", 4)),
        ("[]x", WRITES, ("", "x", 2)),
        ("[\n\n]\n\nx", WRITES, ("", "x", 4)),
        ("x]y\n", WRITES, ("", "x{}y\n", 0)),
        ("[a\n", WRITES, ("a\n", "", 3)),
        ("[a]", WRITES, ("a", "", 3)),
        ("", WRITES, ("", "", 0)),
        ("\n[a]b", None, ("", "\n<>a{}b", 0)),
    ],
)
def test_splits(text: str, thinking: Thinking | None, expected: tuple[str, str, int], spells: bool) -> None:
    reasoning, answer, n_tokens = expected
    marks = ("<think>", "</think>") if spells else ("", "")
    answer = answer.replace("<>", marks[0]).replace("{}", marks[1])
    assert split(text, thinking, spells=spells) == (reasoning, answer, n_tokens)


@given(
    st.text("ab\n", max_size=8), st.text("ab\n", max_size=8), st.booleans(), st.lists(st.integers(0, 1), max_size=20)
)
def test_text_that_comes_late_is_split_all_the_same(
    thoughts: str, answer: str, is_open: bool, late: Sequence[int]
) -> None:
    text = f"{'' if is_open else '['}{thoughts}]{answer}"
    found = split(text, OPENED if is_open else WRITES, spells=True, late=late)
    assert found[:2] == (thoughts.strip("\n"), answer.lstrip("\n"))


SWITCH = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if not enable_thinking|default(true) %}<think></think>{% endif %}"
)
LEVELS = "{{ 'Reasoning: ' + reasoning_effort|default('medium') }}{{ messages[0].content }}"


def switches(source: str | None) -> ThinkingSwitches:
    return ThinkingSwitches(ChatTemplate(source))


def test_a_switch() -> None:
    qwen = switches(SWITCH)
    assert qwen.variables() == qwen.variables(effort="medium") == {}
    assert qwen.variables(enable_thinking=False) == {"enable_thinking": False}
    assert qwen.variables(effort="none") == qwen.variables(effort="minimal") == {"enable_thinking": False}
    assert qwen.variables(effort="high", enable_thinking=True) == {"enable_thinking": True}
    assert switches(SWITCH.replace("enable_", "")).variables(enable_thinking=True) == {"thinking": True}
    with pytest.raises(ConfigError, match="reasoning_effort"):
        qwen.variables(effort="low")
    with pytest.raises(ConfigError, match="reasoning_effort"):
        qwen.variables(effort="none", enable_thinking=True)


def test_levels() -> None:
    assert switches(LEVELS).variables(effort="low") == {"reasoning_effort": "low"}
    assert switches(LEVELS).variables(effort="medium") == {"reasoning_effort": "medium"}
    for effort in ("none", "xhigh", "most"):
        with pytest.raises(ConfigError) as refused:
            switches(LEVELS).variables(effort=effort)
        assert refused.value.option == "reasoning_effort"


@pytest.mark.parametrize("source", [None, "{{ messages[0].content }}{# enable_thinking, reasoning_effort #}"])
def test_none(source: str | None) -> None:
    assert switches(source).variables(effort="medium") == {}
    for effort in ("none", "minimal", "low", "high"):
        with pytest.raises(ConfigError) as refused:
            switches(source).variables(effort=effort)
        assert refused.value.option == "reasoning_effort"
    with pytest.raises(ConfigError) as refused:
        switches(source).variables(enable_thinking=False)
    assert refused.value.option == "enable_thinking"
