"""Log-probabilities in the shape of OpenAI's legacy completions: four lists, and an offset for each token."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Any

from fucina.engine.events import TokenEvent
from fucina.server.prompt_scores import Scored
from fucina.server.reading import LEAST_LOGPROB, TokenTexts

# Markers stand in a prompt's text by their names, and say nothing as tokens: a name is at most so long.
_LONGEST_MARKER = 64


class LegacyLogprobs:
    """Writes down the tokens of one choice as they come."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at = 0  # characters of the choice's text so far
        self._entries: list[tuple[str, float | None, dict[str, float] | None, int]] = []

    def read_prompt(self, text: str, tokens: Iterable[Scored]) -> None:
        """Take the tokens of an echoed prompt, which are found again in its text."""
        for one in tokens:
            self._add(one, text)
        self._at = len(text)

    def read(self, events: Iterable[TokenEvent]) -> None:
        """Take tokens of the answer."""
        for event in events:
            if not self._texts.is_end(event.token):
                self._add(Scored(event.token, event.logprob, event.top), None)

    def take(self) -> dict[str, Any]:
        """Give what was written down since the last time."""
        entries, self._entries = self._entries, []
        return {
            "tokens": [entry[0] for entry in entries],
            "token_logprobs": [entry[1] for entry in entries],
            "top_logprobs": [entry[2] for entry in entries],
            "text_offset": [entry[3] for entry in entries],
        }

    def _add(self, one: Scored, text: str | None) -> None:
        piece = self._decoder.decode(self._texts.raw(one.token))
        if text is not None:
            if self._at == 0 and not text.startswith(piece):
                piece = piece.removeprefix(" ")  # which some vocabularies put in front of a text
            found = text.find(piece, self._at, self._at + len(piece) + _LONGEST_MARKER) if piece else -1
            self._at = max(found, self._at)
        name, logprob, top = self._name(one.token), one.logprob, None
        if logprob is not None:
            logprob = max(logprob, LEAST_LOGPROB)
            top = {self._name(token): max(value, LEAST_LOGPROB) for token, value in reversed(one.top)}
            top = {name: logprob} | top if name not in top else top
        self._entries.append((name, logprob, top, self._at))
        self._at += len(piece)

    def _name(self, token: int) -> str:
        """The text of a token; its bytes where they are not whole characters."""
        raw = self._texts.raw(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
