"""What is logged is told in lines or JSON, and never quotes what was asked."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fucina.cli.logs import log_formatter, set_up_logs

FORMS = ["text", "json"]


@pytest.fixture
def logged() -> Iterator[Callable[[str], io.StringIO]]:
    """Where records go in a form: logged('json').getvalue()."""
    root, handlers = logging.getLogger(), list[logging.Handler]()
    level = root.level

    def begin(form: str) -> io.StringIO:
        stream = io.StringIO()
        handlers.append(logging.StreamHandler(stream))
        handlers[-1].setFormatter(log_formatter(form))
        root.addHandler(handlers[-1])
        root.setLevel(logging.INFO)
        return stream

    yield begin
    for handler in handlers:
        root.removeHandler(handler)
    root.setLevel(level)


def test_a_record_is_one_json_object_with_its_fields(logged: Callable[[str], io.StringIO]) -> None:
    stream = logged("json")
    logging.getLogger("fucina.test").warning("%s\nand more", "one", extra={"fields": {"status": 200, "path": "/x"}})
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert record.pop("time").endswith("+00:00")
    assert record == {"level": "warning", "message": "one\nand more", "status": 200, "path": "/x"}


def test_a_record_is_one_line_that_drives_no_terminal(logged: Callable[[str], io.StringIO]) -> None:
    stream = logged("text")
    logging.getLogger("fucina.test").warning("a\nb\x1b[2J")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("WARNING a\\x0ab\\x1b[2J")


@pytest.mark.parametrize("form", FORMS)
def test_failures_tell_where_and_not_what(logged: Callable[[str], io.StringIO], form: str) -> None:
    stream = logged(form)
    try:
        try:
            {}["the-secret"]
        except KeyError as error:
            raise ValueError("the-secret again") from error
    except ValueError:
        logging.getLogger("fucina.test").exception("it failed")
    text = stream.getvalue()
    assert "builtins.ValueError" in text
    assert "builtins.KeyError" in text
    assert "test_logs.py" in text
    assert "the-secret" not in text


@pytest.mark.parametrize("form", FORMS)
def test_errors_of_forgotten_tasks_are_not_quoted(logged: Callable[[str], io.StringIO], form: str) -> None:
    stream = logged(form)
    logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: exception=ValueError('the-secret')")
    assert "never retrieved" in stream.getvalue()
    assert "the-secret" not in stream.getvalue()


def test_warnings_are_records_too(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr("warnings.showwarning", None)  # put back afterwards
    try:
        set_up_logs("json")
        show: Any = __import__("warnings").showwarning
        show(UserWarning("the disk is full"), UserWarning, "a.py", 1)
        (line,) = capfd.readouterr().err.splitlines()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)
    assert (json.loads(line)["level"], json.loads(line)["message"]) == ("warning", "the disk is full")
