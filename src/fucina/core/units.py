"""Human sizes at the edge: parse and print bytes. Inside, everything is an int whose name ends in _bytes."""

from __future__ import annotations

import re

from fucina.errors import ConfigError

_SCALE = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_bytes(text: str, option: str = "byte size") -> int:
    """'6.5GiB', '512M' or '1024' to bytes; units are binary. Raises ConfigError, which names the option."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if not found:
        raise ConfigError(option, got=text, expected="a number, then KiB, MiB, GiB or TiB")
    return int(float(found[1]) * _SCALE[found[2].upper()])


def byte_count(size: int | str, option: str) -> int:
    """Bytes, from a number or a size such as '4G'. Raises ConfigError, which names the option."""
    if isinstance(size, str):
        return parse_bytes(size, option)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ConfigError(option, got=size, expected="bytes, or a size such as '4G'")
    return size


def format_bytes(n_bytes: float) -> str:
    """1536 to '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n_bytes) < 1024:
            return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"
