"""What may be asked of experts that stay on disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """How experts are held. None of it changes what is computed.

    cache_bytes   for all experts in memory, pinned ones included; None: half of the memory that is left.
    pin_bytes     of these for experts that stay there; None: half of them.
    learn         which experts are used is remembered beside the model, and decides what is pinned next time.
    pilot         asks the next layer's router ahead of time, and reads what it would choose first; None: where reading
                  goes past the page cache, so that the disk is what decoding waits for.
    io_threads    that read what the page cache does not have; they sleep while the disk works.
    direct        reads past the system's page cache, which only costs time where most of it is never used again; None:
                  where the experts are larger than the memory that is free.
    """

    cache_bytes: int | None = None
    pin_bytes: int | None = None
    learn: bool = True
    pilot: bool | None = None
    io_threads: int = 8
    direct: bool | None = None
