"""Write docs/reference/server-api.md from the server's own types, so that the page cannot drift.

Usage: make_server_docs.py FILE            write the page
       make_server_docs.py --check FILE    exit status 1 if the page is not what would be written
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel

from fucina.engine.counters import Counters
from fucina.server.docs_page import curl
from fucina.server.endpoint import Endpoint
from fucina.server.field_table import FieldRow, parts, rows
from fucina.server.metrics import Metrics, engine_metrics
from fucina.server.paths import DESCRIBED
from fucina.storage.experts.stats import ExpertsLeftOut, ExpertStats

HEADER = """# The server's interface

Generated from the server's types by `tools/make_server_docs.py`; `scripts/check` fails when it is not up to date.
A running server shows the same at `/docs`, and as an OpenAPI 3.1 document at `/openapi.json`.

No field is silently dropped. Each one is

- **honoured**: it does what its interface says;
- **bookkeeping**: it changes no answer, and is accepted and left alone;
- **refused**: it would change the answer in a way that this server does not have. Status 501, and the error names the
  field; values that ask for nothing (null, and those that are named) are taken.

Fields that are in no table are refused with status 400. A star marks the fields that must be given.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    page = "\n".join([HEADER, overview(DESCRIBED), *(section(one) for one in DESCRIBED if one.body is not None)])
    page += "\n" + shared(DESCRIBED) + "\n" + metrics()
    if not args.check:
        args.file.write_text(page, encoding="utf-8")
        return 0
    if args.file.read_text(encoding="utf-8") == page:
        return 0
    print(f"{args.file} is not up to date: run `python tools/make_server_docs.py {args.file}`")
    return 1


def overview(endpoints: Iterable[Endpoint]) -> str:
    lines = ["| path | | streams |", "|---|---|---|"]
    lines += [f"| `{one.method} {shown(one)}` | {one.summary} | {one.stream or ''} |" for one in endpoints]
    return "\n".join([*lines, ""])


def section(one: Endpoint) -> str:
    assert one.body is not None
    lines = [f"## {one.method} {shown(one)}", "", f"{one.summary}.", "", *table(rows(one.body))]
    used = [part.__name__ for part in parts(one.body)]
    if used:
        lines += [f"Its parts: {', '.join(f'`{name}`' for name in used)}.", ""]
    if one.example is not None:
        lines += ["```sh", curl(one), "```", ""]
    return "\n".join(lines)


def shared(endpoints: Iterable[Endpoint]) -> str:
    found: dict[type[BaseModel], None] = {}
    for one in endpoints:
        if one.body is not None:
            found |= dict.fromkeys(parts(one.body))
    lines = ["## Parts of requests", ""]
    for part in sorted(found, key=lambda part: part.__name__):
        lines += [f"### {part.__name__}", "", (part.__doc__ or "").partition("\n")[0], "", *table(rows(part))]
    return "\n".join(lines)


def metrics() -> str:
    """What /metrics tells, with reading experts on demand."""
    experts = ExpertStats(**dict.fromkeys(ExpertStats.__annotations__, 0))
    told = [*Metrics().families(), *engine_metrics(Counters(), experts, ExpertsLeftOut(1.0, lambda: (0, 0)))]
    lines = [
        "## Metrics",
        "",
        "What `/metrics` tells. Those of experts are there where experts are read on demand.",
        "",
    ]
    lines += ["| name | kind | |", "|---|---|---|"]
    for one in told:
        name = one.name + ("_total" if one.type == "counter" else "")
        lines.append(f"| `{name}` | {one.type} | {escaped(one.documentation)} |")
    return "\n".join([*lines, ""])


def table(found: Iterable[FieldRow]) -> list[str]:
    lines = ["| field | type | | |", "|---|---|---|---|"]
    for row in found:
        star = " *" if row.is_required else ""
        lines.append(f"| `{row.name}`{star} | {escaped(row.type)} | {row.what} | {escaped(row.note)} |")
    return [*lines, ""]


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def shown(one: Endpoint) -> str:
    return one.path.replace(":path}", "}")


if __name__ == "__main__":
    sys.exit(main())
