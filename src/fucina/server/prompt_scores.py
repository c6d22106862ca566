"""How probable a prompt's own tokens are, for requests that want it echoed with log-probabilities."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple, cast

from fucina.decoding.logprobs import TopLogprobs, token_logprobs
from fucina.decoding.scans import open_scans
from fucina.engine.model import Model
from fucina.server.beside import IsGone

# Rows of logits at a time: they are as wide as the vocabulary.
_ROWS = 16


class Scored(NamedTuple):
    """A token, with its log-probability where something precedes it, and the likeliest ones in its place."""

    token: int
    logprob: float | None = None
    top: TopLogprobs = ()


def prompt_scores(model: Model, ids: Sequence[int], n_top: int, is_gone: IsGone) -> list[Scored]:
    """Score the tokens of a prompt. Takes as long as reading it anew. Raises KvPoolFull."""
    scans, found = open_scans(), [Scored(ids[0])]
    with closing(cast(Generator[tuple[int, Any], None, None], model.iter_logits(ids, chunk=_ROWS))) as pieces:
        for start, rows in pieces:
            for token, row in zip(ids[start + 1 : start + 1 + len(rows)], rows, strict=False):
                found.append(Scored(token, *token_logprobs(scans, row[: model.tokenizer.vocab_size], token, n_top)))
            if is_gone():
                break
    return found
