"""How results look: columns for people, objects for programs, one line of statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console

from fucina.cli.terminal import one_line


def heading(out: Console, text: str) -> None:
    """A title with a blank line before it."""
    out.print()
    out.print(text, style="bold", markup=False)


def line(out: Console, text: str) -> None:
    """One line, never wrapped, with control characters spelled out."""
    out.print(one_line(text), markup=False, soft_wrap=True)


def columns(out: Console, rows: Iterable[Sequence[str]]) -> None:
    """Rows in aligned columns, one line each however wide, so that they can be searched and cut."""
    table = [[one_line(cell) for cell in row] for row in rows]
    widths = [max((len(cell) for cell in column), default=0) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        out.print(f"  {'  '.join(cells).rstrip()}", markup=False, soft_wrap=True)


def bar(share: float, width: int = 24) -> str:
    """A share of a whole as a bar."""
    return "█" * max(0, round(min(share, 1.0) * width))
