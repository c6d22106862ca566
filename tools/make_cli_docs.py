"""Write docs/reference/cli.md from the command line itself, so that the page cannot drift.

Usage: make_cli_docs.py FILE            write the page
       make_cli_docs.py --check FILE    exit status 1 if the page is not what would be written
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from fucina.cli.exits import EXIT_CODES, INTERRUPTED
from fucina.cli.main import VERBS

HEADER = """# The command line

Generated from the program by `tools/make_cli_docs.py`; `scripts/check` fails when this page is not up to date.
"""
WORDS = {int: "N", float: "X", str: "TEXT"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a verb: its type without None, its default, and what typer was told about it."""

    kind: Any
    default: Any
    info: Any

    @property
    def names(self) -> list[str]:
        """Its spellings; typer takes the first one of an Annotated option for the default."""
        return sorted((self.info.default, *self.info.param_decls), key=len)

    @property
    def takes(self) -> str:
        """The word for what must follow it."""
        if self.info.metavar:
            return f" {self.info.metavar}"
        if get_origin(self.kind) is Literal:
            return " " + "\\|".join(get_args(self.kind))
        return "" if self.kind is bool else f" {WORDS[self.kind]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    page = "\n".join([HEADER, *(verb_section(name) for name in VERBS), exit_section()])
    if not args.check:
        args.file.write_text(page, encoding="utf-8")
        return 0
    if args.file.read_text(encoding="utf-8") == page:
        return 0
    print(f"{args.file} is not up to date: run `python tools/make_cli_docs.py {args.file}`")
    return 1


def verb_section(name: str) -> str:
    module = importlib.import_module(VERBS[name][0])
    command = module.app.registered_commands[0]
    parameters = parameters_of(command.callback)
    arguments = [p for p in parameters if isinstance(p.info, ArgumentInfo)]
    usage = " ".join(["fucina", name, *(argument_word(a) for a in arguments), "[OPTIONS]"])
    lines = [f"## fucina {name}", "", "```text", usage, "", inspect.getdoc(command.callback), "```", ""]
    lines += [f"- `{a.info.metavar}`: {a.info.help}" for a in arguments] + [""]
    panels: dict[str, list[Parameter]] = defaultdict(list)
    for option in (p for p in parameters if isinstance(p.info, OptionInfo)):
        panels[option.info.rich_help_panel or "Options"].append(option)
    for title, options in sorted(panels.items(), key=lambda item: item[0] != "Options"):
        lines += [f"| {title} | default | |", "|---|---|---|", *(option_row(o) for o in options), ""]
    if isinstance(command.epilog, str):
        lines += [command.epilog, ""]
    return "\n".join(lines)


def parameters_of(command: Callable[..., None]) -> list[Parameter]:
    hints = get_type_hints(command, include_extras=True)
    return [parameter(hints[p.name], p.default) for p in inspect.signature(command).parameters.values()]


def parameter(hint: Any, default: Any) -> Parameter:
    kind, info = get_args(hint)[:2]
    if NoneType in get_args(kind):
        (kind,) = set(get_args(kind)) - {NoneType}
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    return Parameter(kind, default, info)


def argument_word(argument: Parameter) -> str:
    required = argument.default is inspect.Parameter.empty
    return argument.info.metavar if required else f"[{argument.info.metavar}]"


def option_row(option: Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    shown = "" if option.default is None or option.default is False else f"`{option.default}`"
    explained = option.info.help.replace("|", "\\|")
    return f"| {names}{option.takes} | {shown} | {explained} |"


def exit_section() -> str:
    by_code: dict[int, list[str]] = defaultdict(list)
    for error, code in EXIT_CODES.items():
        by_code[code].append(f"`{error.__name__}`")
    lines = ["## Exit codes", "", "| code | when |", "|---|---|", "| 0 | success |"]
    for code, names in sorted(by_code.items()):
        extra = "a wrong command line, " if code == 2 else "the file cannot be read, " if code == 4 else ""
        lines.append(f"| {code} | {extra}{', '.join(names)} |")
    return "\n".join([*lines, f"| {INTERRUPTED} | Ctrl-C |", ""])


if __name__ == "__main__":
    sys.exit(main())
