"""What a server says while it runs, on stderr: a line for people, or a JSON object for programs.

Nothing that is logged holds what a request says. Of a failure that nobody foresaw the places in the code are told and
the kinds of the errors, without their messages: those may quote what they failed at.
"""

from __future__ import annotations

import json
import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from fucina.cli import terminal
from fucina.storage.models import Progress

_LOG = logging.getLogger("fucina")


def set_up_logs(form: str) -> None:
    """Log from INFO on, as 'text' or 'json'."""
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # its start and end are told in our own words
    if form == "json":
        warnings.showwarning = _log_warning


def log_formatter(form: str) -> logging.Formatter:
    """How records are written: 'text' or 'json'."""
    return _JsonLines() if form == "json" else _TextLines()


@contextmanager
def logged_progress() -> Iterator[Progress]:
    """A `progress(what, done_bytes, total_bytes)` callback that logs each thing once."""
    said: set[str] = set()

    def report(what: str, _done_bytes: int, _total_bytes: int | None) -> None:
        if what not in said:
            said.add(what)
            _LOG.info("%s", what)

    yield report


class _TextLines(logging.Formatter):
    """One line a record, and the places of a failure."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; what a file or a peer brought cannot drive the terminal or forge a line."""
        line = f"{self.formatTime(record)} {record.levelname} {terminal.one_line(_first_line(record))}"
        return f"{line}\n{_places(record.exc_info[1])}" if record.exc_info else line


class _JsonLines(logging.Formatter):
    """One JSON object a record, with whatever fields it carries."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": _first_line(record),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = _places(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False)


def _first_line(record: logging.LogRecord) -> str:
    """A record's message; of asyncio's, which go on with the errors of forgotten tasks, what comes before those."""
    message = record.getMessage()
    return message.partition("\n")[0] if record.name == "asyncio" else message


def _places(error: BaseException | None) -> str:
    """The kinds of an error and of its causes, and the lines of code they came through."""
    told: list[str] = []
    while error is not None:
        told.append(f"{type(error).__module__}.{type(error).__qualname__}")
        told += [f"  {one.filename}:{one.lineno} in {one.name}" for one in traceback.extract_tb(error.__traceback__)]
        error = error.__cause__ or error.__context__
    return "\n".join(told)


def _log_warning(
    message: Warning | str, category: object, filename: object, lineno: object, file: object = None, line: object = None
) -> None:
    """Fits `warnings.showwarning`."""
    del category, filename, lineno, file, line
    _LOG.warning("%s", message)
