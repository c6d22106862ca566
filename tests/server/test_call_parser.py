"""Calls in answers: however the text is cut, the same calls and the same text; what is no call passes unchanged."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.server.deltas import CallArguments, CallStart, TextDelta
from fucina.server.tools.hermes import HermesParser
from fucina.server.tools.llama import LlamaParser
from fucina.server.tools.parser import CallParser, Piece, new_call_id

NAMES = ("now", "get_weather")
NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
Parsed = tuple[str, list[tuple[str, str]]]


def hermes(names: Sequence[str] = NAMES, *, is_forced: bool = False, parallel: bool = True) -> HermesParser:
    return HermesParser(names, is_forced=is_forced, parallel=parallel)


def llama(names: Sequence[str] = NAMES, *, is_forced: bool = False, parallel: bool = True) -> LlamaParser:
    return LlamaParser(names, is_forced=is_forced, parallel=parallel)


def joined(pieces: Iterable[Piece]) -> Parsed:
    """The text, and each call's name and arguments; checks that calls begin before they go on."""
    text, calls = "", []
    for piece in pieces:
        if isinstance(piece, TextDelta):
            assert piece.text
            text += piece.text
        elif isinstance(piece, CallStart):
            assert piece.call == len(calls)
            calls.append([piece.name, ""])
        else:
            assert piece.call == len(calls) - 1
            calls[-1][1] += piece.text
    return text, [(name, arguments) for name, arguments in calls]


def parsed(parser: CallParser, chunks: Iterable[str]) -> Parsed:
    return joined([*itertools.chain.from_iterable(map(parser.feed, chunks)), *parser.flush()])


PARTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<", "<tool", "\n", " ", "\u3000", "hi", "{", "}", '"', "\\", ";", "["),
        *('{"name": "now", "arguments": {}}', '{"name": "get_weather", "arguments": {"city": "}</tool_call>\\""}}'),
        *('{"name": "now", "parameters": {"a": [1, {"b": "é"}]}}', '{"name": "rm", "arguments": {}}'),
        *('{"name": "now", "arguments": {"a": 1, "a": 2}}', '{"arguments": {"a" : 1 }, "name": "now"}', NOW),
        *('{"name": "now"}', '{"name": "now", "arguments": "{}"}', '{"name": "now", "arguments": {"a": NaN}}'),
        *("<|python_tag|>", '{"type": "function", "name": "now", "parameters": {}}', '{"x": 1}'),
    ]
)
TEXTS = st.lists(PARTS, max_size=12).map("".join)


def cuts(text: str, at: list[int]) -> list[str]:
    places = sorted({min(place, len(text)) for place in at} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


@pytest.mark.parametrize("make", [hermes, llama])
@given(text=TEXTS, at=st.lists(st.integers(0, 300), max_size=20), is_forced=st.booleans(), parallel=st.booleans())
def test_no_chunking_changes_anything(
    make: Callable[..., CallParser], text: str, at: list[int], is_forced: bool, parallel: bool
) -> None:
    whole = parsed(make(is_forced=is_forced, parallel=parallel), [text])
    assert parsed(make(is_forced=is_forced, parallel=parallel), text) == whole
    assert parsed(make(is_forced=is_forced, parallel=parallel), cuts(text, at)) == whole
    if not is_forced:
        for name, arguments in whole[1]:
            assert name in NAMES
            assert isinstance(json.loads(arguments), dict)
            assert arguments == "{}" or arguments in text


@pytest.mark.parametrize("make", [hermes, llama])
@given(text=TEXTS | st.text())
def test_text_without_calls_passes_unchanged(make: Callable[..., CallParser], text: str) -> None:
    said, calls = parsed(make(), text)
    assert calls or said == text
    assert parsed(make(()), text) == (text, [])


@pytest.mark.parametrize("is_forced", [False, True])
def test_hermes_calls_in_a_row(is_forced: bool) -> None:
    arguments = '{"city": "Rome </tool_call> {", "unit" : "C"}'
    call = f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'
    assert parsed(hermes(is_forced=is_forced), f"{NOW}\n{call}") == ("", [("now", "{}"), ("get_weather", arguments)])
    said = parsed(hermes(), f"Let me see.\n\n{call}\n{NOW}\n Well")
    assert said == ("Let me see.Well", [("get_weather", arguments), ("now", "{}")])


def test_llama_calls() -> None:
    call = '{"name": "get_weather", "parameters": {"city": "Rome"}}'
    wanted = ("get_weather", '{"city": "Rome"}')
    assert parsed(llama(), call) == ("", [wanted])
    assert parsed(llama(is_forced=True), call) == ("", [wanted])
    assert parsed(llama(), f"\n<|python_tag|>{call}; {call}\n") == ("", [wanted, wanted])
    assert parsed(llama(), f"Call {call}") == (f"Call {call}", [])
    assert parsed(llama(), f"{call} and more") == ("and more", [wanted])


def test_a_call_that_lost_its_end_is_one_where_its_object_is_whole() -> None:
    assert parsed(hermes(), NOW.removesuffix("\n</tool_call>")) == ("", [("now", "{}")])
    assert parsed(hermes(), NOW[:-3]) == ("", [("now", "{}")])
    cut = NOW.removesuffix("}\n</tool_call>")
    assert parsed(hermes(), cut) == (cut, [])
    assert parsed(hermes(is_forced=True), cut) == ("", [("now", "{}")])


def test_only_what_might_be_a_marker_is_held_back() -> None:
    parser = hermes()
    assert joined(parser.feed("a < b <tool"))[0] == "a < b"
    assert joined(parser.feed("s"))[0] == " <tools"
    parser = llama()
    assert joined(parser.feed('{"name": "now"'))[0] == ""
    assert joined(llama().feed('{"title"'))[0] == '{"title"'


def test_forced_arguments_come_as_they_grow() -> None:
    parser = hermes(is_forced=True)
    head = '<tool_call>\n{"name": "get_weather", "arguments": '
    assert parser.feed(head) == []
    start, arguments = parser.feed('{"ci')
    assert isinstance(start, CallStart) and arguments == CallArguments(0, '{"ci')
    assert parser.feed('ty": "R}') == [CallArguments(0, 'ty": "R}')]
    assert not parser.is_complete


def test_one_call_is_enough_where_calls_are_not_parallel() -> None:
    parser = hermes(parallel=False)
    assert not parser.is_complete
    assert len(parser.feed(NOW)) == 2
    assert parser.is_complete
    assert parser.feed(f"\n{NOW} more") == parser.flush() == []


def test_ids() -> None:
    ids = {new_call_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", one) for one in ids)
