"""What a decode step costs outside the model: scheduling, batch, choice, stops, text, events.

Claim: under 60 us a token for one greedy sequence. Usage: step_overhead.py [--tokens N] [--vocab N] [--repeat N].
The model is scripted; its forward is timed and taken off, and gives one row of logits over and over, so that only the
engine's own work is left. Prints one line a case, the least of the repeats, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fucina.core.cpu import usable_cpus
from fucina.decoding.params import SamplingParams
from fucina.engine.engine import Engine
from fucina.engine.model import Model
from fucina.engine.request import Request
from fucina.ops.batch import Batch
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

CASES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, two stop strings": {"stop": ("END", "\n\n")},
    "greedy, repeat penalty": {"repeat_penalty": 1.1},
    "greedy, 5 logprobs": {"logprobs": 5},
    "temperature 0.8, top-k 40, top-p 0.95": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 1},
    "temperature 1, whole vocabulary": {"temperature": 1.0, "seed": 1},
}


class WideBytes(ByteTokenizer):
    """A byte tokenizer that takes every id of a wide vocabulary for a byte."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size


class FixedModel(ScriptedModel):
    """Gives the same random row for every wanted row, and counts the seconds spent here."""

    def __init__(self, vocab: int, n_tokens: int) -> None:
        super().__init__(vocab=vocab, context_length=n_tokens + 64)
        row = np.random.default_rng(0).normal(0, 3, vocab).astype(np.float32)
        row[256:] -= 10  # bytes lead, so that there is text
        self.rows = np.tile(row, (self.max_rows, 1))
        self.seconds = 0.0

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits (batch.n_logits, vocab) f32."""
        before = time.perf_counter()
        logits = self.rows[: batch.n_logits]
        self.seconds += time.perf_counter() - before
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--vocab", type=int, default=49152)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    results = {}
    for case, asked in CASES.items():
        params = SamplingParams(max_tokens=options.tokens, ignore_eos=True, **asked)
        results[case] = min(engine_us(params, options.vocab) for _ in range(options.repeat))
    greedy = SamplingParams(max_tokens=options.tokens, ignore_eos=True)
    results["greedy, 8 sequences, each"] = min(engine_us(greedy, options.vocab, 8) for _ in range(options.repeat))
    results["greedy, through Model.stream"] = min(stream_us(greedy, options.vocab) for _ in range(options.repeat))
    for case, us in results.items():
        print(f"{case:40s} {us:7.1f} us a token")
    record = {"vocab": options.vocab, "tokens": options.tokens, "cpus": usable_cpus(), "us_per_token": results}
    print(json.dumps(record))


def engine_us(params: SamplingParams, vocab: int, n_sequences: int = 1) -> float:
    """Microseconds a token outside the forward pass."""
    assert params.max_tokens is not None
    model = FixedModel(vocab, params.max_tokens)
    engine = Engine(model, WideBytes(vocab))
    for _ in range(n_sequences):
        engine.submit(Request(prompt_ids=[1], params=params))
    return timed_us(model, engine.run(), params.max_tokens * n_sequences)


def stream_us(params: SamplingParams, vocab: int) -> float:
    """The same through the facade: one lock and one generator more."""
    assert params.max_tokens is not None
    model = FixedModel(vocab, params.max_tokens)
    return timed_us(model, Model(model, WideBytes(vocab)).stream([1], params), params.max_tokens)


def timed_us(model: FixedModel, events: Iterable[object], n_tokens: int) -> float:
    before = time.perf_counter()
    for _ in events:
        pass
    return (time.perf_counter() - before - model.seconds) / n_tokens * 1e6


if __name__ == "__main__":
    main()
