"""The page at /docs: every path, what becomes of each field, and an example. It asks nobody else for anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

import fucina
from fucina.server.endpoint import Endpoint
from fucina.server.field_table import FieldRow, parts, rows

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 0.9rem/1.45 ui-monospace, monospace; }
pre { padding: 0.8rem; overflow-x: auto; background: #8881; border-radius: 0.4rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid #8884; }
summary { cursor: pointer; padding: 0.4rem 0; }
summary h2, summary h3 { display: inline; font-size: 1rem; }
.method { display: inline-block; width: 3.2rem; font-weight: 600; }
.bookkeeping { opacity: 0.65; } .refused { color: #b3403a; }
"""


def page(endpoints: Sequence[Endpoint]) -> str:
    """The whole page."""
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Fucina: the interface</title><style>{_STYLE}</style></head>
<body>
<h1>Fucina {escape(fucina.__version__)}</h1>
<p>Every field is honoured, kept out of the way because it changes no answer (bookkeeping), or refused by name with
status 501. Fields that are not listed are refused with 400. <a href="openapi.json">openapi.json</a> has it all for
programs.</p>
{"".join(_section(one) for one in endpoints)}
</body>
</html>
"""


def _section(one: Endpoint) -> str:
    head = f'<span class="method">{one.method}</span><code>{escape(one.path)}</code> {escape(one.summary)}'
    lines = [f"<details><summary><h2>{head}</h2></summary>"]
    if one.stream is not None:
        lines.append(f"<p>With <code>stream</code> the answer comes as {escape(one.stream)}.</p>")
    if one.body is not None:
        lines.append(_table(rows(one.body)))
        for part in parts(one.body):
            lines.append(f"<details><summary><h3>{part.__name__}</h3> {escape(_first(part))}</summary>")
            lines.append(_table(rows(part)) + "</details>")
    lines.append(f"<pre>{escape(curl(one))}</pre></details>")
    return "\n".join(lines)


def _first(part: type) -> str:
    return (part.__doc__ or "").partition("\n")[0]


def _table(found: Sequence[FieldRow]) -> str:
    cells = "".join(
        f'<tr class="{row.what}"><td><code>{escape(row.name)}</code>{" *" if row.is_required else ""}</td>'
        f"<td>{escape(row.type)}</td><td>{row.what}</td><td>{escape(row.note)}</td></tr>"
        for row in found
    )
    return f"<table><tr><th>Field</th><th>Type</th><th></th><th></th></tr>{cells}</table>"


def curl(one: Endpoint) -> str:
    """A command that asks."""
    url = f"http://localhost:8080{one.path.replace('{model:path}', 'smollm2')}"
    if one.example is None:
        return f"curl {url}"
    return f"curl {url} \\\n  -H 'content-type: application/json' \\\n  -d '{json.dumps(one.example)}'"
