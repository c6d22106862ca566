"""Tensor formats of GGUF files: numbers, names, block sizes. Knows no arithmetic.

Source: the GGUF/ggml type table (facts of the file format).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One way of storing weights: `block_weights` consecutive weights in `block_bytes` bytes."""

    type_id: int
    name: str
    block_weights: int
    block_bytes: int

    def row_bytes(self, d_in: int) -> int:
        """Bytes of one row of `d_in` weights; `d_in` must be a whole number of blocks."""
        return d_in // self.block_weights * self.block_bytes


F32 = Format(0, "F32", 1, 4)
F16 = Format(1, "F16", 1, 2)
Q4_0 = Format(2, "Q4_0", 32, 18)
Q4_1 = Format(3, "Q4_1", 32, 20)
Q5_0 = Format(6, "Q5_0", 32, 22)
Q5_1 = Format(7, "Q5_1", 32, 24)
Q8_0 = Format(8, "Q8_0", 32, 34)
Q4_K = Format(12, "Q4_K", 256, 144)
Q5_K = Format(13, "Q5_K", 256, 176)
Q6_K = Format(14, "Q6_K", 256, 210)
BF16 = Format(30, "BF16", 1, 2)

#: Formats that run, by GGUF type number.
SUPPORTED: dict[int, Format] = {f.type_id: f for f in (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K)}

#: Names of formats that exist but do not run here, so that a refusal can name them.
KNOWN_UNSUPPORTED: dict[int, str] = {
    4: "Q4_2 (removed)",
    5: "Q4_3 (removed)",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    31: "Q4_0_4_4 (removed)",
    32: "Q4_0_4_8 (removed)",
    33: "Q4_0_8_8 (removed)",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}


def supported_names() -> str:
    """The list for error messages: 'F32, F16, ...'."""
    return ", ".join(f.name for f in SUPPORTED.values())
