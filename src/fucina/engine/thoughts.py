"""What a model thinks before it answers: the markers around it, and where an answer begins behind them."""

from __future__ import annotations

from collections.abc import Sequence

from fucina.decoding.grammar.processor import Thinking
from fucina.engine.wording import Codec

#: Opening and closing markers of the models that are known to think aloud.
_MARKERS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<thinking>", "</thinking>"),
)


class Thoughts:
    """Where a model's answers may begin with thoughts: where both markers of a pair are single tokens."""

    def __init__(self, tokenizer: Codec) -> None:
        self._tokenizer = tokenizer
        self._pairs = [pair for pair in (_ids(tokenizer, *markers) for markers in _MARKERS) if pair is not None]

    def after(self, prompt_ids: Sequence[int]) -> Thinking | None:
        """How an answer to this prompt may begin: None where the model does not think, or the prompt says it has."""
        last = {token: place for place, token in enumerate(prompt_ids)}
        pair = max(self._pairs, key=lambda pair: max(last.get(token, -1) for token in pair), default=None)
        if pair is None:
            return None
        opened, closed = (last.get(token, -1) for token in pair)
        if closed > opened and not self._tokenizer.decode(prompt_ids[closed + 1 :]).strip():
            return None  # thoughts that are written for it, often none, so that it answers at once
        return Thinking(*pair, is_open=opened > closed)

    def answer(self, prompt_ids: Sequence[int], ids: Sequence[int], text: str) -> str:
        """The text of an answer, which is `text` as a whole, without the thoughts before it."""
        thinking = self.after(prompt_ids)
        if thinking is None or not (thinking.is_open or ids[:1] == [thinking.open_id]):
            return text
        n_thoughts = ids.index(thinking.close_id) + 1 if thinking.close_id in ids else len(ids)
        return self._tokenizer.decode(ids[n_thoughts:])


def _ids(tokenizer: Codec, opening: str, closing: str) -> tuple[int, int] | None:
    opens, closes = tokenizer.encode(opening, special=True), tokenizer.encode(closing, special=True)
    return (opens[0], closes[0]) if len(opens) == len(closes) == 1 else None
