"""A tiny model in every block format says what llama.cpp says (tests/golden/make_format_logits.py makes the logits)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fucina.core.formats import SUPPORTED, Format
from fucina.core.nativelib import Absent, open_native
from fucina.models.loader import load_causal_lm
from fucina.ops.batch import Batch, Span
from fucina.ops.choose import open_ops
from fucina.storage.gguf import open_gguf
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.tiny_gguf import tiny_model

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "logits-formats.npz")
BLOCK_FORMATS = [fmt for fmt in SUPPORTED.values() if fmt.block_weights > 1]
SEED, STRIDE = 9, 8

#: Root mean square of the difference as a share of the logits' spread. Both sides round the input of every product to
#: int8 per block; the peer stores the scales of blocks of 32 as half floats, and a last bit can carry any value over a
#: rounding boundary, a step of 1/127 of its block's largest. Measured: 0.018 to 0.030, on NumPy and natively.
#: Two scales of Q3_K swapped give 1.3, one entry of IQ4's table off by five gives 0.14.
ROUNDED = 0.04


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=lambda f: f.name)
def test_logits_are_those_of_llama_cpp(fmt: Format, backend: str, tmp_path: Path) -> None:
    if backend == "native" and isinstance(open_native(), Absent):
        pytest.skip("the compiled extension is not built")
    ids = GOLDEN["ids"].tolist()
    with open_gguf(tiny_model(tmp_path / "tiny.gguf", "llama", format=fmt, seed=SEED)) as gguf:
        model = load_causal_lm(gguf, open_ops(max_rows=64, threads=1, backend=backend), context=128)
        sequence = KvSequence(model.kv_pool)
        sequence.reserve(len(ids))
        logits = model.forward(Batch((Span(ids, 0, sequence.blocks, len(ids)),))).copy()
    expected = GOLDEN[fmt.name].astype(np.float32)
    difference = logits[STRIDE - 1 :: STRIDE] - expected
    share = float(np.sqrt(np.mean(difference**2)) / expected.std())
    print(f"{fmt.name}, {backend}: {share:.3f} of the spread")
    assert share <= ROUNDED
