"""Every FUCINA_* environment variable, read in one place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fucina.errors import ConfigError

BACKENDS = ("auto", "native", "reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment asks for; None means: decide by looking at the machine."""

    cpu_tier: str | None = None
    threads: int | None = None
    backend: str = "auto"
    repack: bool = True
    home: Path = Path.home() / ".cache" / "fucina"

    @classmethod
    def from_environment(cls) -> Settings:
        """Read FUCINA_CPU_TIER, FUCINA_THREADS, FUCINA_BACKEND, FUCINA_NO_REPACK, FUCINA_HOME. Raises ConfigError."""
        env = os.environ
        backend = env.get("FUCINA_BACKEND", "auto")
        if backend not in BACKENDS:
            raise ConfigError("FUCINA_BACKEND", got=backend, expected=f"one of {', '.join(BACKENDS)}")
        no_repack = env.get("FUCINA_NO_REPACK") or "0"
        if no_repack not in ("0", "1"):
            raise ConfigError("FUCINA_NO_REPACK", got=no_repack, expected="1, or 0")
        threads: int | None = None
        if text := env.get("FUCINA_THREADS"):
            if not text.isdecimal() or not 1 <= int(text) <= 1024:
                raise ConfigError("FUCINA_THREADS", got=text, expected="a number from 1 to 1024")
            threads = int(text)
        cache = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cls(
            cpu_tier=env.get("FUCINA_CPU_TIER") or None,
            threads=threads,
            backend=backend,
            repack=no_repack == "0",
            home=Path(env.get("FUCINA_HOME") or cache / "fucina"),
        )
