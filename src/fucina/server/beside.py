"""Long work beside the event loop, which ends early when nobody wants it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")

#: Tells whether the work may stop.
IsGone = Callable[[], bool]


async def beside(work: Callable[[IsGone], T]) -> T:
    """Run `work` in a thread; what it is given tells it when whoever waits has left, and its result is of no use."""
    gone = Event()
    try:
        return await asyncio.to_thread(work, gone.is_set)
    finally:
        gone.set()
