"""The table of keywords in docs/reference/constraints.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from fucina.decoding.grammar.formats import FORMATS
from fucina.decoding.grammar.keywords import ANNOTATIONS, HONOURED, REFUSED

PAGE = (Path(__file__).parents[3] / "docs/reference/constraints.md").read_text()


def rows(verdict: str) -> set[str]:
    found = re.findall(rf"^\| (.+?) \| {verdict} \|", PAGE, re.MULTILINE)
    return {name for row in found for name in re.findall(r"`([^`]+)`", row)}


def test_honoured_keywords() -> None:
    assert rows("honoured") == set(HONOURED)


def test_annotations() -> None:
    assert rows("taken out") - {"x-"} == ANNOTATIONS


def test_refused_keywords() -> None:
    assert rows("refused") == set(REFUSED)


def test_formats() -> None:
    listed = PAGE.partition("### Formats")[2].partition("; others")[0]
    assert re.findall(r"`([^`]+)`", listed) == list(FORMATS)
