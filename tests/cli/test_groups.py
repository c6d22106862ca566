"""Verbs that ask for options in groups."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fucina.cli.groups import Computing, Keeping, grouped
from fucina.cli.opening import load_options
from fucina.engine.assemble import load


@dataclass(frozen=True)
class _Pair:
    left: Annotated[int, typer.Option("--left")] = 1
    right: Annotated[str | None, typer.Option("--right")] = None


@pytest.mark.parametrize(
    ("words", "arrives"),
    [
        ([], "0 _Pair(left=1, right=None) x"),
        (["--left", "7", "--last", "y"], "0 _Pair(left=7, right=None) y"),
        (["--first", "5", "--right", "r"], "5 _Pair(left=1, right='r') x"),
    ],
)
def test_a_group_arrives_whole(words: list[str], arrives: str) -> None:
    app = typer.Typer(add_completion=False)

    @app.command()
    @grouped
    def verb(
        *,
        first: Annotated[int, typer.Option("--first")] = 0,
        pair: _Pair,
        last: Annotated[str, typer.Option("--last")] = "x",
    ) -> None:
        print(first, pair, last)

    assert list(inspect.signature(verb).parameters) == ["first", "left", "right", "last"]
    told = CliRunner().invoke(app, words)
    assert told.output.strip() == arrives, told


def test_groups_name_what_load_takes_with_its_defaults() -> None:

    defaults = {name: one.default for name, one in inspect.signature(load).parameters.items()}
    given = load_options(Computing(), Keeping())
    assert given == {name: defaults[name] for name in given}
