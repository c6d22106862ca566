"""Compare masks with what can be consumed for every token of a real vocabulary, at 200 states: some minutes.

Usage: python tests/decoding/grammar/sweep_masks.py MODEL.gguf [N_STATES]
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np

from fucina.storage.gguf import open_gguf
from fucina.text.tokenizer import Tokenizer


def main() -> int:
    tests, n_states = _beside("test_matcher"), int(sys.argv[2]) if len(sys.argv) > 2 else 200
    grammars = _beside("conftest").Grammars(Tokenizer.from_metadata(open_gguf(Path(sys.argv[1])).metadata))
    n_tokens = n_allowed = wrong = 0
    started = time.perf_counter()
    for matcher in tests.random_states(grammars, n_states, seed=11):
        allowed = np.zeros(grammars.vocabulary.vocab_size, np.bool_)
        allowed[grammars.allowed(matcher)] = True
        for token, is_allowed in enumerate(allowed.tolist()):
            wrong += (matcher.valid_prefix_len((token,)) == 1) != is_allowed
        n_tokens += len(allowed)
        n_allowed += int(allowed.sum())
    print(f"{n_states} states, {n_tokens} tokens, {n_allowed} of them allowed, {wrong} contradictions, "
          f"{time.perf_counter() - started:.0f} s")  # fmt: skip
    return int(wrong > 0)


def _beside(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
