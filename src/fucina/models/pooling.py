"""How a model file wants the hidden states of a text made into one vector."""

from __future__ import annotations

from typing import Literal, get_args

from fucina.models.metadata import Integer, MetadataReader

#: 'mean' of all positions, 'cls' the first, 'last' the last. 'none' asks for no vector of a text, 'rank' for a score.
Pooling = Literal["none", "mean", "cls", "last", "rank"]

_NAMES: tuple[Pooling, ...] = get_args(Pooling)  # a file's number is the index


def read_pooling(meta: MetadataReader) -> Pooling | None:
    """What `<architecture>.pooling_type` says, None where it is absent. Raises BadHeader for a number of no pooling."""
    number = meta.optional("pooling_type", Integer(0, len(_NAMES) - 1))
    return None if number is None else _NAMES[number]
