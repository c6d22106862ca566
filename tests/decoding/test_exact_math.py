import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.core.nativelib import Native, open_native
from fucina.decoding.exact_math import exp, exp2_table, log


def test_table_holds_the_nearest_doubles() -> None:
    table = exp2_table()
    assert table[0] == 1.0
    assert table[128] == math.sqrt(2.0)
    assert np.all(np.abs(table - np.exp2(np.arange(256) / 256)) <= np.spacing(table))


def test_exp_agrees_with_the_c_library() -> None:
    x = -np.concatenate([np.linspace(0.0, 40.0, 40001), np.linspace(40.0, 707.9, 20001)])
    # three units in the last place: two of ours, one of theirs
    assert np.all(np.abs(exp(x) - np.exp(x)) <= 3.0 * np.spacing(np.exp(x)))


def test_exp_at_the_ends() -> None:
    assert exp(np.array([0.0]))[0] == 1.0
    low = exp(np.array([-708.0, -709.0, -1e308, -np.inf]))
    assert np.all(low == low[0])
    assert 0.0 < low[0] < 1e-307


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_log_agrees_with_the_c_library(x: float) -> None:
    # four units in the last place, relative to the larger of the result and its distance from ln(1) = 0
    assert abs(log(x) - math.log(x)) <= 4 * 2.0**-53 * max(abs(math.log(x)), 2.0**-52)


def test_log_of_one_is_zero() -> None:
    assert log(1.0) == 0.0


def test_native_exp_has_the_same_bits() -> None:
    native = open_native()
    if not isinstance(native, Native):
        pytest.skip(native.reason)
    # a partial block is filled up with -inf, which weighs e^-708 and vanishes beside these
    logits = -np.concatenate([np.linspace(0.0, 40.0, 3001), np.linspace(40.0, 650.0, 3001)]).astype(np.float32)
    for logit, weight in zip(logits, exp(logits.astype(np.float64)), strict=True):
        assert native.module.exp_sum(np.full(1, logit, np.float32), 0.0, 1.0) == weight
