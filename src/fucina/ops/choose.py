"""Which backend computes: what was asked for, what the environment says, what the machine has. And why."""

from __future__ import annotations

import platform
import warnings

from fucina.core.cpu import available_memory_bytes, usable_cpus
from fucina.core.nativelib import Absent, open_native
from fucina.core.settings import BACKENDS, Settings
from fucina.errors import ConfigError
from fucina.ops.native import NativeOps
from fucina.ops.reference import ReferenceOps
from fucina.ops.seam import Ops

#: Kinds of multiply-adds by the number that the extension knows them by: of floats (attention's too), of int8 with four
#: or five bits, with six bits and a scale for every sixteen weights, and with whole bytes.
MIXES = {"f32": 0, "nibbles": 1, "scaled": 2, "bytes": 3}


class SlowBackendWarning(UserWarning):
    """The NumPy backend computes because the compiled one is not there."""


def open_ops(
    *,
    max_rows: int,
    threads: int | None = None,
    tier: str | None = None,
    backend: str | None = None,
    repack: bool | None = None,
) -> Ops:
    """A backend for passes of up to `max_rows` rows.

    Arguments win over FUCINA_THREADS, FUCINA_CPU_TIER, FUCINA_BACKEND and FUCINA_NO_REPACK, and those over the machine:
    as many threads as CPUs this process may use, the fastest tier that runs here, the compiled backend where it is
    built, else NumPy with a SlowBackendWarning. Without `repack` the compiled backend computes from the mapped file
    instead of a copy in its own layout. Raises ConfigError for what cannot be.
    """
    settings = Settings.from_environment()
    backend = backend or settings.backend
    threads = threads if threads is not None else settings.threads or usable_cpus()
    if backend not in BACKENDS:
        raise ConfigError("backend", got=backend, expected=f"one of {', '.join(BACKENDS)}")
    if not 1 <= threads <= 1023:
        raise ConfigError("threads", got=threads, expected="a number from 1 to 1023")
    if backend == "reference":
        return ReferenceOps(max_rows)
    native = open_native()
    if isinstance(native, Absent):
        if backend == "native":
            raise ConfigError("backend", got="native", expected=f"'reference', since {native.reason}")
        warnings.warn(
            f"computing with NumPy, many times slower, since {native.reason}; "
            "install a C++ compiler and reinstall fucina",
            SlowBackendWarning,
            stacklevel=2,
        )
        return ReferenceOps(max_rows)
    return NativeOps(
        native.module,
        max_rows=max_rows,
        threads=threads,
        tier=tier or settings.cpu_tier,
        repack=settings.repack if repack is None else repack,
    )


def describe_machine() -> dict[str, object]:
    """What Fucina sees of this machine and would choose on it, ready to print or to store as JSON."""
    settings = Settings.from_environment()
    native = open_native()
    facts: dict[str, object] = {
        "architecture": platform.machine(),
        "usable_cpus": usable_cpus(),
        "threads": settings.threads or usable_cpus(),
        "available_memory_bytes": available_memory_bytes(),
    }
    if isinstance(native, Absent):
        return facts | {"backend": "reference", "tier": None, "tiers": {}, "why": native.reason}
    tiers = dict(native.module.tiers())
    if settings.cpu_tier:
        chosen, why = settings.cpu_tier, "named by FUCINA_CPU_TIER"
    else:
        chosen, why = [tier for tier, runs in tiers.items() if runs][-1], "the fastest that this processor runs"
    return facts | {"backend": "native", "tier": chosen, "tiers": tiers, "why": why}


def measure_read_bandwidth(n_bytes: int = 1 << 28, threads: int | None = None) -> float | None:
    """Bytes per second that `threads` threads read from memory: the roof of decoding. None without the extension."""
    native = open_native()
    if isinstance(native, Absent):
        return None
    return float(native.module.read_bandwidth(n_bytes, threads or usable_cpus()))


def measure_multiply_adds(mix: str, threads: int | None = None, tier: str | None = None) -> float | None:
    """Multiply-adds per second of one of MIXES in registers, by `threads` threads: the roof of prefill.

    None without the extension. Raises ConfigError for an unknown mix, and for a tier that does not run here or, like
    'scalar', is not meant to be fast.
    """
    if mix not in MIXES:
        raise ConfigError("mix of instructions", got=mix, expected=f"one of {', '.join(MIXES)}")
    native = open_native()
    if isinstance(native, Absent):
        return None
    tier = tier or Settings.from_environment().cpu_tier
    try:
        return float(native.module.multiply_adds(MIXES[mix], threads or usable_cpus(), tier or ""))
    except ValueError as error:
        raise ConfigError("instruction tier", got=tier, expected=str(error)) from None
