"""Times as Ollama's interface writes them: moments in RFC 3339, durations in nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """This moment."""
    return moment(datetime.now(UTC))


def moment(when: datetime) -> str:
    """A moment, in UTC."""
    return when.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def nanoseconds(seconds: float) -> int:
    """A duration."""
    return round(seconds * 1e9)
