"""Several threads, or several half-read streams of one thread, share one engine.

There is one lock, and whoever waits for an event of his own takes it and steps for everybody; the others' events wait
in their queues. So requests of several threads run together in one batch, and nobody needs a thread of its own. Who
cannot wait has its events handed to a taker (`service`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock, get_ident
from time import sleep

from fucina.engine.counters import Counters
from fucina.engine.engine import Engine
from fucina.engine.events import Event, FinishEvent
from fucina.engine.request import Request
from fucina.errors import InvalidDecodeState
from fucina.storage.kv.prefix import PrefixCache

# Enough for a waiting thread to wake up.
_COURTESY_S = 50e-6


class Dispatcher:
    """An engine behind a lock, with a queue of events for each request."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queues: dict[int, deque[Event]] = {}
        self._takers: dict[int, Callable[[Event], None]] = {}  # of requests that nobody reads with `events`
        self._engaged = _Engagement(engine)

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Keep everybody else from stepping, for work on the model beside the engine.

        Tells whether there are requests that wait for it.
        """
        with self._engaged.lock:
            yield not self._engine.is_idle

    @contextmanager
    def prefixes(self) -> Iterator[PrefixCache | None]:
        """What the engine keeps for requests to come, for this thread alone.

        None in the middle of this thread's own step, where the garbage collector may run anything.
        """
        with self._engaged.lock:
            yield None if self._engaged.is_own_step else self._engine.prefixes

    def submit(self, request: Request, taker: Callable[[Event], None] | None = None) -> int:
        """Queue a request and give its id, to be read with `events`. Raises ConfigError, ContextFull and Closed.

        A `taker` gets its events instead, within the step of whoever computes, so it must neither wait nor raise;
        somebody has to call `advance` then.
        """
        with self._engaged as engine:
            request_id = engine.submit(request)
            if taker is None:
                self._queues[request_id] = deque()
            else:
                self._takers[request_id] = taker
            return request_id

    def advance(self) -> tuple[bool, bool]:
        """Step once for everybody, if there is anything to compute.

        Tells whether there is more to do, and whether all that is left is held. Raises what stepping raises.
        """
        with self._engaged as engine:
            if not engine.is_idle:
                self._hand_out(engine.step())
            return not engine.is_idle, engine.is_stalled

    def events(self, request_id: int) -> Generator[Event, None, None]:
        """Step until the request has ended, giving its events; closing the generator cancels it.

        Raises what stepping raises (a failed forward pass); the request is cancelled then.
        """
        queue = self._queues[request_id]
        try:
            while True:
                while not queue:
                    self._advance(request_id, queue)
                event = queue.popleft()
                yield event
                if isinstance(event, FinishEvent):
                    return
        finally:
            self.abandon(request_id)

    def cancel(self, request_id: int, error: Exception | None = None) -> None:
        """End the request; whoever reads its events gets the 'cancelled' one, or 'error' with the error."""
        with self._engaged as engine:
            engine.cancel(request_id, error)
            self._hand_out(engine.drain())

    def hold(self, request_id: int, *, held: bool) -> None:
        """Compute no more of a request for now, or go on with it."""
        with self._engaged as engine:
            engine.hold(request_id, held=held)

    def abandon(self, request_id: int) -> None:
        """Cancel the request if it still runs, and forget its events."""
        self._queues.pop(request_id, None)
        self._engaged.drop(request_id)

    def forget_prefixes(self) -> None:
        """Keep nothing of what was computed so far for requests to come."""
        with self._engaged.lock:
            self._engine.prefixes.clear()

    def n_known(self, ids: Sequence[int], salt: str) -> int:
        """Count the first tokens of `ids` whose keys and values are kept."""
        with self._engaged.lock:
            return self._engine.prefixes.n_known(ids, salt)

    def counters(self) -> Counters:
        """A copy of the engine's counters."""
        with self._engaged.lock:
            return self._engine.counters

    def close(self) -> None:
        """Close the engine. Streams that are still read end with their 'cancelled' event."""
        with self._engaged as engine:
            engine.close()
            self._hand_out(engine.drain())

    def _advance(self, request_id: int, queue: deque[Event]) -> None:
        """Step once for everybody, unless another thread has filled the queue while this one waited for the lock."""
        with self._engaged as engine:
            if not queue:
                events = engine.step()
                if not events and engine.is_idle:
                    raise InvalidDecodeState(f"request {request_id} has neither ended nor anything left to compute")
                self._hand_out(events)

    def _hand_out(self, events: list[Event]) -> None:
        for event in events:
            queue = self._queues.get(event.request_id)
            if queue is not None:
                queue.append(event)
                continue
            taker = self._takers.get(event.request_id)
            if taker is not None:
                if isinstance(event, FinishEvent):
                    del self._takers[event.request_id]
                taker(event)


class _PoliteLock:
    """A reentrant lock whose holder lets others have it before it asks again.

    Python's own lock goes to who asks first once it is free. That is the thread that had it, as long as it has
    something to compute, and what others want would wait until its answer ends.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._waiting: set[int] = set()  # threads

    def acquire(self) -> None:
        """Wait for one's turn."""
        if not self._lock.acquire(blocking=False):
            me = get_ident()
            self._waiting.add(me)
            try:
                self._lock.acquire()
            finally:
                self._waiting.discard(me)

    def release(self) -> None:
        """Let it go, and somebody else take it."""
        self._lock.release()
        if self._waiting:
            sleep(_COURTESY_S)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Engagement:
    """The engine for one thread alone; requests dropped meanwhile are cancelled before and after, never in between."""

    def __init__(self, engine: Engine) -> None:
        self.lock = _PoliteLock()
        self._engine = engine
        self._dropped: deque[int] = deque()
        self._thread = 0  # who is engaged

    def __enter__(self) -> Engine:
        self.lock.acquire()
        try:
            if self._dropped:
                self._sweep()
        except BaseException:
            self.lock.release()
            raise
        self._thread = get_ident()
        return self._engine

    def __exit__(self, *_: object) -> None:
        self._thread = 0
        try:
            if self._dropped:
                self._sweep()
        finally:
            self.lock.release()

    @property
    def is_own_step(self) -> bool:
        """Whether this thread is engaged already."""
        return self._thread == get_ident()

    def drop(self, request_id: int) -> None:
        """Cancel a request, now or as soon as the engine is free."""
        self._dropped.append(request_id)
        # the garbage collector may close a forgotten stream in the middle of this thread's own step
        if not self.is_own_step:
            with self.lock:
                self._sweep()

    def _sweep(self) -> None:
        while self._dropped:
            self._engine.cancel(self._dropped.popleft())
