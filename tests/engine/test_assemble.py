"""fucina.load on tiny models of every family, and on the real ones: schedules do not show in what is said."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fucina
from fucina.core.formats import Q8_0
from fucina.decoding.params import SamplingParams
from fucina.engine.events import TokenEvent
from fucina.errors import ConfigError, UnknownModel
from fucina.testing.tiny_gguf import FAMILIES, tiny_model

PROMPTS = ["Once upon a time", "def f(x):\n    return x", "z" * 150, "The sea, the sea!"]
PARAMS = [
    SamplingParams(max_tokens=20, ignore_eos=True),
    SamplingParams(max_tokens=15, ignore_eos=True, temperature=1.0, seed=3),
    SamplingParams(max_tokens=10, ignore_eos=True, temperature=0.8, top_p=0.9, repeat_penalty=1.2, seed=4),
    SamplingParams(max_tokens=12, ignore_eos=True, logprobs=2),
]


@pytest.fixture(scope="module", params=list(FAMILIES))
def tiny_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "model.gguf", request.param, format=Q8_0)


def said(model: fucina.Model) -> list[Any]:
    return [(c.ids, c.text, c.logprobs) for c in map(model.generate, PROMPTS, PARAMS)]


def test_every_schedule_says_the_same(tiny_path: Path) -> None:
    with fucina.load(tiny_path) as model:
        alone = said(model)
        together = model.generate_batch(PROMPTS, PARAMS)
        assert [(c.ids, c.text, c.logprobs) for c in together] == alone
    for options in ({"prefill_chunk": 1, "threads": 1}, {"prefill_chunk": 7}, {"context": 200}, {"repack": False}):
        with fucina.load(tiny_path, **options) as model:
            assert said(model) == alone
            together = model.generate_batch(PROMPTS, PARAMS)
            assert [(c.ids, c.text, c.logprobs) for c in together] == alone


def test_a_warm_turn_is_a_cold_turn(tiny_path: Path) -> None:
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    with fucina.load(tiny_path) as model, fucina.load(tiny_path) as other, model.conversation() as talk:
        for turn in ("Hello!", "And then?", "Why?"):
            warm = talk.send(turn, params)
            cold = other.chat(talk.messages[:-1], params)
            other.forget_prefixes()
            assert (warm.prompt_ids, warm.ids, warm.text) == (cold.prompt_ids, cold.ids, cold.text)
        assert warm.usage.cached_tokens > 10
        assert cold.usage.cached_tokens == 0


def test_logits_rows_are_what_generate_chose_from(tiny_path: Path) -> None:
    with fucina.load(tiny_path) as model:
        completion = model.generate(PROMPTS[0], PARAMS[0])
        ids = [*completion.prompt_ids, *completion.ids]
        rows = model.logits(ids, chunk=5)
        chosen = rows[len(completion.prompt_ids) - 1 : -1].argmax(axis=1)
        assert chosen.tolist() == completion.ids
        assert np.array_equal(rows, model.logits(ids))


def test_options_that_cannot_be(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "model.gguf", "llama", n_layers=1)
    wrongs: list[dict[str, Any]] = [
        {"context": 0},
        {"context": 513},
        {"context": True},
        {"prefill_chunk": 0},
        {"prefill_chunk": 10**9},
        {"kv_format": "f64"},
        {"threads": 0},
        {"backend": "cuda"},
    ]
    for wrong in wrongs:
        with pytest.raises(ConfigError):
            fucina.load(path, **wrong)
    with pytest.raises(UnknownModel):
        fucina.load("no such model")


@pytest.mark.model
def test_smollm2_talks(smollm2_path: Path) -> None:
    params = SamplingParams(max_tokens=24)
    with fucina.load(smollm2_path, context=1024) as model, model.conversation() as talk:
        first = talk.send("Name three primary colors.", params)
        assert "blue" in first.text.lower()
        heard = [event.token for event in talk.stream("And one more?", params) if isinstance(event, TokenEvent)]
        assert heard == model.chat(talk.messages[:-1], params).ids


def test_loading_tells_how_far_it_is(tmp_path: Path) -> None:
    path, told = tiny_model(tmp_path / "m.gguf", "llama", n_layers=3), list[tuple[str, int, int | None]]()
    with fucina.load(path, progress=lambda *one: told.append(one)):
        (total,) = {one[2] for one in told}
        assert total is not None
        assert [one[1] for one in told] == [total // 3, 2 * total // 3, total]
        assert {one[0] for one in told} == {"loading m.gguf"}
