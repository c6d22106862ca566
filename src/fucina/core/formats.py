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
Q2_K = Format(10, "Q2_K", 256, 84)
Q3_K = Format(11, "Q3_K", 256, 110)
Q4_K = Format(12, "Q4_K", 256, 144)
Q5_K = Format(13, "Q5_K", 256, 176)
Q6_K = Format(14, "Q6_K", 256, 210)
IQ4_NL = Format(20, "IQ4_NL", 32, 18)
IQ4_XS = Format(23, "IQ4_XS", 256, 136)
BF16 = Format(30, "BF16", 1, 2)
MXFP4 = Format(39, "MXFP4", 32, 17)

#: What the sixteen codes of IQ4_NL and IQ4_XS stand for, before any scale.
IQ4_CODES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
#: Twice what the sixteen codes of MXFP4 stand for (OCP Microscaling Formats 1.0, E2M1), so that all are integers.
E2M1_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

#: Formats that run, by GGUF type number.
SUPPORTED: dict[int, Format] = {
    f.type_id: f
    for f in (
        *(F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0),
        *(Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4),
    )
}

#: Names of formats that exist but do not run here, so that a refusal can name them.
KNOWN_UNSUPPORTED: dict[int, str] = {
    4: "Q4_2 (removed)",
    5: "Q4_3 (removed)",
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
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
    40: "NVFP4",
}


def supported_names() -> str:
    """The list for error messages: 'F32, F16, ...'."""
    return ", ".join(f.name for f in SUPPORTED.values())
