"""What metadata says about the vocabulary must agree with itself, whoever reads it later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fucina.errors import BadHeader
from fucina.storage.gguf.cursor import shown
from fucina.storage.gguf.strings import StringArray
from fucina.storage.gguf.values import MetadataValue

_PREFIX = "tokenizer.ggml."


def check_vocabulary(path: Path, metadata: Mapping[str, MetadataValue]) -> None:
    """Check the arrays and special ids of a vocabulary, where the metadata holds one. Raises BadHeader."""
    tokens = metadata.get(_PREFIX + "tokens")
    if tokens is None:
        return
    if not isinstance(tokens, StringArray):
        raise BadHeader(path, f"'{_PREFIX}tokens' is not an array of strings")
    _check_numbers(path, metadata, "scores", "f", len(tokens))
    _check_numbers(path, metadata, "token_type", "iu", len(tokens))
    if not isinstance(metadata.get(_PREFIX + "merges", tokens), StringArray):
        raise BadHeader(path, f"'{_PREFIX}merges' is not an array of strings")
    check_special_ids(path, metadata, len(tokens))


def check_special_ids(path: Path, metadata: Mapping[str, MetadataValue], n_tokens: int) -> None:
    """Check that every special token id is below `n_tokens`. An absent id means none. Raises BadHeader."""
    for key, value in metadata.items():
        if not key.startswith(_PREFIX) or not key.endswith(("_token_id", "_token_ids")):
            continue
        ids = np.zeros(1) if isinstance(value, (str, StringArray)) else np.atleast_1d(value)
        if ids.dtype.kind not in "iu":
            raise BadHeader(path, f"{shown(key)} is not an integer")
        for token_id in (int(ids.min()), int(ids.max())) if len(ids) else ():
            if not 0 <= token_id < n_tokens:
                raise BadHeader(path, f"{shown(key)} is {token_id}, but the vocabulary has {n_tokens} tokens")


def _check_numbers(path: Path, metadata: Mapping[str, MetadataValue], name: str, kinds: str, n_tokens: int) -> None:
    values = metadata.get(_PREFIX + name)
    if values is None:
        return
    if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
        kind = "floats" if "f" in kinds else "integers"
        raise BadHeader(path, f"'{_PREFIX}{name}' is not an array of {kind}")
    if len(values) != n_tokens:
        raise BadHeader(path, f"'{_PREFIX}{name}' has {len(values)} values for {n_tokens} tokens")
