"""How a download looks: a bar on a terminal, one line a phase elsewhere; always on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from fucina.cli import terminal
from fucina.storage.models import Progress as Report
from fucina.storage.models import resolve_model


def find_model(model: str) -> Path:
    """The file that MODEL names, pulled with progress when it is not there yet. Raises UnknownModel, PullError."""
    with shown_progress() as report:
        return resolve_model(model, progress=report)


@contextmanager
def shown_progress() -> Iterator[Report]:
    """A `progress(what, done_bytes, total_bytes)` callback that shows itself on stderr, and only if called."""
    console = terminal.stderr()
    if not console.is_terminal:
        yield _phase_lines()
        return
    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        console=console,
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def report(what: str, done_bytes: int, total_bytes: int | None) -> None:
        if not tasks:
            bars.start()
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total_bytes)
        bars.update(tasks[what], completed=done_bytes, total=total_bytes)

    try:
        yield report
    finally:
        bars.stop()


def _phase_lines() -> Report:
    said: set[str] = set()

    def report(what: str, _done_bytes: int, _total_bytes: int | None) -> None:
        if what not in said:
            said.add(what)
            terminal.note(what)

    return report
