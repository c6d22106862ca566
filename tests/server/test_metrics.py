"""What Prometheus is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from fucina import SamplingParams

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "server-api.md"


def letters(prefix: Sequence[int]) -> int:
    return 97 + len(prefix) % 26


def told(address: str) -> dict[str, float]:
    """Every number without labels."""
    families = text_string_to_metric_families(httpx2.get(f"{address}/metrics").text)
    return {sample.name: sample.value for one in families for sample in one.samples if not sample.labels}


def test_blocks_are_free_in_use_or_kept(served: Callable[..., Any]) -> None:
    server = served(letters)
    model, n_all = server.state.loaded.model, server.scripted.kv_pool.capacity

    def blocks() -> tuple[float, float, float]:
        numbers = told(server.address)
        return tuple(numbers[f"fucina_kv_{name}"] for name in ("blocks", "free_blocks", "kept_blocks"))  # type: ignore[return-value]

    assert blocks() == (n_all, n_all, 0)
    stream = model.stream([65] * 200, SamplingParams(max_tokens=10))
    next(stream)
    assert blocks()[:2] == (n_all, n_all - 4)  # 200 tokens need four blocks of 64
    stream.close()
    assert blocks() == (n_all, n_all, 4)
    model.forget_prefixes()
    assert blocks() == (n_all, n_all, 0)


def test_every_number_is_in_the_reference(served: Callable[..., Any]) -> None:
    text, page = httpx2.get(f"{served(letters).address}/metrics").text, PAGE.read_text("utf-8")
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) > 15
    for name in names:
        assert f"| `{name}` |" in page or name.endswith("_created")
