"""Options of a verb that also stand in the environment and in a file, and where a wrong one stands.

A flag wins over the environment, that over the file, and that over the default. Of `fucina serve` the option
--kv-memory is FUCINA_SERVE_KV_MEMORY in the environment and `kv-memory` in the file's table [serve].
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand

from fucina.errors import ConfigError


class Configured(TyperCommand):
    """A verb whose failures name the place that a wrong option came from.

    `spelled` has the options that are called otherwise where they are checked: there -> here.
    """

    spelled: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read all three. Raises typer.BadParameter, and ConfigError for the file."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            place = None if error.param is None else _place(ctx, error.param)
            error.param_hint = place or error.param_hint
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the verb. Raises ConfigError in the words of whoever gave the option."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            name = self.spelled.get(error.option, error.option)
            found = [one for one in self.params if one.name == name]
            place = _place(ctx, found[0]) if found and type(error) is ConfigError else None
            raise error if place is None else ConfigError(place, got=error.got, expected=error.expected) from None


def read_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the defaults from the verb's table in a file: the callback of --config. Raises ConfigError."""
    if path is None:
        return None
    verb = str(ctx.command.name)
    for key in (tables := _tables(path)):
        if key != verb:
            raise ConfigError(f"{path}: {key}", got="an unknown table", expected=f"the table [{verb}] only")
    table = tables.get(verb, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {verb}", got=table, expected=f"a table [{verb}]")
    known = {_key(one): one for one in ctx.command.params if one.name not in ("config", "help")}
    given: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{path}: [{verb}] {key}"
        if key not in known:
            close = difflib.get_close_matches(key.replace("_", "-"), known, n=1)
            hint = f"'{close[0]}'" if close else f"an option of `fucina {verb} --help` without its dashes"
            raise ConfigError(where, got="an unknown key", expected=hint)
        given[str(known[key].name)] = _as_typed(known[key], value, where)
    ctx.default_map = given
    return path


def _tables(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError("--config", got=str(path), expected=f"a TOML file that can be read ({error})") from None


def _as_typed(option: Any, value: object, where: str) -> object:
    """A value of the file as it would be typed on the command line; the option's own type has the last word."""
    # never `got` the value itself: it may be a key
    if getattr(option, "is_flag", False):
        if not isinstance(value, bool):
            raise ConfigError(where, got=type(value).__name__, expected="true or false")
        return value
    if getattr(option, "multiple", False):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigError(where, got=type(value).__name__, expected="an array of texts")
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(where, got=type(value).__name__, expected="a text or a number")
    return str(value)


def _key(option: Any) -> str:
    """How the file spells an option: as the command line, without the dashes."""
    longest: str = max(option.opts, key=len)
    return longest.lstrip("-")


def _place(ctx: Any, option: Any) -> str | None:
    """Where an option's value came from, in words; None for its default."""
    source = ctx.get_parameter_source(option.name)
    match None if source is None else source.name:
        case "COMMANDLINE":
            return str(option.opts[0])
        case "ENVIRONMENT":
            return f"{ctx.auto_envvar_prefix}_{option.name.upper()} in the environment"
        case "DEFAULT_MAP":
            return f"{ctx.params.get('config')}: [{ctx.command.name}] {_key(option)}"
    return None
