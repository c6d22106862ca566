from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import quants as peer

from fucina.core.formats import F32, MXFP4, Q4_K, Q8_0, SUPPORTED, Format
from fucina.errors import ShapeError, UnsupportedFormat
from fucina.ops.reference.dequant import dequantize

FORMATS = list(SUPPORTED.values())


def peer_weights(data: np.ndarray, fmt: Format) -> np.ndarray:
    with np.errstate(all="ignore"):
        return peer.dequantize(data, gguf.GGMLQuantizationType(fmt.type_id))


def assert_same_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == np.float32
    both_nan = np.isnan(ours) & np.isnan(theirs)
    different = (ours.view(np.uint32) != theirs.view(np.uint32)) & ~both_nan
    assert not different.any()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_random_bytes_give_the_bits_of_the_gguf_package(fmt: Format) -> None:
    # random bytes hold every kind of half float: NaN, infinities, subnormal and extreme scales
    rng = np.random.default_rng(fmt.type_id)
    data = rng.integers(0, 256, size=fmt.block_bytes * 4096, dtype=np.uint8)
    ours = dequantize(data, fmt)
    assert ours.shape == (fmt.block_weights * 4096,)
    assert_same_bits(ours, peer_weights(data, fmt))


@pytest.mark.parametrize("scale", [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x3C00])
@pytest.mark.parametrize("fmt", [f for f in FORMATS if f.block_weights > 1 and f != MXFP4], ids=lambda f: f.name)
def test_extreme_scales_give_the_bits_of_the_gguf_package(fmt: Format, scale: int) -> None:
    rng = np.random.default_rng(scale)
    blocks = rng.integers(0, 256, size=(64, fmt.block_bytes), dtype=np.uint8)
    halves = np.frombuffer(np.uint16(scale).tobytes(), np.uint8)
    scale_at = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208}.get(fmt.name, 0)
    blocks[:, scale_at : scale_at + 2] = halves
    if fmt.name in ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"):
        blocks[::2, scale_at + 2 : scale_at + 4] = halves  # of the minima
    assert_same_bits(dequantize(blocks.reshape(-1), fmt), peer_weights(blocks.reshape(-1), fmt))


def test_every_exponent_gives_the_bits_of_the_gguf_package() -> None:
    blocks = np.random.default_rng(39).integers(0, 256, size=(256, MXFP4.block_bytes), dtype=np.uint8)
    blocks[:, 0] = np.arange(256)
    assert_same_bits(dequantize(blocks.reshape(-1), MXFP4), peer_weights(blocks.reshape(-1), MXFP4))


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_a_row_alone_equals_the_row_among_others(fmt: Format) -> None:
    rng = np.random.default_rng(7)
    row_bytes = fmt.row_bytes(512)
    data = rng.integers(0, 128, size=9 * row_bytes, dtype=np.uint8)
    every_row = dequantize(data, fmt).reshape(9, 512)
    assert_same_bits(dequantize(data[3 * row_bytes : 4 * row_bytes], fmt), every_row[3])


def test_the_source_is_not_changed_and_may_be_read_only_and_strided() -> None:
    data = np.arange(2 * 34, dtype=np.uint8)
    data.flags.writeable = False
    twice = np.repeat(data, 2)
    assert_same_bits(dequantize(twice[::2], Q8_0), dequantize(data, Q8_0))


def test_a_float_result_is_new_memory() -> None:
    data = np.zeros(16, dtype=np.uint8)
    dequantize(data, F32)[:] = 1
    assert not data.any()


def test_broken_blocks_and_unknown_formats_are_refused() -> None:
    with pytest.raises(ShapeError, match="multiple of 144"):
        dequantize(np.zeros(143, dtype=np.uint8), Q4_K)
    with pytest.raises(UnsupportedFormat, match=r"IQ2_XXS.*Q4_K"):
        dequantize(np.zeros(66, dtype=np.uint8), Format(16, "IQ2_XXS", 256, 66))
