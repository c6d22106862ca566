"""How many bytes the keys and values of 64 positions take, and where each layer's lie in a block."""

from __future__ import annotations

from dataclasses import dataclass

from fucina.core.shapes import KV_BLOCK
from fucina.errors import ConfigError

KV_FORMATS = ("f16", "q8_0", "f32")


@dataclass(frozen=True, slots=True)
class LayerGeometry:
    """The heads of one layer."""

    kv_heads: int
    d_head: int


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """Layout of one KV block, the unit of sharing, copying and storing.

    A block holds 64 positions of every layer, layer after layer: first K, then V. Per KV head,
    f16, f32: K is (d_head, 64) and V is (64, d_head), both in half floats or both in floats.
    q8_0: K is (d_head, 64) int8 followed by (d_head / 32, 64) f32 scales; V is (64, d_head) int8 followed by
    (64, d_head / 32) f32 scales.
    K is stored transposed so that scores run over positions in SIMD lanes and over d_head in order.
    """

    layers: tuple[LayerGeometry, ...]
    format: str = "f16"

    def __post_init__(self) -> None:
        if self.format not in KV_FORMATS:
            raise ConfigError("KV format", got=self.format, expected=f"one of {', '.join(KV_FORMATS)}")
        for layer in self.layers:
            if self.format == "q8_0" and layer.d_head % 32:
                raise ConfigError("KV format", got="q8_0", expected="f16, since d_head is not a multiple of 32")

    def head_bytes(self, d_head: int) -> int:
        """Bytes of K (or of V) for one head in one block."""
        if self.format != "q8_0":
            return KV_BLOCK * d_head * (2 if self.format == "f16" else 4)
        return KV_BLOCK * d_head + KV_BLOCK * (d_head // 32) * 4

    def layer_bytes(self, layer: int) -> int:
        """Bytes of K and V of one layer in one block."""
        geometry = self.layers[layer]
        return 2 * geometry.kv_heads * self.head_bytes(geometry.d_head)

    def layer_offset(self, layer: int) -> int:
        """Where a layer's K begins in a block; its V follows after half of layer_bytes."""
        return sum(self.layer_bytes(i) for i in range(layer))

    @property
    def block_bytes(self) -> int:
        """Bytes of a whole block."""
        return sum(self.layer_bytes(i) for i in range(len(self.layers)))
