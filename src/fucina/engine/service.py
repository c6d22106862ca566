"""A model for callers that must not wait, such as a server's event loop: one thread computes for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread, current_thread

from fucina.engine.dispatch import Dispatcher
from fucina.engine.events import Event, FinishEvent, Timings, Usage
from fucina.engine.request import Request
from fucina.errors import Closed

# While everything is held, deadlines are looked at so often.
_LOOK_S = 0.05

#: Gets a request's events, on the thread that computes. It must neither wait nor raise.
Taker = Callable[[Event], None]


class Ticket:
    """A request on its way. What is asked of one that has ended already is not heard."""

    def __init__(self, service: Service, request: Request, deliver: Taker) -> None:
        self.request = request
        self._service, self._deliver = service, deliver
        self.request_id = 0  # until the engine has it
        self._is_over = False

    def cancel(self) -> None:
        """End it with reason 'cancelled', before the next pass."""
        self._service.order(lambda: self._service.dispatcher.cancel(self.request_id))

    def hold(self, *, held: bool) -> None:
        """Compute no more of it for now, or go on; others are not slowed down by one that is held."""
        self._service.order(lambda: self._service.dispatcher.hold(self.request_id, held=held))

    def begin(self) -> None:
        """Submit it. For the thread that computes."""
        try:
            self.request_id = self._service.dispatcher.submit(self.request, self._take)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End it with an error. For the thread that computes."""
        self._service.dispatcher.cancel(self.request_id, error)
        if not self._is_over:  # the engine does not know it
            usage, timings = Usage(len(self.request.prompt_ids), 0, 0), Timings(0.0, 0.0, 0.0, 0, 0)
            self._take(FinishEvent(request_id=0, reason="error", usage=usage, timings=timings, seed=0, error=error))

    def _take(self, event: Event) -> None:
        if isinstance(event, FinishEvent):
            self._is_over = True
            self._service.forget(self)
        self._deliver(event)


class Service:
    """Takes requests without making anybody wait, and hands out their events as they come."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self._orders: deque[Callable[[], None]] = deque()
        self._wake = Condition()
        self._live: set[Ticket] = set()
        self._closing = False
        self._farewell: Exception | None = None
        self._thread = Thread(target=self._run, name="fucina-service", daemon=True)
        self._thread.start()

    def submit(self, request: Request, deliver: Taker) -> Ticket:
        """Queue a request, whose events `deliver` gets, the last of them a FinishEvent. Raises Closed.

        What the engine refuses ends with reason 'error' and the refusal.
        """
        ticket = Ticket(self, request, deliver)
        with self._wake:
            if self._closing:
                raise Closed("this service was closed")
            self._live.add(ticket)
        self.order(ticket.begin)
        return ticket

    def order(self, order: Callable[[], None]) -> None:
        """Have something done on the thread that computes, before the next pass."""
        with self._wake:
            self._orders.append(order)
            self._wake.notify()

    def forget(self, ticket: Ticket) -> None:
        """A ticket is over."""
        with self._wake:
            self._live.discard(ticket)

    def close(self, farewell: Exception | None = None) -> None:
        """Cancel what is left, or end it with the error `farewell`, and end the thread. Closing twice is harmless."""
        with self._wake:
            self._closing, self._farewell = True, self._farewell or farewell
            self._wake.notify()
        if self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        has_work = is_stalled = False
        while True:
            with self._wake:
                if not (self._orders or self._closing or (has_work and not is_stalled)):
                    self._wake.wait(_LOOK_S if has_work else None)
                orders, self._orders = self._orders, deque()
                closing = self._closing
            for order in orders:
                order()
            if closing:
                for ticket in self._all_live():
                    self.dispatcher.cancel(ticket.request_id, self._farewell)
                return
            try:
                has_work, is_stalled = self.dispatcher.advance()
            except Exception as error:  # a failed pass: whose fault it was cannot be told
                for ticket in self._all_live():
                    ticket.fail(error)

    def _all_live(self) -> list[Ticket]:
        with self._wake:
            return list(self._live)
