"""From the thread that computes to the event loop: events of one answer, with a bound on how many may wait.

A reader who takes nothing has his answer held, and nobody else is slowed down by him.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock

from fucina.engine.events import Event
from fucina.engine.service import Ticket

#: Seconds of silence after which `take` gives nothing, so that something can be said meanwhile.
SILENCE_S = 5.0
#: Events that may wait for their reader; then the answer is held until he has taken them.
BOUND = 512


class Inbox:
    """Events of the choices of one answer, in the order they came: (choice, event)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._letters: list[tuple[int, Event]] = []
        self._arrived = asyncio.Event()
        self._lock = Lock()
        self._is_told = self._is_held = False
        self._tickets: list[Ticket] = []

    def slot(self, choice: int) -> Callable[[Event], None]:
        """What takes the events of one choice, on the thread that computes."""
        return lambda event: self._put(choice, event)

    def watch(self, ticket: Ticket) -> None:
        """Hold this one too while too much waits."""
        self._tickets.append(ticket)

    async def take(self) -> list[tuple[int, Event]]:
        """Wait until something has come, and take all of it; nothing after a long silence."""
        alarm = self._loop.call_later(SILENCE_S, self._arrived.set)
        await self._arrived.wait()
        alarm.cancel()
        self._arrived.clear()
        with self._lock:
            letters, self._letters, self._is_told = self._letters, [], False
            if self._is_held:
                self._hold(False)
        return letters

    def _put(self, choice: int, event: Event) -> None:
        with self._lock:
            self._letters.append((choice, event))
            if len(self._letters) > BOUND and not self._is_held:
                self._hold(True)
            was_told, self._is_told = self._is_told, True
        if not was_told:
            try:
                self._loop.call_soon_threadsafe(self._arrived.set)
            except RuntimeError:  # the loop has ended, and with it whoever would read
                return

    def _hold(self, held: bool) -> None:
        self._is_held = held
        for ticket in self._tickets:
            ticket.hold(held=held)
