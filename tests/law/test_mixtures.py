"""The law for mixtures of experts: Mixtral, without repacking, and with drafts: rows that have experts of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fucina.core.formats import Q4_K, Q8_0, Format
from fucina.decoding.params import SamplingParams
from fucina.engine.completion import collect
from fucina.engine.engine import Engine
from fucina.engine.request import Request
from fucina.engine.speech import ModelSpeech
from fucina.models.loader import load_causal_lm
from fucina.ops.choose import open_ops
from fucina.storage.gguf import open_gguf
from fucina.testing.tiny_gguf import tiny_model
from fucina.text.template import ChatTemplate
from fucina.text.tokenizer import Tokenizer

MIXTRAL: dict[str, Any] = {"n_experts": 4, "n_used": 2}
#: More experts than any row uses, so that those of a pass differ from those of its rows.
MANY: dict[str, Any] = {"n_experts": 24, "n_used": 4}
PARAMS = {
    "greedy": SamplingParams(max_tokens=24, ignore_eos=True, logprobs=2),
    "sampled": SamplingParams(max_tokens=24, ignore_eos=True, logprobs=2, temperature=1.0, top_p=0.9, seed=3),
}


@pytest.mark.parametrize("weight_format", [Q8_0, Q4_K], ids=lambda f: f.name)
def test_mixtral(tmp_path: Path, assert_law: Callable[..., None], weight_format: Format) -> None:
    path = tiny_model(tmp_path / "model.gguf", "llama", format=weight_format, seed=11, **MIXTRAL)
    ids = [int(i) for i in np.random.default_rng(11).integers(3, 250, 90)]
    assert_law(path, ids, chunks=(1, 7, 512), slow_ids=66)


@pytest.mark.parametrize("family", ["qwen2moe", "qwen3moe"])
def test_without_repacking(tmp_path: Path, assert_same_unpacked: Callable[..., None], family: str) -> None:
    path = tiny_model(tmp_path / "model.gguf", family, format=Q4_K, seed=12, **MANY)
    ids = [int(i) for i in np.random.default_rng(12).integers(3, 250, 24)]
    assert_same_unpacked(path, ids)


class Foresight:
    """Knows the answer, and gets every third token wrong."""

    def __init__(self, n_prompt: int, answer: Sequence[int]) -> None:
        self._n_prompt, self._answer = n_prompt, answer

    def suggest(self, context: Sequence[int], max_tokens: int) -> Sequence[int]:
        """Up to five of the tokens that follow."""
        done = len(context) - self._n_prompt
        rest = self._answer[done : done + min(max_tokens, 5)]
        return [token if (done + i) % 3 else token ^ 1 for i, token in enumerate(rest)]

    def observe(self, committed: Sequence[int]) -> None:
        """Learns nothing."""


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
@pytest.mark.parametrize("family", ["qwen2moe", "qwen3moe"])
def test_drafts_do_not_show(tmp_path: Path, family: str, params: SamplingParams) -> None:
    path = tiny_model(tmp_path / "model.gguf", family, format=Q4_K, seed=13, **MANY)
    gguf = open_gguf(path)
    tokenizer = Tokenizer.from_metadata(gguf.metadata, path=path)
    lm = load_causal_lm(gguf, open_ops(max_rows=64, threads=2), context=256)
    speech = ModelSpeech(tokenizer, ChatTemplate.from_metadata(gguf.metadata, tokenizer.vocabulary, path=path))
    prompts = [speech.prompt_ids(text) for text in ("Once upon a time", "The sea, the sea!")]

    def answers(sources: Sequence[Foresight | None]) -> list[Any]:
        engine = Engine(lm, speech)
        events: dict[int, list[Any]] = {}
        for prompt, source in zip(prompts, sources, strict=True):
            events[engine.submit(Request(prompt_ids=prompt, params=params, draft_source=source))] = []
        for event in engine.run():
            events[event.request_id].append(event)
        done = [collect(prompt, own) for prompt, own in zip(prompts, events.values(), strict=True)]
        engine.close()
        return done

    plain = answers([None, None])
    drafted = answers([Foresight(len(p), c.ids) for p, c in zip(prompts, plain, strict=True)])
    for with_drafts, without in zip(drafted, plain, strict=True):
        assert (with_drafts.ids, with_drafts.logprobs) == (without.ids, without.logprobs)
        assert with_drafts.speculation.accepted > 4
        assert with_drafts.speculation.rejected > 4
