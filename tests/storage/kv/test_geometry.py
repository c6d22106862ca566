"""Sizes and places of keys and values, counted out by hand."""

from __future__ import annotations

import pytest

from fucina.errors import ConfigError
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry

TWO_LAYERS = (LayerGeometry(kv_heads=2, d_head=32), LayerGeometry(kv_heads=1, d_head=64))


def test_half_floats_take_two_bytes_for_each_of_64_positions() -> None:
    geometry = KvGeometry(TWO_LAYERS, "f16")
    assert geometry.head_bytes(32) == 64 * 32 * 2
    assert geometry.layer_bytes(0) == 2 * (2 * 64 * 32 * 2)
    assert geometry.layer_offset(1) == geometry.layer_bytes(0) == 16_384
    assert geometry.block_bytes == 16_384 + 2 * (64 * 64 * 2)


def test_eight_bits_take_a_byte_and_a_float_for_every_32() -> None:
    geometry = KvGeometry(TWO_LAYERS, "q8_0")
    assert geometry.head_bytes(32) == 64 * 32 + 64 * 4
    assert geometry.head_bytes(64) == 64 * 64 + 64 * 2 * 4
    assert geometry.block_bytes == 2 * 2 * 2304 + 2 * 4608


@pytest.mark.parametrize("kv_format", ["f64", "", "F16", "q4_0"])
def test_unknown_formats_are_refused(kv_format: str) -> None:
    with pytest.raises(ConfigError, match="KV format"):
        KvGeometry(TWO_LAYERS, kv_format)


def test_heads_that_do_not_fill_groups_of_32_are_refused_for_eight_bits_only() -> None:
    narrow = (LayerGeometry(kv_heads=1, d_head=48),)
    assert KvGeometry(narrow, "f16").block_bytes == 2 * 64 * 48 * 2
    with pytest.raises(ConfigError, match="multiple of 32"):
        KvGeometry(narrow, "q8_0")
