"""`fucina tokenize`: the ids of the model's own tokenizer and the bytes they stand for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fucina


def test_ids_and_pieces(invoke, tiny_path: Path) -> None:
    shown = json.loads(invoke("tokenize", tiny_path, "the inn, é", "--json").stdout)
    with fucina.load(tiny_path) as model:
        assert shown["ids"] == model.tokenizer.encode("the inn, é")
    assert "".join(shown["pieces"][:3]) == "the inn"[: len("".join(shown["pieces"][:3]))]
    assert "\\xc3" in shown["pieces"]


def test_one_line_a_token(invoke, tiny_path: Path) -> None:
    ids = json.loads(invoke("tokenize", tiny_path, "hello there", "--json").stdout)["ids"]
    result = invoke("tokenize", tiny_path, "hello there")
    assert [int(line.split()[0]) for line in result.stdout.splitlines()] == ids
    assert f"{len(ids)} tokens" in result.stderr


def test_special_takes_markers_as_tokens(invoke, tiny_path: Path) -> None:
    marker = "<|im_start|>"
    plain = json.loads(invoke("tokenize", tiny_path, marker, "--json").stdout)
    special = json.loads(invoke("tokenize", tiny_path, marker, "--special", "--json").stdout)
    assert len(special["ids"]) == 1
    assert special["pieces"] == [marker]
    assert len(plain["ids"]) > 1
    assert "".join(plain["pieces"]) == marker


def test_text_may_be_piped(invoke, tiny_path: Path) -> None:
    piped = invoke("tokenize", tiny_path, "--json", input="hello\n").stdout
    assert piped == invoke("tokenize", tiny_path, "hello", "--json").stdout


@pytest.mark.model
def test_real_vocabulary(invoke, smollm2_path: Path) -> None:
    shown = json.loads(invoke("tokenize", smollm2_path, "Hello, world!", "--json").stdout)
    assert "".join(shown["pieces"]) == "Hello, world!"
