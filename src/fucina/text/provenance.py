"""Who wrote which part of a prompt: the text of messages must never become control tokens.

Before a template runs, every place of the messages' strings where a marker begins, or could begin or end once the
template puts text beside it, gets a stand-in: one character of a private plane for one character of text, so that
lengths, trimming, splitting and comparing go on as before. What comes out is cut at markers first, and only then are
the stand-ins turned back; so all markers found are the template's own.

A template that looks for a marker within a message's text does not find it there. In assistant messages some must, to
cut the thinking out of earlier answers: there the user-defined markers that the template looks for stay as they are,
being the model's own words; control tokens never do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fucina.errors import TemplateError
from fucina.text.markers import Markers

_PRIVATE_PLANE = range(0x100000, 0x10FFFE)
_MAX_DEPTH = 64
#: Values that templates build markers from or compare with; of these words alone no message is made.
ROLES = frozenset(
    {"system", "developer", "user", "assistant", "model", "tool", "function", "ipython", "environment", "observation"}
)
#: Under these keys stand mappings whose keys are the caller's own words.
_NAMING_KEYS = frozenset({"arguments", "properties"})


@dataclass(frozen=True, slots=True)
class GuardedText:
    """A rendered prompt: `guarded` with stand-ins; `originals` maps each stand-in to what it stands for."""

    guarded: str
    originals: Mapping[int, str]

    def restore(self, part: str) -> str:
        """A part of `guarded` as it was written."""
        return part.translate(self.originals) if self.originals else part

    @property
    def text(self) -> str:
        """The whole prompt as it was written."""
        return self.restore(self.guarded)


class Guard:
    """Puts the stand-ins into values and remembers what they stand for. One for each prompt."""

    def __init__(self, markers: Markers, spoken: frozenset[str], everything: object) -> None:
        """`spoken`: markers that stay in assistant messages; `everything`: what the stand-ins must not occur in."""
        self._markers, self._spoken = markers, spoken
        self._everything = everything
        self._stand_ins: dict[str, str] = {}
        self._free: Iterator[str] | None = None

    @property
    def originals(self) -> Mapping[int, str]:
        """What each stand-in used so far stands for, by code point."""
        return {ord(stand_in): letter for letter, stand_in in self._stand_ins.items()}

    def message(self, message: Mapping[str, object]) -> dict[str, object]:
        """A message with stand-ins."""
        spoken = self._spoken if message.get("role") == "assistant" else frozenset()
        guarded = self._value(message, "", spoken, inner=True, depth=0)
        assert isinstance(guarded, dict)
        return guarded

    def tools(self, tools: Sequence[object]) -> object:
        """Tool descriptions with stand-ins."""
        return self._value(tools, "", frozenset(), inner=True, depth=0)

    def variable(self, value: object) -> object:
        """Another variable with stand-ins: only whole markers count, as templates compare its words."""
        return self._value(value, "", frozenset(), inner=False, depth=0)

    def _value(self, value: object, key: str, spoken: frozenset[str], *, inner: bool, depth: int) -> object:
        if depth > _MAX_DEPTH:
            raise TemplateError(f"messages are nested more than {_MAX_DEPTH} deep")
        if isinstance(value, str):
            if (key == "role" and value in ROLES) or (key == "type" and value.isidentifier()):
                return value
            return self._text(value, spoken, inner=inner)
        if isinstance(value, Mapping):
            names = inner and key in _NAMING_KEYS
            return {
                self._text(name, spoken, inner=names) if isinstance(name, str) else name: self._value(
                    item, name if isinstance(name, str) else "", spoken, inner=inner, depth=depth + 1
                )
                for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._value(item, key, spoken, inner=inner, depth=depth + 1) for item in value]
        return value

    def _text(self, text: str, spoken: frozenset[str], *, inner: bool) -> str:
        """`inner`: also guard what is a marker only together with the text that may come to stand beside it."""
        markers = self._markers
        whole = {at: length for at in markers.first_letters(text) if (length := markers.length_at(text, at))}
        places = set(whole)
        if inner:
            places |= _unfinished(text, markers) | _begun(text, markers)
        places -= {at for at, length in whole.items() if text[at : at + length] in spoken}
        if not places:
            return text
        letters = list(text)
        for at in places:
            letters[at] = self._stand_in(letters[at])
        return "".join(letters)

    def _stand_in(self, letter: str) -> str:
        if self._free is None:
            used = set().union(*_texts(self._everything, 0))
            self._free = (letter for letter in map(chr, _PRIVATE_PLANE) if letter not in used)
        if letter not in self._stand_ins:
            self._stand_ins[letter] = next(self._free)
        return self._stand_ins[letter]


def _texts(value: object, depth: int) -> Iterator[str]:
    """All strings in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and depth <= _MAX_DEPTH:
        for name, item in value.items():
            yield from _texts(name, depth + 1)
            yield from _texts(item, depth + 1)
    elif isinstance(value, list | tuple) and depth <= _MAX_DEPTH:
        for item in value:
            yield from _texts(item, depth + 1)


def _unfinished(text: str, markers: Markers) -> set[int]:
    """Where a marker begins that `text`, trimmed or not, breaks off."""
    trimmed = len(text.rstrip())
    begin = max(0, trimmed - markers.longest)
    tail = text[begin:]
    return {
        begin + at
        for at in markers.first_letters(tail)
        if markers.starts_with(text[begin + at : trimmed]) or markers.starts_with(text[begin + at :])
    }


def _begun(text: str, markers: Markers) -> set[int]:
    """The first letter, trimmed or not, of a text that begins with a marker's end or lies within one."""
    places = set()
    for at in {0, len(text) - len(text.lstrip())}:
        head = text[at : at + markers.longest]
        ends = (i + 1 for i, letter in enumerate(head) if letter in markers.last_letters)
        within = head.rstrip() if len(text.strip()) < markers.longest else ""
        if any(markers.ends_with(head[:end]) for end in ends) or (within and markers.contains(within)):
            places.add(at)
    return places
