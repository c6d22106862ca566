"""Keep the pages true: run their Python, follow their links.

Every ```python block of a page runs, top to bottom, in one fresh process for the page; every ```pycon block is a
session whose output must be what the page shows, character for character. Links between files must lead somewhere,
and a #fragment must be a heading there.

Usage: check_docs.py [PAGE ...]    (without pages: README.md, ARCHITECTURE.md, CONTRIBUTING.md, CHANGELOG.md, docs/)
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
#: What one page's process runs: blocks arrive as (kind, line, source) and share one namespace.
RUNNER = """
import doctest, json, sys
names = {"__name__": "__main__"}
page, blocks = json.load(sys.stdin)
for kind, line, source in blocks:
    if kind == "python":
        exec(compile("\\n" * line + source, page, "exec"), names)
    else:
        test = doctest.DocTestParser().get_doctest(source, names, page, page, line)
        runner = doctest.DocTestRunner()
        runner.run(test, clear_globs=False)
        names.update(test.globs)
        if runner.failures:
            sys.exit(1)
"""


def main() -> int:
    pages = [Path(word).resolve() for word in sys.argv[1:]] or all_pages()
    broken = 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        problems = [*link_problems(page, text), *code_problems(page, text)]
        for problem in problems:
            print(f"{page.relative_to(ROOT)}: {problem}")
        broken += len(problems)
    print(f"{len(pages)} pages, {broken} problems")
    return bool(broken)


def all_pages() -> list[Path]:
    top = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def link_problems(page: Path, text: str) -> list[str]:
    problems = []
    for target in LINK.findall(FENCE.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, fragment = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            problems.append(f"link to {target}: no such file")
        elif fragment and fragment not in anchors(file.read_text(encoding="utf-8")):
            problems.append(f"link to {target}: no such heading")
    return problems


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def code_problems(page: Path, text: str) -> list[str]:
    blocks = [
        (found[1], text[: found.start(2)].count("\n"), found[2])
        for found in FENCE.finditer(text)
        if found[1] in ("python", "pycon")
    ]
    if not blocks:
        return []
    return run_blocks(str(page.relative_to(ROOT)), blocks)


def run_blocks(name: str, blocks: list[tuple[str, int, str]]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", RUNNER],
            input=json.dumps([name, blocks]),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    return [f"its code failed\n{ran.stdout}{ran.stderr}"] if ran.returncode else []


if __name__ == "__main__":
    sys.exit(main())
