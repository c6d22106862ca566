"""What type checkers conclude of `schema=`: the type that is asked for is the type that comes."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from dataclasses import dataclass
from typing import Any, assert_type

import fucina
from fucina import Completion, Constraint, Conversation, Model

@dataclass
class Answer:
    text: str

def ask(model: Model, talk: Conversation) -> None:
    assert_type(model.chat("hi"), Completion)
    assert_type(model.chat("hi", constraint=Constraint.regex("a")), Completion)
    assert_type(model.chat("hi", schema=Answer), Answer)
    assert_type(model.chat("hi", schema=list[int]), list[int])
    assert_type(model.chat("hi", schema={"type": "string"}), Any)
    assert_type(model.chat("hi", schema="true"), Any)
    assert_type(talk.send("hi"), Completion)
    assert_type(talk.send("hi", schema=Answer), Answer)
    assert_type(talk.send("hi", schema={"type": "string"}), Any)
    assert_type(model.generate_batch(["a"], constraints=[None, Constraint.any_json()]), list[Completion])
"""


def test_the_type_asked_for_is_the_type_that_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    monkeypatch.chdir(ROOT)
    out, errors, code = api.run([str(program)])
    assert code == 0, out + errors
