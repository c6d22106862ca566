"""Draw docs/images/speed.svg from the newest records beside llama.cpp, so that the picture cannot drift from them.

Usage: draw_speed.py FILE            write the picture
       draw_speed.py --check FILE    exit status 1 if the picture is not what would be drawn
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

RECORDS = Path(__file__).parents[1] / "benchmarks/records/vs_llama_cpp.jsonl"
#: file -> what the picture calls it
MODELS = {
    "smollm2.gguf": "SmolLM2-135M Q4_1",
    "gemma3-270m.gguf": "Gemma-3-270M Q4_K_M",
    "qwen3-0.6b-Q4_K.gguf": "0.6B Q4_K",
    "qwen3-0.6b-Q6_K.gguf": "0.6B Q6_K",
    "qwen3-0.6b-Q8_0.gguf": "0.6B Q8_0",
    "qwen3-0.6b-F16.gguf": "0.6B F16",
}
#: (case of the records, what the picture calls it)
PANELS = (("decode", "Decoding, one token behind 128"), ("prefill 128", "Reading a prompt of 128 tokens"))
PEERS = (("fucina", "Fucina"), ("llama_cpp", "llama.cpp"))
WIDTH, LABELS, BARS, BAR, PAIR, PANEL = 860, 170, 560, 11, 32, 34

STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.fucina { fill: #0b7a5d; }
.llama_cpp { fill: #a8b0b9; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .fucina { fill: #2fbf93; }
  .llama_cpp { fill: #6a737d; }
}"""


class Pair(NamedTuple):
    """Tokens a second of both on one file."""

    model: str
    fucina: float
    llama_cpp: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    picture = drawn([(title, newest(case)) for case, title in PANELS])
    if not args.check:
        args.file.write_text(picture, encoding="utf-8")
        return 0
    if args.file.read_text(encoding="utf-8") == picture:
        return 0
    print(f"{args.file} is not up to date: run `python tools/draw_speed.py {args.file}`")
    return 1


def newest(case: str) -> list[Pair]:
    """The last record of a case on each file."""
    found: dict[str, Pair] = {}
    for line in RECORDS.read_text("utf-8").splitlines():
        record = json.loads(line)
        for group in record.get("groups", ()):
            if record["model"] in MODELS and case in group["cases"]:
                measured = group["cases"][case]
                rates = (measured["rows"] / measured[peer]["median_s"] for peer, _ in PEERS)
                found[record["model"]] = Pair(MODELS[record["model"]], *rates)
    return [found[model] for model in MODELS]


def drawn(panels: list[tuple[str, list[Pair]]]) -> str:
    """The picture: a panel below the other, two bars for each file."""
    parts: list[str] = []
    y = 10
    for title, pairs in panels:
        parts.append(text(0, y + 16, f"{title}: tokens a second", "title"))
        y += PANEL
        fastest = max(rate for pair in pairs for rate in (pair.fucina, pair.llama_cpp))
        for pair in pairs:
            parts.append(text(0, y + BAR + 4, pair.model))
            for n, (peer, name) in enumerate(PEERS):
                rate = getattr(pair, peer)
                width, top = round(BARS * rate / fastest), y + n * (BAR + 1)
                times = f", {pair.fucina / pair.llama_cpp:.2f}x" if peer == "fucina" else ""
                parts.append(f'<rect class="{peer}" x="{LABELS}" y="{top}" width="{width}" height="{BAR}" rx="2"/>')
                parts.append(text(LABELS + width + 6, top + BAR - 1, f"{rate:.0f} {name}{times}"))
            y += PAIR
        y += 8
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" role="img">'
    told = "; ".join(f"{pair.model} {pair.fucina / pair.llama_cpp:.2f} times" for pair in panels[0][1])
    title = f"<title>Fucina beside llama.cpp. Decoding: {told}.</title>"
    return "\n".join([head, title, f"<style>\n{STYLE}\n</style>", *parts, "</svg>", ""])


def text(x: int, y: int, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x}" y="{y}">{words}</text>'


if __name__ == "__main__":
    sys.exit(main())
