"""A server that was told to leave out experts says so wherever it describes its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace

import httpx2

from fucina.storage.experts.stats import ExpertsLeftOut, ExpertStats
from fucina.testing.hostile_http import MODEL


def test_where_experts_are_left_out_the_model_says_so(served: Callable[..., object]) -> None:
    server = served(lambda _: 65)
    model = server.state.loaded.model
    asked = {"model": MODEL, "prompt": "a", "max_tokens": 1}
    with httpx2.Client(base_url=server.address) as client:
        assert "lossy" not in client.get("/v1/models").json()["data"][0]
        exact = client.post("/v1/completions", json=asked).json()["system_fingerprint"]
        assert "lossy" not in client.get("/metrics").text
        model.experts_left_out = ExpertsLeftOut(0.7, lambda: (30, 10))
        for entry in (client.get("/v1/models").json()["data"][0], client.get(f"/v1/models/{MODEL}").json()):
            assert entry["lossy"] == {"moe_expert_top_p": 0.7}
        info = client.post("/api/show", json={"model": MODEL}).json()["model_info"]
        assert info["fucina.lossy.moe_expert_top_p"] == 0.7
        assert client.post("/v1/completions", json=asked).json()["system_fingerprint"] == f"{exact}-lossy-0.7"
        lines = client.get("/metrics").text.splitlines()
    assert "fucina_lossy_expert_top_p 0.7" in lines
    assert "fucina_lossy_expert_used_total 30.0" in lines
    assert "fucina_lossy_expert_left_out_total 10.0" in lines


def test_what_reading_experts_did_is_in_the_metrics(served: Callable[..., object]) -> None:
    server = served(lambda _: 65)
    stats = ExpertStats(
        experts=64,
        slots=20,
        pinned=5,
        memory_bytes=4096,
        pinned_hits=1,
        cache_hits=2,
        misses=3,
        bytes_read=4,
        failed_reads=5,
        read_s=6.0,
        pack_s=7.0,
        busy_s=8.0,
        wait_s=9.0,
        hinted=10,
        hints_dropped=11,
        hints_useful=12,
        foreseen=13,
        foreseeable=14,
    )
    server.state.loaded.model._experts = SimpleNamespace(stats=lambda: stats, close=lambda: None)
    lines = httpx2.get(f"{server.address}/metrics").text.splitlines()
    for name, value in asdict(stats).items():
        gauge = name in ("experts", "slots", "pinned", "memory_bytes")
        assert f"fucina_expert_{name}{'' if gauge else '_total'} {float(value)}" in lines
