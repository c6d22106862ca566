"""Which family reads which file: one literal table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fucina.errors import UnsupportedFamily
from fucina.models.blocks.shape import DecoderShape
from fucina.models.families import gemma3, llama, qwen2, qwen2moe, qwen3, qwen3moe
from fucina.models.metadata import MetadataReader
from fucina.models.tensors import TensorReader

Describe = Callable[[MetadataReader, TensorReader], DecoderShape]

#: general.architecture of a GGUF file -> how its family understands it.
FAMILIES: Mapping[str, Describe] = {
    "gemma3": gemma3.describe,
    "llama": llama.describe,
    "qwen2": qwen2.describe,
    "qwen2moe": qwen2moe.describe,
    "qwen3": qwen3.describe,
    "qwen3moe": qwen3moe.describe,
}


def family(path: str, architecture: str) -> Describe:
    """The family of that name. Raises UnsupportedFamily, with the list of what runs."""
    if architecture not in FAMILIES:
        raise UnsupportedFamily(
            f"{path}: architecture '{architecture}' is not implemented; what runs: {', '.join(FAMILIES)}"
        )
    return FAMILIES[architecture]
