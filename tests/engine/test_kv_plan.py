"""How much room keys and values get, and the rule that is told for it."""

from __future__ import annotations

import pytest

from fucina.engine.kv_plan import kv_plan
from fucina.errors import ConfigError
from fucina.models.loader import MemoryNeeded

BLOCK = 64 * 1000
#: Ten blocks for one full context.
NEEDED = MemoryNeeded(weights_bytes=1, experts=None, kv_bytes_per_position=1000, kv_bytes=10 * BLOCK, workspace_bytes=1)


@pytest.mark.parametrize(
    ("asked", "free_bytes", "n_blocks", "rule"),
    [
        (None, None, 40, "4 full contexts"),
        (None, 80 * BLOCK, 40, "4 full contexts"),
        (None, 79 * BLOCK, 39, "half of the free memory"),
        (None, 22 * BLOCK, 11, "half of the free memory"),
        (None, 20 * BLOCK, 10, "one full context"),
        (None, 0, 10, "one full context"),
        (7 * BLOCK + 5, 0, 7, "as asked for"),
        ("1M", None, (1 << 20) // BLOCK, "as asked for"),
    ],
)
def test_rules(asked: int | str | None, free_bytes: int | None, n_blocks: int, rule: str) -> None:
    plan = kv_plan(NEEDED, asked, free_bytes)
    assert plan.n_blocks == n_blocks
    assert plan.rule.startswith(rule)


@pytest.mark.parametrize("asked", [4 * BLOCK - 1, "1K", -1, True, "much"])
def test_too_little_is_refused_by_name(asked: int | str) -> None:
    with pytest.raises(ConfigError, match="kv_memory"):
        kv_plan(NEEDED, asked, None)
