"""What an answer's tokens say, piece by piece: text, thoughts and calls, and how probable each token was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fucina.engine.events import Event, FinishEvent, TokenEvent
from fucina.engine.model import Model
from fucina.server.deltas import Delta, TextDelta

# What JSON has for a probability of nothing.
_LEAST_LOGPROB = -9999.0


class ChoiceReader:
    """Turns the events of one choice into what they say."""

    def read(self, event: Event) -> list[Delta]:
        """What became certain with an event."""
        return [TextDelta(event.text)] if event.text else []


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
        return self._raw(token).decode("utf-8", "replace")

    def entry(self, event: TokenEvent) -> dict[str, Any]:
        """A token with its log-probability, and the likeliest ones in its place."""
        entry = self._one(event.token, event.logprob if event.logprob is not None else 0.0)
        entry["top_logprobs"] = [self._one(token, logprob) for token, logprob in event.top]
        return entry

    def _one(self, token: int, logprob: float) -> dict[str, Any]:
        raw = self._raw(token)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": max(logprob, _LEAST_LOGPROB), "bytes": list(raw)}

    def _raw(self, token: int) -> bytes:
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""


def token_details(texts: TokenTexts, events: Sequence[TokenEvent]) -> list[dict[str, str]]:
    """The text that each token made certain, and where the token came from."""
    return [{"text": event.text, "origin": event.origin} for event in events if not texts.is_end(event.token)]


def finish_reason(end: FinishEvent, *, has_calls: bool) -> str:
    """Why an answer ended, as OpenAI calls it."""
    if end.reason == "stop":
        return "tool_calls" if has_calls else "stop"
    return "length"
