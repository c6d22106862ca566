"""Several threads, or several half-read streams of one thread, share one engine.

There is one lock, and whoever waits for an event of his own takes it and steps for everybody; the others' events wait
in their queues. So requests of several threads run together in one batch, and nobody needs a thread of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from threading import RLock, get_ident

from fucina.engine.counters import Counters
from fucina.engine.engine import Engine
from fucina.engine.events import Event, FinishEvent
from fucina.engine.request import Request
from fucina.errors import InvalidDecodeState


class Dispatcher:
    """An engine behind a lock, with a queue of events for each request."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = RLock()
        self._queues: dict[int, deque[Event]] = {}
        self._dropped: deque[int] = deque()
        self._engaged_thread = 0

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep everybody else from stepping, for work on the model beside the engine."""
        with self._lock:
            yield

    @contextmanager
    def _engaged(self) -> Iterator[Engine]:
        """Use the engine alone; requests dropped meanwhile are cancelled before and after, never in the middle."""
        with self._lock:
            self._sweep()
            self._engaged_thread = get_ident()
            try:
                yield self._engine
            finally:
                self._engaged_thread = 0
                self._sweep()

    def _sweep(self) -> None:
        while self._dropped:
            self._engine.cancel(self._dropped.popleft())

    def submit(self, request: Request) -> int:
        """Queue a request and give its id, to be read with `events`. Raises ConfigError, ContextFull and Closed."""
        with self._engaged() as engine:
            request_id = engine.submit(request)
            self._queues[request_id] = deque()
            return request_id

    def events(self, request_id: int) -> Generator[Event, None, None]:
        """Step until the request has ended, giving its events; closing the generator cancels it.

        Raises what stepping raises (a failed forward pass); the request is cancelled then.
        """
        try:
            while True:
                event = self._next(request_id)
                yield event
                if isinstance(event, FinishEvent):
                    return
        finally:
            self.abandon(request_id)

    def cancel(self, request_id: int) -> None:
        """End the request; whoever reads its events gets the 'cancelled' one."""
        with self._engaged() as engine:
            engine.cancel(request_id)
            self._hand_out(engine.drain())

    def abandon(self, request_id: int) -> None:
        """Cancel the request if it still runs, and forget its events."""
        self._queues.pop(request_id, None)
        self._dropped.append(request_id)
        # the garbage collector may close a forgotten stream in the middle of this thread's own step
        if self._engaged_thread != get_ident():
            with self._lock:
                self._sweep()

    def counters(self) -> Counters:
        """A copy of the engine's counters."""
        with self._lock:
            return self._engine.counters

    def close(self) -> None:
        """Close the engine. Streams that are still read end with their 'cancelled' event."""
        with self._engaged() as engine:
            engine.close()
            self._hand_out(engine.drain())

    def _next(self, request_id: int) -> Event:
        queue = self._queues[request_id]
        while not queue:
            with self._engaged() as engine:
                if queue:  # another thread stepped while this one waited for the lock
                    break
                if engine.is_idle:
                    raise InvalidDecodeState(f"request {request_id} has neither ended nor anything left to compute")
                self._hand_out(engine.step())
        return queue.popleft()

    def _hand_out(self, events: list[Event]) -> None:
        for event in events:
            queue = self._queues.get(event.request_id)
            if queue is not None:
                queue.append(event)
