"""A chat with a real model, its program ended between two turns."""

from __future__ import annotations

from pathlib import Path

import pytest

import fucina
from fucina import SamplingParams

TURNS = ["What is gravity?", "Say that in simpler words.", "Name a planet with less of it."]
PARAMS = SamplingParams(max_tokens=40)


@pytest.mark.model
@pytest.mark.parametrize("kv_format", ["f16", "q8_0"])
def test_a_chat_reopens_without_reading_anything_again(smollm2_path: Path, tmp_path: Path, kv_format: str) -> None:
    with fucina.load(smollm2_path, kv_format=kv_format) as model, model.conversation("Be brief.") as talk:
        whole = [talk.send(turn, PARAMS) for turn in TURNS]
    answers = []
    for turn in TURNS:
        with (
            fucina.load(smollm2_path, kv_format=kv_format) as model,
            model.conversation("Be brief.", file=tmp_path / "talk") as talk,
        ):
            answers.append(talk.send(turn, PARAMS))
    assert [(answer.ids, answer.text, answer.usage) for answer in answers] == [
        (answer.ids, answer.text, answer.usage) for answer in whole
    ]
    last = whole[-2].usage
    assert answers[-1].usage.cached_tokens == last.prompt_tokens + last.completion_tokens - 1
