"""Ctrl-C while a model answers: stop the answer, not the program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Set by the first Ctrl-C."""

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        return self.asked


@contextmanager
def soft_interrupt() -> Iterator[Interrupt]:
    """Within: the first Ctrl-C sets the flag, so that no step is torn; the second raises KeyboardInterrupt."""
    interrupt = Interrupt()

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.asked:
            signal.default_int_handler(number, frame)
        interrupt.asked = True

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
