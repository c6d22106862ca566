"""What Prometheus may know: no prompts, no names, only numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fucina.engine.counters import Counters
from fucina.engine.model import Model
from fucina.storage.experts.stats import ExpertsLeftOut, ExpertStats

#: What `/metrics` answers with.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_INTER_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 5)

#: Counters of the engine, as they are called here.
_ENGINE_COUNTERS = {
    "passes": "Forward passes.",
    "rows": "Rows of all passes.",
    "tokens": "Tokens given.",
    "prompt_tokens": "Prompt tokens, cached ones included.",
    "cached_tokens": "Prompt tokens that were in the cache.",
    "drafted": "Drafted tokens verified.",
    "accepted": "Drafted tokens found right.",
    "preemptions": "Times a request gave its memory to others.",
    "failed_passes": "Passes that failed.",
    "masks": "Masks of constraints.",
    "mask_s": "Seconds that masks took.",
    "mask_wait_s": "Seconds that steps waited for masks.",
}

#: What keys and values take, in blocks of 64 tokens.
_KV_GAUGES = {
    "blocks": "Blocks of 64 tokens' keys and values that there is room for.",
    "free_blocks": "Of these, blocks that can be taken at once, those included that are only kept.",
    "kept_blocks": "Blocks kept for prompts to come, in use or not.",
}

#: What reading experts on demand counts.
_EXPERT_COUNTERS = {
    "pinned_hits": "Needed experts that are pinned in memory.",
    "cache_hits": "Needed experts that were in memory.",
    "misses": "Needed experts that had to be read.",
    "bytes_read": "Bytes of experts read.",
    "failed_reads": "Experts that could not be read.",
    "read_s": "Seconds that threads spent reading experts.",
    "pack_s": "Seconds that threads spent packing experts.",
    "busy_s": "Seconds during which passes had experts on their way.",
    "wait_s": "Of these, seconds during which they had nothing to compute.",
    "hinted": "Experts read ahead of time.",
    "hints_useful": "Of these, experts that were needed.",
    "hints_dropped": "Experts that were expected and not read ahead.",
    "foreseeable": "Experts that layers needed after the pilot had looked ahead.",
    "foreseen": "Of these, experts that it had expected.",
}
#: How experts are held.
_EXPERT_GAUGES = {
    "experts": "Experts of all layers.",
    "slots": "Experts that fit into memory.",
    "pinned": "Of these, experts that stay there.",
    "memory_bytes": "Bytes of memory for experts.",
}


class Metrics:
    """Counters and histograms of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "fucina_http_requests", "Requests by path and status.", ["path", "status"], registry=self._registry
        )
        self.first_token = Histogram(
            "fucina_first_token_seconds",
            "From a request's arrival to its first token.",
            buckets=_FIRST_TOKEN_S,
            registry=self._registry,
        )
        self.inter_token = Histogram(
            "fucina_inter_token_seconds",
            "Between the tokens of an answer, as the reader got them.",
            buckets=_INTER_TOKEN_S,
            registry=self._registry,
        )
        self.queue = Histogram(
            "fucina_queue_seconds",
            "From submission to the first pass.",
            buckets=_FIRST_TOKEN_S,
            registry=self._registry,
        )
        self.live = Gauge("fucina_live_requests", "Requests that wait or run.", registry=self._registry)

    def watch(self, model: Model) -> None:
        """Tell of the model's counters too."""
        self._registry.register(_EngineCollector(model))

    def families(self) -> Iterable[Metric]:
        """All of it, as objects."""
        return self._registry.collect()

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """The engine's counters, read when they are asked for."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: registering must not wait for the engine."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The counters as they are now."""
        model = self._model
        yield from engine_metrics(model.counters, model.experts, model.experts_left_out)


def engine_metrics(counters: Counters, experts: ExpertStats | None, lossy: ExpertsLeftOut | None) -> Iterator[Metric]:
    """What Prometheus is told of an engine."""
    yield from _counted("fucina", _ENGINE_COUNTERS, counters)
    for name, text in _KV_GAUGES.items():
        yield GaugeMetricFamily(f"fucina_kv_{name}", text, getattr(counters.kv, name))
    if experts is not None:
        yield from _counted("fucina_expert", _EXPERT_COUNTERS, experts)
        for name, text in _EXPERT_GAUGES.items():
            yield GaugeMetricFamily(f"fucina_expert_{name}", text, getattr(experts, name))
    if lossy is not None:
        yield GaugeMetricFamily("fucina_lossy_expert_top_p", "LOSSY: --moe-expert-top-p.", lossy.top_p)
        yield CounterMetricFamily("fucina_lossy_expert_used", "Chosen experts that were computed.", lossy.used)
        yield CounterMetricFamily("fucina_lossy_expert_left_out", "Chosen experts left out.", lossy.left_out)
    finished = CounterMetricFamily("fucina_finished", "Answers by how they ended.", labels=["reason"])
    for reason, n in counters.finished.items():
        finished.add_metric([reason], n)
    yield finished


def _counted(prefix: str, texts: Mapping[str, str], numbers: object) -> Iterator[Metric]:
    for name, text in texts.items():
        yield CounterMetricFamily(f"{prefix}_{name}", text, getattr(numbers, name))
