"""The page about GGUF support says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from fucina.core.formats import SUPPORTED
from fucina.storage.gguf import limits

PAGE = (Path(__file__).parents[3] / "docs/reference/gguf-support.md").read_text("utf-8")


def test_formats_are_those_that_run() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    written = {(name, int(n), int(weights), int(size), float(bits)) for name, n, weights, size, bits in rows}
    assert written == {
        (f.name, f.type_id, f.block_weights, f.block_bytes, f.block_bytes * 8 / f.block_weights)
        for f in SUPPORTED.values()
    }


def test_limits_are_those_of_the_reader() -> None:
    for words in (
        f"at most {limits.HEADER_BYTES // 2**20} MiB",
        f"at most {limits.KEYS}; UTF-8",
        f"at most {limits.KEY_BYTES:,} bytes",
        f"at most {limits.TEXT_BYTES // 2**20} MiB, UTF-8",
        f"at most {limits.STRINGS:,} in all",
        f"at most {limits.ODD_STRINGS:,} that begin or end in NUL",
        f"from {limits.SMALLEST_ALIGNMENT} to {limits.LARGEST_ALIGNMENT:,}; {limits.DEFAULT_ALIGNMENT} when absent",
        f"at most {limits.TENSORS:,} a file",
        f"at most {limits.NAME_BYTES} bytes",
        f"1 to {limits.DIMENSIONS}, each at least 1",
    ):
        assert words in PAGE
