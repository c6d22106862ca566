"""What the routes share: the model once it is loaded, who is being served, and whether the server is about to end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import fucina
from fucina.engine.model import Model
from fucina.engine.service import Service
from fucina.server.failures import ApiError
from fucina.server.manners import Manners
from fucina.server.metrics import Metrics
from fucina.server.options import ServerOptions
from fucina.server.reading import TokenTexts


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that answers. `facts` are what the file says of itself."""

    names: tuple[str, ...]  # the first is its own, the others are aliases
    path: Path
    model: Model
    service: Service
    facts: ModelFacts
    manners: Manners
    created: int = field(default_factory=lambda: int(time.time()))
    texts: TokenTexts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", TokenTexts(self.model))  # of the whole vocabulary, which takes its time

    @property
    def name(self) -> str:
        """What the model is called in answers."""
        return self.names[0]

    @property
    def fingerprint(self) -> str:
        """What gives the same answers to the same requests with a seed: this version with this file, or less of it."""
        left_out = self.model.experts_left_out
        lossy = "" if left_out is None else f"-lossy-{left_out.top_p:g}"
        return f"fucina-{fucina.__version__}-{self.facts.digest[:12]}{lossy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a model file says of itself: family, parameters, format of most weights, template, size in bytes."""

    family: str
    n_parameters: int
    format: str
    template: str | None
    n_bytes: int
    digest: str


class ServerState:
    """Starts without a model; `ready` brings it."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.metrics = Metrics()
        self.loaded: Loaded | None = None
        self.failure: Exception | None = None  # of loading
        self.draining = False
        self.n_live = 0  # requests that wait or run
        self._recent_s = 1.0  # what an answer took lately

    def ready(self, loaded: Loaded) -> None:
        """Answer from now on."""
        self.metrics.watch(loaded.model)
        self.loaded = loaded

    def require(self, name: str | None = None) -> Loaded:
        """The model, which must have that name if one is given. Raises ApiError: 503 while there is none, 404."""
        if self.draining:
            raise ApiError(503, "the server is about to end", code="shutting_down", retry_after=5)
        if self.loaded is None:
            what = "the model is still being loaded" if self.failure is None else f"loading failed: {self.failure}"
            raise ApiError(503, f"{what}: ask again later", code="loading", retry_after=2)
        if name is not None and name.removesuffix(":latest") not in self.loaded.names:
            known = ", ".join(f"'{known}'" for known in self.loaded.names)
            raise ApiError(404, f"there is no model '{name}' here, only {known}", code="model_not_found", param="model")
        return self.loaded

    @contextmanager
    def place(self, n: int = 1) -> Iterator[None]:
        """Room for `n` answers, to be held until they have ended.

        Raises ApiError: 429 where too many wait already, 400 for more than there can ever be.
        """
        most = self.options.parallel + self.options.queue
        if n > most:
            message = f"this asks for {n} answers at once, and {most} is the most that this server takes"
            raise ApiError(400, message, code="invalid_value", param="n")
        if self.n_live + n > most:
            waiting = max(self.n_live - self.options.parallel, 0) + n
            seconds = min(max(round(self._recent_s * waiting / self.options.parallel), 1), 60)
            message = f"{self.n_live} answers wait or run already, and {most} is the most: come back in {seconds} s"
            raise ApiError(429, message, code="queue_full", retry_after=seconds)
        self._count(n)
        began = time.perf_counter()
        try:
            yield
        finally:
            self._count(-n)
            self._recent_s += 0.1 * (time.perf_counter() - began - self._recent_s)

    def _count(self, n: int) -> None:
        self.n_live += n
        self.metrics.live.set(self.n_live)
