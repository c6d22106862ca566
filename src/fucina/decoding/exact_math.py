"""e^x and ln(x) from plain products and sums in one fixed order: the same bits on every processor and libm.

The chosen token must not depend on the machine, so nothing that chooses may call the C library's exp or log, whose last
bits differ between versions. native/src/pick/exp.h computes e^x by the same steps.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The least exponent: `exp` stays at e^-708 below it, and whoever draws treats such a weight as zero.
EXP_FLOOR = -708.0

_ROUND = float.fromhex("0x1.8p52")
_PER_STEP = float.fromhex("0x1.71547652b82fep+0") * 256
_STEP_HIGH = float.fromhex("0x1.62e42feep-1") / 256
_STEP_LOW = float.fromhex("0x1.a39ef35793c76p-33") / 256
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


@cache
def exp2_table() -> NDArray[np.float64]:
    """2^(j/256) for j = 0..255, each the nearest double."""
    with localcontext(prec=60):
        return np.array([float(Decimal(2) ** (Decimal(j) / 256)) for j in range(256)])


def exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^x for x <= 0, any shape, to about one unit in the last place; at least e^-708.

    x = k * ln2/256 + r, so e^x = 2^(k div 256) * 2^((k mod 256)/256) * (1 + r + r^2/2 + r^3/6 + r^4/24).
    """
    x = np.maximum(x, EXP_FLOOR)
    shifted = x * _PER_STEP + _ROUND
    k = shifted - _ROUND
    r = (x - k * _STEP_HIGH) - k * _STEP_LOW
    r2 = r * r
    polynomial = (1.0 + r) + r2 * ((0.5 + r * (1.0 / 6)) + r2 * (1.0 / 24))
    steps = k.astype(np.int64)
    scale = np.ldexp(exp2_table()[steps & 255], steps >> 8)
    product: NDArray[np.float64] = polynomial * scale
    return product


def log(x: float) -> float:
    """ln(x) of a finite x > 0, to a few units in the last place.

    x = m * 2^e with m within sqrt(1/2) and sqrt(2); ln(m) = 2 artanh((m - 1) / (m + 1)) as a series of odd powers.
    """
    m, e = math.frexp(x)
    if m < 0.7071067811865476:
        m, e = m + m, e - 1
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    series = 0.0
    for n in range(23, 1, -2):
        series = series * s2 + 1.0 / n
    return e * _LN2_HIGH + (e * _LN2_LOW + (2.0 * s + 2.0 * s * s2 * series))
