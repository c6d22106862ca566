"""Uniform numbers as a pure function of (seed, position): nothing to store, nothing to rewind.

Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the seed as key and the
position as counter. Frozen for ever: a seed must give the same text in every later version.
"""

from __future__ import annotations

import secrets

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_MASK32 = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 32-bit words from a 128-bit counter and a 64-bit key, ten rounds."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK32
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK32, (k1 + _KEY_STEPS[1]) & _MASK32
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """A double in [0, 1) with 53 random bits, the same for the same (seed, position) everywhere.

    `seed` is any integer of at most 64 bits (taken modulo 2^64); `position` >= 0.
    """
    key = (seed & _MASK32, (seed >> 32) & _MASK32)
    high, low, _, _ = philox4x32((position & _MASK32, (position >> 32) & _MASK32, 0, 0), key)
    return ((high >> 5) * 67108864 + (low >> 6)) / 9007199254740992.0


def fresh_seed() -> int:
    """A seed for a request that named none; it is reported with the result, so that the run can be repeated."""
    return secrets.randbits(63)
