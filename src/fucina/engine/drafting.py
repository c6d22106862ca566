"""One session's source of drafts, kept honest: it can change the speed of decoding and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from fucina.decoding.speculation.contract import CutListener, DraftSource


class Drafter:
    """Asks a draft source and checks what it says. After its first failure the source is not asked again."""

    def __init__(self, source: DraftSource | None) -> None:
        self._source = source
        self.error: Exception | None = None

    @property
    def is_active(self) -> bool:
        """Whether there is a source that may propose tokens."""
        return self._source is not None

    def suggest(self, history: Sequence[int], max_tokens: int, vocab: int) -> Sequence[int]:
        """Propose tokens to follow the history: at most `max_tokens`, none from the first impossible id on."""
        if self._source is None or max_tokens < 1:
            return ()
        drafts: list[int] = []
        try:
            proposed = self._source.suggest(history, max_tokens)
            for token in proposed[:max_tokens]:
                if not 0 <= token < vocab:
                    break
                drafts.append(int(token))
            if len(drafts) < len(proposed) and isinstance(self._source, CutListener):
                self._source.truncate_pending(len(drafts))
        except Exception as error:
            self._give_up(error)
            return ()
        return drafts

    def observe(self, committed: Sequence[int]) -> None:
        """Tell the source what was committed."""
        if self._source is not None:
            try:
                self._source.observe(committed)
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._source, self.error = None, error
