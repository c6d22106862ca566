"""One layer's keys and values inside the blocks of a KvPool, as NumPy views of its memory.

The layout is the one of storage/kv/geometry.py; writing rounds (to half floats, or to int8 with a scale per 32
values; f32 keeps all), reading gives float32 back.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.ops.reference.quantize import quantize_blocks
from fucina.storage.kv.pool import KvPool

_GROUP = 32


class LayerCache(Protocol):
    """Keys and values of one layer, over all blocks of the pool."""

    def write(self, block: int, slot: int, k: NDArray[np.float32], v: NDArray[np.float32]) -> None:
        """Store one position; k and v (kv_heads, d_head) f32."""

    def keys(self, block: int, start: int, stop: int) -> NDArray[np.float32]:
        """Keys of slots start .. stop - 1, (kv_heads, d_head, stop - start) f32."""

    def values(self, block: int, start: int, stop: int) -> NDArray[np.float32]:
        """Values of the same slots, (kv_heads, stop - start, d_head) f32."""


def layer_cache(pool: KvPool, layer: int) -> LayerCache:
    """The view of that layer in the pool's own format."""
    geometry, heads = pool.geometry, pool.geometry.layers[layer]
    blocks = np.frombuffer(pool.memory, np.uint8).reshape(pool.capacity, geometry.block_bytes)
    start, half = geometry.layer_offset(layer), geometry.layer_bytes(layer) // 2
    shape = (pool.capacity, heads.kv_heads, geometry.head_bytes(heads.d_head))
    k = blocks[:, start : start + half].reshape(shape)
    v = blocks[:, start + half : start + 2 * half].reshape(shape)
    if geometry.format == "q8_0":
        return EightBitCache(k, v, heads.d_head)
    return FloatCache(k, v, heads.d_head, np.dtype(np.float16 if geometry.format == "f16" else np.float32))


class FloatCache:
    """K (d_head, 64) and V (64, d_head) as half floats or floats."""

    def __init__(
        self, k: NDArray[np.uint8], v: NDArray[np.uint8], d_head: int, dtype: np.dtype[np.floating[Any]]
    ) -> None:
        self._k = k.view(dtype).reshape(*k.shape[:2], d_head, KV_BLOCK)
        self._v = v.view(dtype).reshape(*v.shape[:2], KV_BLOCK, d_head)

    def write(self, block: int, slot: int, k: NDArray[np.float32], v: NDArray[np.float32]) -> None:
        """Round to the cache's floats; what is too large becomes infinite."""
        with np.errstate(over="ignore"):
            self._k[block, :, :, slot] = k
            self._v[block, :, slot] = v

    def keys(self, block: int, start: int, stop: int) -> NDArray[np.float32]:
        """Keys, (kv_heads, d_head, stop - start) f32."""
        return self._k[block, :, :, start:stop].astype(np.float32)

    def values(self, block: int, start: int, stop: int) -> NDArray[np.float32]:
        """Values, (kv_heads, stop - start, d_head) f32."""
        return self._v[block, :, start:stop].astype(np.float32)


class EightBitCache:
    """K (d_head, 64) and V (64, d_head) as int8, each followed by its scales: one f32 per position and 32 values."""

    def __init__(self, k: NDArray[np.uint8], v: NDArray[np.uint8], d_head: int) -> None:
        integers, groups = KV_BLOCK * d_head, d_head // _GROUP
        self._k = k[..., :integers].view(np.int8).reshape(*k.shape[:2], d_head, KV_BLOCK)
        self._v = v[..., :integers].view(np.int8).reshape(*v.shape[:2], KV_BLOCK, d_head)
        self._k_scales = k[..., integers:].view(np.float32).reshape(*k.shape[:2], groups, KV_BLOCK)
        self._v_scales = v[..., integers:].view(np.float32).reshape(*v.shape[:2], KV_BLOCK, groups)

    def write(self, block: int, slot: int, k: NDArray[np.float32], v: NDArray[np.float32]) -> None:
        """Round every 32 values of a head to int8."""
        for head, (key, value) in enumerate(zip(k, v, strict=True)):
            integers, self._k_scales[block, head, :, slot] = quantize_blocks(key, _GROUP)
            self._k[block, head, :, slot] = integers.reshape(-1)
            integers, self._v_scales[block, head, slot] = quantize_blocks(value, _GROUP)
            self._v[block, head, slot] = integers.reshape(-1)

    def keys(self, block: int, start: int, stop: int) -> NDArray[np.float32]:
        """Keys, (kv_heads, d_head, stop - start) f32."""
        scales = np.repeat(self._k_scales[block, :, :, start:stop], _GROUP, axis=1)
        return self._k[block, :, :, start:stop] * scales

    def values(self, block: int, start: int, stop: int) -> NDArray[np.float32]:
        """Values, (kv_heads, stop - start, d_head) f32."""
        scales = np.repeat(self._v_scales[block, :, start:stop], _GROUP, axis=2)
        return self._v[block, :, start:stop] * scales
