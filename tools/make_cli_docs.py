"""Write docs/reference/cli.md from the command line itself, so that the page cannot drift.

Usage: make_cli_docs.py FILE            write the page
       make_cli_docs.py --check FILE    exit status 1 if the page is not what would be written
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from fucina.cli.exits import EXIT_CODES, INTERRUPTED
from fucina.cli.main import VERBS, load_verb

HEADER = """# The command line

Generated from the program by `tools/make_cli_docs.py`; `scripts/check` fails when this page is not up to date.
"""


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
    command = load_verb(name)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join(["fucina", name, *(argument_word(a) for a in arguments), "[OPTIONS]"])
    lines = [f"## fucina {name}", "", "```text", usage, "", inspect.cleandoc(command.help), "```", ""]
    lines += [f"- `{a.metavar}`: {a.help}" for a in arguments] + [""]
    panels: dict[str, list[Any]] = defaultdict(list)
    for option in options:
        panels[getattr(option, "rich_help_panel", None) or "Options"].append(option)
    for title, members in sorted(panels.items(), key=lambda item: item[0] != "Options"):
        lines += [f"| {title} | default | |", "|---|---|---|", *(option_row(o) for o in members), ""]
    if command.epilog:
        lines += [command.epilog, ""]
    return "\n".join(lines)


def argument_word(argument: Any) -> str:
    return argument.metavar if argument.required else f"[{argument.metavar}]"


def option_row(option: Any) -> str:
    kind = "" if option.is_flag else " " + "\\|".join(getattr(option.type, "choices", [option.type.name.upper()]))
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    shown = "" if option.is_flag or option.default in (None, []) else f"`{option.default}`"
    return f"| {names}{kind} | {shown} | {option.help} |"


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
