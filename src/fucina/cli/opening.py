"""From a MODEL word and machine options to a loaded model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fucina
from fucina.cli.progress import find_model

if TYPE_CHECKING:
    from fucina.engine.model import Model


def open_model(
    model: str,
    *,
    threads: int | None,
    tier: str | None,
    backend: str | None,
    context: int | None,
    kv_format: str,
    prefill_chunk: int,
) -> Model:
    """Find the file, pulling it if need be, and load it. Raises UnknownModel, PullError and what loading raises."""
    return fucina.load(
        find_model(model),
        threads=threads,
        tier=tier,
        backend=backend,
        context=context,
        kv_format=kv_format,
        prefill_chunk=prefill_chunk,
    )
