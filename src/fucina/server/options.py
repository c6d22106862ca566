"""How to serve: addresses, keys, limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from fucina.decoding.params import SamplingParams
from fucina.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How to serve a model.

    host, port       where to listen; port 0 takes a free one.
    api_keys         whoever sends one of them may ask; none: whoever reaches the port. Each key has a cache of its own,
                     and drafts that its own requests taught.
    origins          web pages of these origins may ask (CORS); "*" for all.
    hosts            names under which the server may be asked, besides its own address; "*" for all.
    queue            requests that may wait besides those that run; more are told to come back later.
    parallel         requests that run together.
    max_body         bytes of a request at most.
    deadline_s       seconds after which an answer that has not ended is cut off.
    stall_s          seconds after which an answer that nobody reads is given up, and a request that does not come.
    drain_s          seconds that running answers have when the server is to end.
    defaults         how to choose tokens where a request does not say.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    queue: int = 64
    parallel: int = 16
    max_body: int = 16 << 20
    deadline_s: float = 3600.0
    stall_s: float = 60.0
    drain_s: float = 30.0
    defaults: SamplingParams = field(default_factory=lambda: SamplingParams(temperature=0.8, top_p=0.95))

    def __post_init__(self) -> None:
        for option, least, most in (
            ("port", 0, 65535),
            ("queue", 0, 100_000),
            ("parallel", 1, 4096),
            ("max_body", 1024, 1 << 32),
        ):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ConfigError(option, got=value, expected=f"a whole number from {least} to {most}")
        for option in ("deadline_s", "stall_s", "drain_s"):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
                raise ConfigError(option, got=value, expected="seconds, more than 0")
        if any(len(key) < 8 or not key.isprintable() or not key.isascii() for key in self.api_keys):
            raise ConfigError(
                "api_keys", got="a short or unprintable one", expected="8 printable ASCII characters or more"
            )
