"""The items of a response of OpenAI's while they grow: text in parts, and calls."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

#: An event without its numbers.
Event = dict[str, Any]


class GrowingItem(Protocol):
    """An item on its way."""

    def begin(self) -> list[Event]:
        """Tell that it is there."""

    def end(self, status: str) -> list[Event]:
        """Tell all of it."""

    def whole(self, status: str) -> dict[str, Any]:
        """The item itself."""


@dataclass(frozen=True, slots=True)
class TextKind:
    """What an item of text is called; its one part stands in the list `place`."""

    item: dict[str, Any]  # what the item has besides its text
    prefix: str
    place: str
    part: str
    part_event: str
    text_event: str
    has_logprobs: bool = False

    @property
    def index(self) -> str:
        """The name of the part's number."""
        return f"{self.place}_index"


_THOUGHT = {"type": "reasoning", "summary": [], "content": []}
MESSAGE = TextKind(
    {"type": "message", "role": "assistant"},
    "msg",
    "content",
    "output_text",
    "response.content_part",
    "response.output_text",
    has_logprobs=True,
)
THOUGHTS = TextKind(_THOUGHT, "rs", "content", "reasoning_text", "response.content_part", "response.reasoning_text")
SUMMARY = TextKind(
    _THOUGHT,
    "rs",
    "summary",
    "summary_text",
    "response.reasoning_summary_part",
    "response.reasoning_summary_text",
)


class TextItem:
    """A message, or thoughts."""

    def __init__(self, kind: TextKind) -> None:
        self.kind = kind
        self._id = f"{kind.prefix}_{secrets.token_hex(12)}"
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def begin(self) -> list[Event]:
        """Tell that it is there, with a part of no text yet."""
        item = {"id": self._id, **self.kind.item, "status": "in_progress", self.kind.place: []}
        return [
            {"type": "response.output_item.added", "item": item},
            self._event(f"{self.kind.part_event}.added", part=self._part()),
        ]

    def grow(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> Event:
        """Take more text, with the probabilities of the tokens that it comes from."""
        self._texts.append(text)
        self._logprobs += logprobs
        return self._event(f"{self.kind.text_event}.delta", delta=text, **self._told(logprobs))

    def end(self, status: str) -> list[Event]:
        """Tell all of it."""
        text = "".join(self._texts)
        return [
            self._event(f"{self.kind.text_event}.done", text=text, **self._told(self._logprobs)),
            self._event(f"{self.kind.part_event}.done", part=self._part()),
            {"type": "response.output_item.done", "item": self.whole(status)},
        ]

    def whole(self, status: str) -> dict[str, Any]:
        """The item itself."""
        return {"id": self._id, **self.kind.item, "status": status, self.kind.place: [self._part()]}

    def _event(self, kind: str, **content: Any) -> Event:
        return {"type": kind, "item_id": self._id, self.kind.index: 0, **content}

    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = {"type": self.kind.part, "text": "".join(self._texts)}
        return part | {"annotations": [], "logprobs": self._logprobs} if self.kind.has_logprobs else part

    def _told(self, logprobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"logprobs": list(logprobs)} if self.kind.has_logprobs else {}


class CallItem:
    """A call of a function."""

    def __init__(self, call_id: str, name: str) -> None:
        self._id, self._call_id, self._name = f"fc_{secrets.token_hex(12)}", call_id, name
        self._arguments: list[str] = []

    def begin(self) -> list[Event]:
        """Tell that it is there, without arguments yet."""
        return [{"type": "response.output_item.added", "item": self.whole("in_progress")}]

    def grow(self, text: str) -> Event:
        """Take more of the arguments."""
        self._arguments.append(text)
        return {"type": "response.function_call_arguments.delta", "item_id": self._id, "delta": text}

    def end(self, status: str) -> list[Event]:
        """Tell all of it."""
        arguments = "".join(self._arguments)
        return [
            {
                "type": "response.function_call_arguments.done",
                "item_id": self._id,
                "name": self._name,
                "arguments": arguments,
            },
            {"type": "response.output_item.done", "item": self.whole(status)},
        ]

    def whole(self, status: str) -> dict[str, Any]:
        """The item itself."""
        return {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._arguments),
        }
