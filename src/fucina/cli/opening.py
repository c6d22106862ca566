"""From a MODEL word and machine options to a loaded model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fucina
from fucina.cli.progress import find_model

if TYPE_CHECKING:
    from fucina.engine.model import Model


@dataclass(frozen=True, slots=True)
class Machine:
    """How to compute, and where to keep what was: the options of `fucina.load` that change speed and memory."""

    threads: int | None
    tier: str | None
    backend: str | None
    context: int | None
    kv_format: str
    prefill_chunk: int
    repack: bool | None
    speculation: bool = False
    kv_memory: str | None = None
    kv_cache_dir: Path | None = None
    kv_disk: str = "8G"
    moe_stream: bool | None = None
    moe_cache: str | None = None
    moe_pin: str | None = None
    moe_learn: bool = True


def open_model(model: str, machine: Machine) -> Model:
    """Find the file, pulling it if need be, and load it. Raises UnknownModel, PullError and what loading raises."""
    return fucina.load(find_model(model), **asdict(machine))
