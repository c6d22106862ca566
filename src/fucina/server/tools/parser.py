"""Calls read out of an answer while it grows.

What is no well-formed call of a known tool stays text. A call is held back until it is whole, unless a grammar makes
sure that it will be: then its arguments are given as they come.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from enum import Enum

from fucina.server.deltas import CallArguments, CallStart, TextDelta
from fucina.server.tools.json_objects import SPACE, ObjectScan, members

Piece = TextDelta | CallStart | CallArguments

#: What stands before the arguments of a call, whose object begins right behind it.
_HEAD = re.compile(r'\{\s*"name"\s*:\s*"([a-zA-Z0-9_-]{1,64})"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


def new_call_id() -> str:
    """Give a new id for a call: call_ and 24 hexadecimal digits."""
    return f"call_{secrets.token_hex(12)}"


class _State(Enum):
    """Where the text stands: in text, in what may be a call, in arguments, between them and the call's end, behind a
    call, or in text that holds no call any more."""

    TEXT, CALL, ARGUMENTS, TAIL, AFTER, PLAIN = range(6)


class CallParser(ABC):
    """Reads one answer. How it is cut into pieces of text changes nothing in what is given, when that is joined.

    White space before a call and behind one is no text.
    """

    #: What ends a call.
    closing: str

    def __init__(
        self,
        names: Collection[str],
        *,
        is_forced: bool = False,
        parallel: bool = True,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        """`names`: the tools that may be called. `is_forced`: a grammar makes the answer a call, so arguments need not
        wait for the end of theirs."""
        self._names, self._is_forced, self._parallel, self._new_id = frozenset(names), is_forced, parallel, new_id
        self._state = _State.TEXT
        self._buffer = ""
        self._body = 0  # where in the buffer a call's object begins or may begin
        self._scan, self._n_scanned = ObjectScan(), 0
        self._object_end: int | None = None
        self._final = False
        self._pieces: list[Piece] = []
        #: Calls begun so far.
        self.n_calls = 0

    @property
    def is_complete(self) -> bool:
        """Whether the one call that is wanted is there: the answer may be cut here, and more of it gives nothing."""
        return not self._parallel and self.n_calls > 0 and self._state in (_State.AFTER, _State.TEXT, _State.PLAIN)

    def feed(self, text: str) -> list[Piece]:
        """Take more of the answer; give what is certain now."""
        self._buffer += text
        return self._given()

    def flush(self) -> list[Piece]:
        """Give what was held back: the answer has ended."""
        self._final = True
        return self._given()

    def _given(self) -> list[Piece]:
        while self._buffer and not self.is_complete and self._advance():
            pass
        pieces, self._pieces = self._pieces, []
        return pieces

    def _advance(self) -> bool:
        """Do one step; tell whether there may be another without more text."""
        if self._state is _State.TEXT:
            return self._seek()
        if self._state is _State.CALL:
            return self._in_call()
        if self._state is _State.ARGUMENTS:
            return self._in_arguments()
        if self._state is _State.TAIL:
            return self._in_tail()
        if self._state is _State.AFTER:
            return self._behind_call()
        self._give_text(len(self._buffer))
        return False

    @abstractmethod
    def _seek(self) -> bool:
        """Look for the next call in text: `_enter` it, or give the text that is certainly none."""

    @abstractmethod
    def _behind_call(self) -> bool:
        """Go on behind a call."""

    @abstractmethod
    def _reject(self) -> bool:
        """What the buffer begins with is no call: give it as text."""

    def _may_begin(self, body: str) -> bool:
        """Whether a call's object may begin like this."""
        return body.startswith("{")

    def _enter(self, body: int) -> bool:
        self._state, self._body = _State.CALL, body
        self._scan, self._n_scanned, self._object_end = ObjectScan(), body, None
        return True

    def _to_text(self) -> bool:
        self._state = _State.TEXT
        return True

    def _to_plain(self) -> bool:
        self._state = _State.PLAIN
        return True

    def _give_text(self, n: int) -> None:
        if n:
            self._pieces.append(TextDelta(self._buffer[:n]))
            self._buffer = self._buffer[n:]

    def _wait(self) -> bool:
        """More text would decide; where none comes it was no call."""
        return self._reject() if self._final else False

    def _in_call(self) -> bool:
        if self._n_scanned == self._body:
            self._body = self._n_scanned = len(self._buffer) - len(self._buffer[self._body :].lstrip(SPACE))
            if self._body == len(self._buffer):
                return self._wait()
        if self._object_end is None:
            if not self._may_begin(self._buffer[self._body : self._body + 64]):
                return self._reject()
            if self._is_forced and (head := _HEAD.match(self._buffer, self._body)) and head[1] in self._names:
                return self._begin_arguments(head[1], head.end())
            end = self._scan.end(self._buffer[self._n_scanned :])
            if end is None:
                self._n_scanned = len(self._buffer)
                return self._wait()
            self._object_end = self._n_scanned + end
        rest = self._buffer[self._object_end :].lstrip(SPACE)
        if rest.startswith(self.closing):
            return self._end_call(len(self._buffer) - len(rest) + len(self.closing))
        if self.closing.startswith(rest):  # cut off, if no more comes, but the call itself is whole
            return self._end_call(len(self._buffer)) if self._final else False
        return self._reject()

    def _end_call(self, end: int) -> bool:
        """The buffer holds a whole object up to `_object_end`, and its closing up to `end`."""
        call = _read_call(self._buffer[self._body : self._object_end], self._names)
        if call is None:
            return self._reject()
        name, arguments = call
        self._pieces += [CallStart(self.n_calls, self._new_id(), name), CallArguments(self.n_calls, arguments)]
        self.n_calls += 1
        self._buffer, self._state = self._buffer[end:], _State.AFTER
        return True

    def _begin_arguments(self, name: str, at: int) -> bool:
        self._pieces.append(CallStart(self.n_calls, self._new_id(), name))
        self.n_calls += 1
        self._buffer, self._state, self._scan = self._buffer[at:], _State.ARGUMENTS, ObjectScan()
        return True

    def _in_arguments(self) -> bool:
        end = self._scan.end(self._buffer)
        text = self._buffer[:end]
        self._pieces.append(CallArguments(self.n_calls - 1, text))
        self._buffer = self._buffer[len(text) :]
        if end is not None:
            self._state = _State.TAIL
        return end is not None

    def _in_tail(self) -> bool:
        at = 0
        for letter in "}" + self.closing:
            at = len(self._buffer) - len(self._buffer[at:].lstrip(SPACE))
            if at == len(self._buffer):  # where the answer ends here the arguments are whole all the same
                self._buffer = "" if self._final else self._buffer
                return False
            if self._buffer[at] != letter:
                self._state = _State.AFTER
                return True
            at += 1
        self._buffer, self._state = self._buffer[at:], _State.AFTER
        return True


def _read_call(text: str, names: Collection[str]) -> tuple[str, str] | None:
    """The name and the arguments' text of a call; None where it is no call of a known tool."""
    found = members(text)
    if found is None or set(found) - {"name", "arguments", "parameters", "type"}:
        return None
    name = found["name"].value if "name" in found else None
    if not isinstance(name, str) or name not in names or ("type" in found and found["type"].value != "function"):
        return None
    arguments = [found[key] for key in ("arguments", "parameters") if key in found]
    if len(arguments) > 1 or not all(isinstance(member.value, dict) for member in arguments):
        return None
    return name, arguments[0].text if arguments else "{}"
