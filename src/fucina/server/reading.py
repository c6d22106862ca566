"""What an answer's tokens say, piece by piece: text, thoughts and calls, and how probable each token was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fucina.engine.events import Event, FinishEvent, TokenEvent
from fucina.engine.model import Model
from fucina.server.deltas import Delta, ReasoningDelta, TextDelta
from fucina.server.reasoning import ReasoningSplitter
from fucina.server.tools.parser import CallParser

#: What JSON has for a probability of nothing.
LEAST_LOGPROB = -9999.0


class ChoiceReader:
    """Turns the events of one choice into what they say: its thoughts, its text, its calls."""

    def __init__(
        self,
        splitter: ReasoningSplitter | None = None,
        parser: CallParser | None = None,
        hidden: Mapping[int, str] | None = None,
    ) -> None:
        """`hidden`: tokens that stand for a marker of a call and are in no text."""
        self._splitter, self._parser, self._hidden = splitter, parser, hidden or {}

    @property
    def n_reasoning(self) -> int:
        """Tokens of thoughts so far."""
        return self._splitter.n_tokens if self._splitter is not None else 0

    @property
    def is_complete(self) -> bool:
        """Whether the one call that is wanted is there, so that nothing else will be."""
        return self._parser is not None and self._parser.is_complete

    def read(self, event: Event) -> list[Delta]:
        """What became certain with an event."""
        deltas: list[Delta] = []
        text = event.text
        if self._splitter is not None:
            splitter = self._splitter
            split = splitter.feed(event.token, text) if isinstance(event, TokenEvent) else splitter.flush(text)
            if split.reasoning:
                deltas.append(ReasoningDelta(split.reasoning))
            text = split.answer
        if self._parser is None:
            return [*deltas, TextDelta(text)] if text else deltas
        if isinstance(event, TokenEvent):
            return deltas + self._parser.feed(self._hidden.get(event.token, "") + text)
        return deltas + self._parser.feed(text) + self._parser.flush()


class TokenTexts:
    """Tokens as OpenAI's interface shows them: text, bytes, and log-probabilities."""

    def __init__(self, model: Model) -> None:
        self._bytes = model.tokenizer.text_bytes()
        self._end_ids = model.tokenizer.eog_ids

    def is_end(self, token: int) -> bool:
        """Whether a token only ends the answer."""
        return token in self._end_ids

    def text(self, token: int) -> str:
        """The text of a token alone; half a character is shown as one that cannot be."""
        return self.raw(token).decode("utf-8", "replace")

    def entry(self, event: TokenEvent) -> dict[str, Any]:
        """A token with its log-probability, and the likeliest ones in its place."""
        entry = self._one(event.token, event.logprob if event.logprob is not None else 0.0)
        entry["top_logprobs"] = [self._one(token, logprob) for token, logprob in event.top]
        return entry

    def _one(self, token: int, logprob: float) -> dict[str, Any]:
        raw = self.raw(token)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": max(logprob, LEAST_LOGPROB), "bytes": list(raw)}

    def raw(self, token: int) -> bytes:
        """The bytes of a token; none where it stands for no text."""
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""


def token_details(texts: TokenTexts, events: Sequence[TokenEvent]) -> list[dict[str, str]]:
    """The text that each token made certain, and where the token came from."""
    return [{"text": event.text, "origin": event.origin} for event in events if not texts.is_end(event.token)]


def finish_reason(end: FinishEvent, *, has_calls: bool) -> str:
    """Why an answer ended, as OpenAI calls it."""
    if end.reason == "length":
        return "length"
    return "tool_calls" if has_calls else "stop"
