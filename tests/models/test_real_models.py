"""The two real models against llama.cpp: its greedy answers, its log-probabilities, its perplexity.

Everything here is teacher-forced: the peer's tokens go in, and every position is compared by itself. The peer rounds
activations to int8 as we do, so both carry noise of that size: top log-probabilities differ by a tenth on average, and
the peer's own Gemma perplexity moves by half a percent with its batch size and attention kernel.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.nativelib import Absent, open_native
from fucina.models.loader import DecoderLM, load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.choose import open_ops
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.sequence import KvSequence
from fucina.text.tokenizer import Tokenizer

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(isinstance(open_native(), Absent), reason="too slow without the compiled extension"),
]

GOLDEN = Path(__file__).parents[1] / "golden"
CERTAIN_MARGIN = 0.25
MAX_ROWS = 128


@dataclass(frozen=True)
class Real:
    """A real model, and the peer's golden file for it."""

    name: str
    model: DecoderLM
    tokenizer: Tokenizer
    golden: dict[str, Any]


@pytest.fixture(scope="module", params=["smollm2", "gemma3-270m"])
def real(request: pytest.FixtureRequest) -> Real:
    name = str(request.param)
    path: Path = request.getfixturevalue("smollm2_path" if name == "smollm2" else "gemma3_path")
    with open_gguf(path) as gguf:
        return Real(
            name,
            load_causal_lm(gguf, open_ops(max_rows=MAX_ROWS), context=2048),
            Tokenizer.from_metadata(gguf.metadata),
            json.loads((GOLDEN / f"greedy-{name}.json").read_text()),
        )


def _log_probabilities(model: DecoderLM, ids: list[int], first: int = 0) -> Iterator[NDArray[np.float64]]:
    """Of positions first .. len(ids) - 1 of one sequence, (positions, vocab) in pieces of at most MAX_ROWS."""
    sequence = KvSequence(model.kv_pool)
    for start in range(0, len(ids), MAX_ROWS):
        tokens = ids[start : start + MAX_ROWS]
        sequence.reserve(len(tokens))
        wanted = min(len(tokens), max(0, start + len(tokens) - first))
        logits = model.forward(Batch((Span(tokens, start, sequence.blocks, wanted),))).astype(np.float64)
        sequence.advance(len(tokens))
        logits -= logits.max(axis=1, keepdims=True)
        yield logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    sequence.close()


@dataclass(frozen=True)
class Step:
    """One position of a greedy answer, with the peer's margin between its first and second choice."""

    place: tuple[int, int]
    margin: float
    agrees: bool
    differences: list[float]


def _steps(real: Real) -> Iterator[Step]:
    for index, case in enumerate(real.golden["cases"]):
        ids = case["prompt_ids"] + [step["id"] for step in case["steps"]]
        rows = np.concatenate(list(_log_probabilities(real.model, ids[:-1], len(case["prompt_ids"]) - 1)))
        for i, (row, step) in enumerate(zip(rows, case["steps"], strict=True)):
            (_, first), (_, second) = step["top"][:2]
            yield Step(
                place=(index, i),
                margin=first - second,
                agrees=int(row.argmax()) == step["id"],
                differences=[abs(row[token] - logprob) for token, logprob in step["top"]],
            )


def test_greedy_choices_agree_where_the_peer_is_certain(real: Real) -> None:
    steps = list(_steps(real))
    certain = [step for step in steps if step.margin > CERTAIN_MARGIN]
    differences = np.concatenate([step.differences for step in steps])
    for what, some in (("choices", steps), (f"where the peer's margin exceeds {CERTAIN_MARGIN}", certain)):
        print(f"{real.name}: {sum(step.agrees for step in some)} of {len(some)} agree, {what}")
    print(f"  top-5 log-probabilities differ by {differences.mean():.3f} on average, {differences.max():.2f} at most")
    assert len(certain) > 250, "the golden files must have something to agree with"
    assert [(step.place, step.margin) for step in certain if not step.agrees] == []
    assert differences.mean() < 0.2


def test_perplexity_agrees(real: Real) -> None:
    golden = real.golden["perplexity"]
    text = (GOLDEN / golden["text_file"]).read_text(encoding="utf-8")
    ids = real.tokenizer.encode(text, add_bos=golden["bos"])[: golden["tokens"]]
    assert len(ids) == golden["tokens"]
    total, position = 0.0, 0
    for rows in _log_probabilities(real.model, ids[:-1]):
        targets = ids[position + 1 : position + 1 + len(rows)]
        total -= rows[np.arange(len(rows)), targets].sum()
        position += len(rows)
    ours = total / position
    off = math.exp(ours - golden["mean_nll"]) - 1
    print(f"{real.name}: perplexity {math.exp(ours):.4f}, the peer's {golden['perplexity']:.4f} ({off:+.3%})")
    assert abs(off) <= 0.005
