"""The probes behind every share of the roof."""

from __future__ import annotations

import pytest

from fucina.core.nativelib import Absent, open_native
from fucina.errors import ConfigError
from fucina.ops.choose import MIXES, measure_multiply_adds, measure_read_bandwidth

pytestmark = pytest.mark.skipif(isinstance(open_native(), Absent), reason="the extension is not built")


@pytest.mark.parametrize("mix", MIXES)
def test_rates_are_those_of_a_processor_that_does_the_work(mix: str) -> None:
    # the lower bound catches a probe that measures nothing, the upper one a loop that the compiler has removed
    rate = measure_multiply_adds(mix, threads=1)
    assert rate is not None
    assert 1e7 < rate < 1e13


def test_read_bandwidth_is_that_of_a_memory() -> None:
    rate = measure_read_bandwidth(1 << 24, threads=1)
    assert rate is not None
    assert 1e7 < rate < 1e13


def test_an_unknown_mix_is_refused() -> None:
    with pytest.raises(ConfigError, match="one of f32"):
        measure_multiply_adds("f64")


def test_the_scalar_tier_has_no_rate() -> None:
    with pytest.raises(ConfigError, match="scalar"):
        measure_multiply_adds("f32", threads=1, tier="scalar")
