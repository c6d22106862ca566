from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import quants as peer
from hypothesis import given, settings
from hypothesis import strategies as st

from fucina.core.formats import SUPPORTED, Format
from fucina.errors import ShapeError
from fucina.testing.quantize import quantize

FORMATS = list(SUPPORTED.values())
#: Worst error of one weight as a share of its block's largest magnitude: half a step of the format, plus the rounding
#: of scales (a half float; in blocks of 256, 4 to 7 bits of the largest scale, which costs the most in flat ones). Q3_K
#: and IQ4 reach the largest magnitude on one side only: 3 of 4 steps, and 113 of 127, on the other.
WORST = {
    "F32": 0.0,
    "F16": 2**-11,
    "BF16": 2**-8,
    "Q4_0": 0.126,
    "Q4_1": 0.068,
    "Q5_0": 0.064,
    "Q5_1": 0.034,
    "Q8_0": 0.005,
    "Q2_K": 0.45,
    "Q3_K": 0.27,
    "Q4_K": 0.12,
    "Q5_K": 0.09,
    "Q6_K": 0.03,
    "IQ4_NL": 0.112,
    "IQ4_XS": 0.13,
    "MXFP4": 0.201,
}


def round_trip(weights: np.ndarray, fmt: Format) -> np.ndarray:
    return peer.dequantize(quantize(weights, fmt), gguf.GGMLQuantizationType(fmt.type_id)).reshape(weights.shape)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("shift", [0.0, 1.5, -1.5])
def test_what_the_peer_reads_back_is_near(fmt: Format, shift: float) -> None:
    rng = np.random.default_rng(3)
    weights = (rng.normal(size=(64, 512)) + shift).astype(np.float32)
    block = max(fmt.block_weights, 32)
    error = np.abs(round_trip(weights, fmt) - weights).reshape(-1, block).max(axis=1)
    largest = np.abs(weights).reshape(-1, block).max(axis=1)
    assert (error <= WORST[fmt.name] * largest).all()


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f.block_weights > 1], ids=lambda f: f.name)
def test_zeros_stay_zeros(fmt: Format) -> None:
    assert not round_trip(np.zeros((2, 256), dtype=np.float32), fmt).any()


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f.name[:2] in ("F3", "F1", "BF")], ids=lambda f: f.name)
def test_float_formats_equal_the_peers_own_encoding(fmt: Format) -> None:
    weights = np.random.default_rng(5).normal(size=(8, 64)).astype(np.float32)
    theirs = peer.quantize(weights, gguf.GGMLQuantizationType(fmt.type_id)).view(np.uint8).reshape(-1)
    assert (quantize(weights, fmt) == theirs).all()


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-12, 9), fmt=st.sampled_from(FORMATS))
def test_any_magnitude_has_the_right_length_and_finite_weights(seed: int, exponent: int, fmt: Format) -> None:
    weights = (np.random.default_rng(seed).normal(size=(2, 256)) * 2.0**exponent).astype(np.float32)
    assert quantize(weights, fmt).shape == (2 * fmt.row_bytes(256),)
    assert np.isfinite(round_trip(weights, fmt)).all()


def test_rows_that_are_not_whole_blocks_are_refused() -> None:
    with pytest.raises(ShapeError, match="multiple of 256"):
        quantize(np.zeros((4, 128), dtype=np.float32), SUPPORTED[12])
