"""Make tests/golden/tokenize-peer.json: ids that llama.cpp gives for a few hundred texts of many scripts.

    PYTHONPATH=src python tests/golden/make_tokenize.py SMOLLM2.gguf GEMMA3.gguf

Needs `pip install xllamacpp numpy`. The ids come from the peer's /tokenize without BOS: `ids` with special tokens left
as text, `ids_special` with them parsed. Each vocabulary is put into a tiny model, so that a pre-tokenizer other than
the vocabulary's own can be asked too.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import urllib.request
from importlib.metadata import version
from pathlib import Path

import xllamacpp

from fucina.core.formats import F32
from fucina.storage.gguf import open_gguf
from fucina.testing.tiny_gguf import Value, tiny_model

#: Code points, inclusive; a text draws from one to three of these rows.
SCRIPTS = [
    *[(0x20, 0x7E)] * 6,
    *((0x61, 0x7A), (0x30, 0x39), (0x21, 0x2F), (0x20, 0x20), (0x09, 0x0D), (0x01, 0x1F), (0x80, 0xFF)),
    *((0x100, 0x17F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF)),
    *((0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F), (0x10A0, 0x10FF)),
    *((0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1680, 0x169C), (0x1780, 0x17FF), (0x1800, 0x180F)),
    *((0x1E00, 0x1EFF), (0x2000, 0x206F), (0x2070, 0x209F), (0x20A0, 0x20BF), (0x2100, 0x218B), (0x2190, 0x22FF)),
    *((0x2460, 0x24FF), (0x2500, 0x25FF), (0x2600, 0x27BF), (0x3000, 0x303F), (0x3040, 0x30FF), (0x4E00, 0x9FA5)),
    *((0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xF900, 0xFAD9), (0xFB00, 0xFB06), (0xFE00, 0xFE0F), (0xFF00, 0xFFEF)),
    *((0x10330, 0x1034A), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0x20000, 0x2A6DF)),
    *((0xE0100, 0xE01EF), (0x100000, 0x1000FF)),
]
WRITTEN = [
    "it's IT'S I'm I'M you'Re they'LL he'd D'you 'tis '",
    "'\u017f \u017fhe'\u017f 1'\u212a",
    "a  b   c    d\te \t f\n g \n\n h\r\n\r\ni \r j",
    "   \n   \n\n\t\n  x",
    "x   ",
    "\n\n\n\n\n \n",
    "1 12 123 1234 12345 123456 1234567",
    "a1b22c333d4444",
    "٣٤٥ ௧௨௩ ⅧⅨ ①②③ ½¾ 一二三",
    "!?.,;:…«»„“”‘’—–-_/\\|@#$%^&*()[]{}<>=+~`",
    "a.b,c!d?e...f!!!g???h",
    "$100 + 20% = £120 ~ €140 ^2 |x| <y>",
    "def f(x: int) -> str:\n\t# c\n\treturn f'{x!r:>10}'\n\n\nprint(f(1))\n",
    '{"a": [1, 2.5e-3, null], "b": {"c": "d\\n"}}',
    '<div class="a"><b>x</b><br/></div> <table><tr><td>1</td></tr></table> <h1>t</h1>',
    "the<|im_end|>quick<|im_start|>brown<|endoftext|>fox",
    "<|im_start|><|im_start|>\n<|im_end|> <|im_end",
    "<bos><start_of_turn>user\nhi<end_of_turn>\n<eos><pad><unk><mask>",
    "[multimodal] <unused0><unused99> <start_of_image> <repo_name>a<file_sep>b",
    "\u0004\u0006a\u0013b\u0014\u0016\u001d",
    "a\u0004the\u0006 the",
    "\u00a0\u00a0a\u2003\u2003b\u3000\u3000c\u2028d\u2029e\u0085f\u1680g\u180eh\u200bi\ufeffj",
    "e\u0301e\u0302\u0323 \u0915\u094d\u0937 \u1112\u1161\u11ab",
    "👨‍👩‍👧‍👦👍🏽🇮🇹🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "▁a▁▁b ▁ c▁",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    " " * 70 + "x",
    "\t" * 40 + "\n" * 40,
    "ABCdefGHIjkl camelCase snake_case kebab-case SCREAMING_CASE",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
]
PRETOKENIZERS = ("default", "gpt-2", "llama-bpe", "qwen2", "smaug-bpe", "deepseek-r1-qwen", "starcoder")


def texts() -> list[str]:
    """The written texts and 200 drawn ones."""
    draw = random.Random(20)
    found = list(WRITTEN)
    for _ in range(200):
        rows = draw.sample(SCRIPTS, draw.randint(1, 3))
        letters = [chr(draw.randint(*draw.choice(rows))) for _ in range(draw.randint(1, 30))]
        found.append("".join(letters))
    return found


class Peer:
    """llama.cpp's server over one model."""

    def __init__(self, path: Path) -> None:
        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.warmup, params.port = str(path), 256, False, 0
        params.cpuparams.n_threads = 2
        self._server = xllamacpp.Server(params)

    def ids(self, text: str, special: bool) -> list[int]:
        """The ids of one text."""
        body = json.dumps({"content": text, "add_special": False, "parse_special": special}).encode()
        url = f"{self._server.listening_address}/tokenize"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            tokens: list[int] = json.load(reply)["tokens"]
        return tokens


def vocabulary_of(path: str) -> dict[str, Value]:
    """The tokenizer keys of a model file, as a writer takes them."""
    with open_gguf(path) as model:
        items = {k: v for k, v in model.metadata.items() if k.startswith("tokenizer.")}
        return {k: v.to_list() if k.endswith((".tokens", ".merges")) else v for k, v in items.items()}


def asked(vocabulary: dict[str, Value], folder: Path, *, special: bool) -> dict[str, list[list[int]]]:
    """What the peer says about all texts."""
    path = tiny_model(folder / "m.gguf", "llama", vocabulary=vocabulary, n_layers=1, d_model=32, d_head=8, format=F32)
    peer = Peer(path)
    found = {"ids": [peer.ids(text, False) for text in texts()]}
    if special:
        found["ids_special"] = [peer.ids(text, True) for text in texts()]
    return found


def main() -> None:
    """Ask the peer about everything."""
    smollm2, gemma3 = vocabulary_of(sys.argv[1]), vocabulary_of(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        golden = {
            "made_with": f"llama.cpp through xllamacpp {version('xllamacpp')}, by tests/golden/make_tokenize.py",
            "texts": texts(),
            "smollm2": asked(smollm2, folder, special=True),
            "gemma3-270m": asked(gemma3, folder, special=True),
            "pre": {
                pre: asked({**smollm2, "tokenizer.ggml.pre": pre}, folder, special=False)["ids"]
                for pre in PRETOKENIZERS
            },
        }
    target = Path(__file__).with_name("tokenize-peer.json")
    target.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(target, target.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
