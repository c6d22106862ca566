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


def available_memory_bytes(root: Path = _CGROUP, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Memory this process may still take: MemAvailable, cut by the limit of its cgroup (v2, then v1); None: unknown.

    What the cgroup's files occupy in the page cache counts as free, since the kernel gives it up when asked for more.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    folders = [root, *_own_cgroups(root, own)]
    free += [left for folder in folders if (left := _left_in(folder, "memory.max", "memory.current", "")) is not None]
    v1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
    folders = [root / "memory", *_own_cgroups(root / "memory", own)]
    free += [left for folder in folders if (left := _left_in(folder, *v1)) is not None]
    return min(free, default=None)


def _own_cgroups(root: Path, own: Path) -> list[Path]:
    """Folders below `root` that this process belongs to, as far as they can be seen from here."""
    try:
        paths = [line.split(":", 2)[2].strip("/") for line in own.read_text().splitlines() if line.count(":") >= 2]
    except OSError:
        return []
    return [root / path for path in dict.fromkeys(paths) if path and ".." not in path]


def _left_in(folder: Path, limit: str, used: str, prefix: str) -> int | None:
    """Bytes that a cgroup leaves, or None where it has no limit."""
    try:
        most, taken = int((folder / limit).read_text()), int((folder / used).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        cached = sum(int(stat.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
    except (OSError, ValueError):
        return None
    return max(0, most - taken + cached)


def processor_name() -> str:
    """The processor as the system calls it; empty where it does not."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
