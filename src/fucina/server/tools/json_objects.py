"""JSON objects in text that is still growing: where one ends, and what its members say, as it was written."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

#: The white space of JSON, and of what stands around calls.
SPACE = " \t\r\n"

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')


class ObjectScan:
    """Finds where an object or array ends. Fed its text in pieces, from the opening bracket on."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = False

    def end(self, text: str) -> int | None:
        """Go on by a piece; give where in it the text behind the last bracket begins, or None if that is to come."""
        at = 0
        if self._escaped and text:
            at, self._escaped = 1, False
        while (found := (_INSIDE if self._in_string else _OUTSIDE).search(text, at)) is not None:
            at, letter = found.end(), found[0]
            if letter == '"':
                self._in_string = not self._in_string
            elif letter == "\\":
                self._escaped = at == len(text)
                at += 1
            elif letter in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    return at
        return None


class Member(NamedTuple):
    """The value of a name, and how it was written."""

    value: Any
    text: str


def members(text: str) -> dict[str, Member] | None:
    """Read one object strictly; None for what is none, or has a name twice anywhere, or a number that JSON has not."""
    found: dict[str, Member] = {}
    at = _skip(text, 1)
    try:
        while text[at] != "}":
            name, at = _DECODER.raw_decode(text, at)
            at = _skip(text, at)
            if not isinstance(name, str) or name in found or text[at] != ":":
                return None
            start = _skip(text, at + 1)
            value, at = _DECODER.raw_decode(text, start)
            found[name] = Member(value, text[start:at])
            at = _skip(text, at)
            if text[at] == ",":
                at = _skip(text, at + 1)
                if text[at] == "}":
                    return None
            elif text[at] != "}":
                return None
    except (ValueError, IndexError, RecursionError):
        return None
    return found if at + 1 == len(text) else None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice")
    return found


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refused)


def parsed_object(text: str) -> dict[str, Any] | None:
    """Read text that is one object, strictly; None for anything else."""
    trimmed = text.strip(SPACE)
    found = members(trimmed) if trimmed.startswith("{") else None
    return None if found is None else {name: member.value for name, member in found.items()}
