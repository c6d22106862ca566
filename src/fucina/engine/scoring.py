"""Logits of given tokens, without choosing any: what perplexity and comparisons between models are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fucina.engine.dispatch import Dispatcher
from fucina.engine.request import checked_ids
from fucina.errors import Closed, ConfigError
from fucina.models.contract import CausalLM
from fucina.ops.batch import Batch, Span
from fucina.storage.kv.sequence import KvSequence


class Scoring:
    """A model that gives the logits of any tokens, beside whatever else runs on it."""

    def __init__(self, model: CausalLM, dispatcher: Dispatcher) -> None:
        self._model: CausalLM | None = model
        self._dispatcher = dispatcher

    def logits(self, ids: Sequence[int], *, chunk: int = 512) -> NDArray[np.float32]:
        """Compute the logits (len(ids), vocab) f32 that follow each prefix of `ids`, `chunk` rows a pass."""
        rows = np.empty((len(ids), self._live_model().vocab), np.float32)
        for start, piece in self.iter_logits(ids, chunk=chunk):
            rows[start : start + len(piece)] = piece
        return rows

    def iter_logits(self, ids: Sequence[int], *, chunk: int = 512) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Compute the same piece by piece: (index of the first row, logits (rows, vocab) f32, the caller's to keep)."""
        model = self._live_model()
        if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
            raise ConfigError("chunk", got=chunk, expected="a whole number of at least 1")
        tokens = checked_ids(ids, vocab=model.vocab, context=model.context_length, n_more=0)
        return self._logit_pieces(model, tokens, min(chunk, model.max_rows))

    def _live_model(self) -> CausalLM:
        if self._model is None:
            raise Closed("this model was closed: load it again")
        return self._model

    def _logit_pieces(
        self, model: CausalLM, tokens: list[int], chunk: int
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        kv = KvSequence(model.kv_pool)
        try:
            for start in range(0, len(tokens), chunk):
                piece = tokens[start : start + chunk]
                with self._dispatcher.exclusive():
                    kv.reserve(len(piece))
                    logits = model.forward(Batch((Span(piece, start, kv.blocks, len(piece)),))).copy()
                    kv.advance(len(piece))
                yield start, logits
        finally:
            with self._dispatcher.exclusive():
                kv.close()
