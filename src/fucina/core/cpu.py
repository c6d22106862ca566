"""How many CPUs and how much memory this process may really use: affinity and cgroup limits included."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def cgroup_cpu_quota(root: Path = _CGROUP) -> float | None:
    """CPUs granted by the cgroup's quota (v2, then v1), or None without a limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota_us = int((root / "cpu/cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu/cpu.cfs_period_us").read_text())
        return None if quota_us <= 0 or period_us <= 0 else quota_us / period_us
    except (OSError, ValueError):
        return None


def usable_cpus(root: Path = _CGROUP) -> int:
    """CPUs that this process may run on: its affinity mask, cut by the cgroup quota (rounded up), at least 1."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS or Windows
        allowed = os.cpu_count() or 1
    quota = cgroup_cpu_quota(root)
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def available_memory_bytes(root: Path = _CGROUP) -> int | None:
    """Memory this process may still take: MemAvailable, cut by the cgroup's limit; None when unknown."""
    available: int | None = None
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    except OSError:
        return None
    try:
        limit = (root / "memory.max").read_text().strip()
        if limit != "max":
            left = max(0, int(limit) - int((root / "memory.current").read_text()))
            available = left if available is None else min(available, left)
    except (OSError, ValueError):
        pass
    return available


def processor_name() -> str:
    """The processor as the system calls it; empty where it does not."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
