"""Requests that wait to be let in, in their order, and the deadlines of all there are."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from time import monotonic

from fucina.engine.session import Session

# So many entries of sessions that wait no longer are let be.
_SLACK = 64


class Arrivals:
    """Sessions that wait: the highest priority first, then in order of arrival, whether they ran before or not."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._order: list[tuple[int, int]] = []  # a heap; entries of those that wait no longer are skipped

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> Session | None:
        """The session of that number, if it waits."""
        return self._sessions.get(session_id)

    def add(self, session: Session) -> None:
        """Let it wait."""
        if len(self._order) > 2 * len(self._sessions) + _SLACK:
            self._order = sorted((-other.priority, other.id) for other in self)
        self._sessions[session.id] = session
        heapq.heappush(self._order, (-session.priority, session.id))

    def remove(self, session_id: int) -> None:
        """It waits no longer, if it did."""
        self._sessions.pop(session_id, None)
        if not self._sessions:
            self._order.clear()

    def first(self) -> Session:
        """Who is next; there is somebody."""
        while self._order[0][1] not in self._sessions:
            heapq.heappop(self._order)
        return self._sessions[self._order[0][1]]


class Deadlines:
    """When requests must have ended."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._times: list[tuple[float, int]] = []  # a heap; entries of requests that are gone are skipped

    def add(self, session_id: int, seconds: float) -> None:
        """So many seconds from now."""
        if len(self._times) > 2 * len(self._seconds) + _SLACK:
            self._times = sorted(entry for entry in self._times if entry[1] in self._seconds)
        self._seconds[session_id] = seconds
        heapq.heappush(self._times, (monotonic() + seconds, session_id))

    def remove(self, session_id: int) -> None:
        """The request has ended, or never had a deadline."""
        self._seconds.pop(session_id, None)

    def passed(self) -> list[tuple[int, float]]:
        """Those that are over, and how many seconds each request had; they are told once."""
        over: list[tuple[int, float]] = []
        if self._times:
            now = monotonic()
            while self._times and self._times[0][0] <= now:
                _, session_id = heapq.heappop(self._times)
                if (seconds := self._seconds.pop(session_id, None)) is not None:
                    over.append((session_id, seconds))
        return over
