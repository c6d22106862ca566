"""What a pass has to do at the very least, from the model file alone: bytes to read and multiply-adds to make.

Weights count once a pass with the bytes they have in the file; K and V of the positions that a sequence sees count once
with two bytes a value. Multiply-adds are counted by the kind of instructions that a weight's format needs (roof.py);
attention's are f32. Every row goes through every layer; norms, activations and looking up the embedding are left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from roof import Roof

from fucina.models.blocks.shape import EMBEDDING, DecoderShape
from fucina.models.metadata import MetadataReader
from fucina.models.registry import family
from fucina.models.tensors import TensorReader
from fucina.storage.gguf import open_gguf

HEAD = "output.weight"
KV_VALUE_BYTES = 2

#: Each format by what its weights are in a product; tables of values give small sums (MXFP4) or whole bytes (IQ4).
MIX_OF = {
    **dict.fromkeys(("F32", "F16", "BF16"), "f32"),
    **dict.fromkeys(("Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "MXFP4"), "nibbles"),
    "Q6_K": "scaled",
    **dict.fromkeys(("Q8_0", "IQ4_NL", "IQ4_XS"), "bytes"),
}


class Rows(NamedTuple):
    """Consecutive rows of one sequence in a pass: ids at start, start + 1, ...; the last `logits` get logits."""

    sequence: int
    ids: list[int]
    start: int
    logits: int


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes, and multiply-adds by kind of instructions."""

    read_bytes: int
    multiply_adds: Counter[str]

    def seconds(self, roof: Roof) -> tuple[float, str]:
        """The shortest time, and what bounds it: 'read' or 'multiply'."""
        read = self.read_bytes / roof.read_bytes
        multiply = sum(n / roof.multiply_adds[mix] for mix, n in self.multiply_adds.items())
        return max((read, "read"), (multiply, "multiply"))


class ModelWork:
    """Counts the work of passes of one model."""

    def __init__(self, path: Path) -> None:
        """Raises FucinaError for a file that does not run."""
        gguf = open_gguf(path)
        architecture = str(gguf.metadata["general.architecture"])
        meta, tensors = MetadataReader(str(path), gguf.metadata, architecture), TensorReader(str(path), gguf.weights)
        self.shape: DecoderShape = family(str(path), architecture)(meta, tensors)
        matrices = {name: weight for name, weight in gguf.weights.items() if len(weight.shape) == 2}
        head = matrices.pop(HEAD) if HEAD in matrices else matrices[EMBEDDING]
        del matrices[EMBEDDING]
        self.read_bytes = sum(weight.data.nbytes for weight in matrices.values())
        self.row: Counter[str] = Counter()
        for weight in matrices.values():
            self.row[MIX_OF[weight.format.name]] += weight.d_in * weight.d_out
        self.head_bytes = head.data.nbytes
        self.head_row = Counter({MIX_OF[head.format.name]: head.d_in * head.d_out})

    def of(self, spans: list[Rows]) -> Work:
        """The work of one pass."""
        n_rows, n_logits = sum(len(span.ids) for span in spans), sum(span.logits for span in spans)
        multiply_adds = Counter({mix: n * n_rows for mix, n in self.row.items()})
        multiply_adds.update({mix: n * n_logits for mix, n in self.head_row.items()})
        multiply_adds["f32"] += sum(self.attention(span) for span in spans)
        read_bytes = self.read_bytes + (self.head_bytes if n_logits else 0) + sum(self.kv_bytes(s) for s in spans)
        return Work(read_bytes, multiply_adds)

    def kv_bytes(self, span: Rows) -> int:
        """Bytes of K and V that the span's rows see, in all layers."""
        size = self.shape.dimensions
        end = span.start + len(span.ids)
        positions = sum(
            end - max(0, span.start + 1 - layer.window if layer.window else 0) for layer in self.shape.layers
        )
        return 2 * size.kv_heads * size.d_head * KV_VALUE_BYTES * positions

    def attention(self, span: Rows) -> int:
        """Multiply-adds of scores and of sums of values, in all layers."""
        size = self.shape.dimensions
        seen = 0
        for layer in self.shape.layers:
            window = layer.window or span.start + len(span.ids)
            seen += sum(min(span.start + i + 1, window) for i in range(len(span.ids)))
        return 2 * size.heads * size.d_head * seen
