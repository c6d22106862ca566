"""Native and NumPy scans give the same bits, and both do what their contract says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fucina.core.nativelib import Native, open_native
from fucina.decoding.reference_scans import ReferenceScans
from fucina.decoding.scans import RowScans

REFERENCE = ReferenceScans()
NATIVE = open_native()


def native_scans() -> RowScans:
    if not isinstance(NATIVE, Native):
        pytest.skip(NATIVE.reason)
    scans: RowScans = NATIVE.module  # type: ignore[assignment]
    return scans


@pytest.fixture(params=["reference", "native"])
def scans(request: pytest.FixtureRequest) -> RowScans:
    return REFERENCE if request.param == "reference" else native_scans()


# Few distinct values make ties; -0.0 and 0.0 tie too; -inf is a masked token.
TIED = st.sampled_from([-np.inf, -2.5, -1.0, -0.0, 0.0, 1.0, 3.0])
SPREAD = st.floats(min_value=-1e4, max_value=1e4, width=32)


@st.composite
def rows(draw: st.DrawFn, at_least: int = 1) -> NDArray[np.float32]:
    width = draw(st.integers(at_least, 90))
    kind = draw(st.sampled_from([TIED, SPREAD]))
    return np.array(draw(st.lists(kind, min_size=width, max_size=width)), np.float32)


def test_argmax_takes_the_lowest_id_of_equals(scans: RowScans) -> None:
    for width in (1, 2, 15, 16, 17, 40, 1000, 4095, 4096, 8193, 20000):
        row = np.zeros(width, np.float32)
        assert scans.argmax(row) == 0
        row[width // 2 :] = 1.0
        assert scans.argmax(row) == width // 2
        row[-1] = 2.0
        assert scans.argmax(row) == width - 1
    assert scans.argmax(np.array([-0.0, 0.0], np.float32)) == 0
    assert scans.argmax(np.full(5, -np.inf, np.float32)) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("width", [1, 16, 17, 333, 4097, 10000])
def test_unsound_rows_are_found_wherever_the_value_lies(scans: RowScans, bad: float, width: int) -> None:
    for at in {0, width // 2, width - 1}:
        row = np.linspace(-1.0, 1.0, width, dtype=np.float32)
        row[at] = bad
        assert scans.argmax(row) == -1
        assert scans.top_k(row, 3) is None


def test_top_k_sorts_and_breaks_ties_by_id(scans: RowScans) -> None:
    row = np.array([1.0, 3.0, -np.inf, 3.0, 2.0, 1.0], np.float32)
    found = scans.top_k(row, 4)
    assert found is not None
    assert found[0].tolist() == [1, 3, 4, 0]
    assert found[1].tolist() == [3.0, 3.0, 2.0, 1.0]
    nothing = scans.top_k(row, 0)
    assert nothing is not None
    assert len(nothing[0]) == len(nothing[1]) == 0
    everything = scans.top_k(row, 100)
    assert everything is not None
    assert everything[0].tolist() == [1, 3, 4, 0, 5]


@pytest.mark.parametrize("shape", ["ascending", "descending", "equal", "random"])
@pytest.mark.parametrize("k", [1, 7, 256, 5000])
def test_top_k_of_wide_rows(scans: RowScans, shape: str, k: int) -> None:
    rng = np.random.default_rng(5)
    row = {
        "ascending": np.arange(5000),
        "descending": -np.arange(5000),
        "equal": np.zeros(5000),
        "random": rng.integers(0, 300, 5000),
    }[shape].astype(np.float32)
    found = scans.top_k(row, k)
    assert found is not None
    want = sorted(range(5000), key=lambda i: (-row[i], i))[:k]
    assert found[0].tolist() == want
    assert found[1].tolist() == row[want].tolist()


def test_exp_sum_agrees_with_numpy(scans: RowScans) -> None:
    rng = np.random.default_rng(6)
    for width in (1, 15, 16, 49152):
        row = rng.normal(0, 5, width).astype(np.float32)
        want = np.exp((row.astype(np.float64) - row.max()) / 0.7).sum()
        # sums of positive terms in another order: a few units in the last place
        assert scans.exp_sum(row, float(row.max()), 1 / 0.7) == pytest.approx(want, rel=1e-14)


@settings(max_examples=300)
@given(rows(), st.integers(1, 100), st.floats(1e-3, 1e5))
def test_scans_agree_bit_for_bit(row: NDArray[np.float32], k: int, inverse: float) -> None:
    native = native_scans()
    assert native.argmax(row) == REFERENCE.argmax(row)
    ours, theirs = REFERENCE.top_k(row, k), native.top_k(row, k)
    assert ours is not None
    assert theirs is not None
    assert ours[0].tolist() == theirs[0].tolist()
    assert ours[1].tobytes() == theirs[1].tobytes()
    best = float(row.max())
    if best > -np.inf:
        assert native.exp_sum(row, best, inverse) == REFERENCE.exp_sum(row, best, inverse)


@settings(max_examples=300)
@given(
    rows(),
    st.floats(1e-3, 1e300),
    st.one_of(st.just(-1.0), st.floats(1.0, 100.0)),
    st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
    st.tuples(st.floats(0.0, 1.0, exclude_max=True), st.booleans()),
)
def test_draws_agree(
    row: NDArray[np.float32], inverse: float, total: float, top_p: float, min_p: float, rest: tuple[float, bool]
) -> None:
    how = (inverse, total, top_p, min_p, *rest)
    window = np.sort(row[row > -np.inf])[::-1].copy()
    if len(window):
        assert native_scans().draw(window, *how) == REFERENCE.draw(window, *how)


@settings(max_examples=200)
@given(
    rows(),
    st.lists(st.integers(-5, 120), max_size=40),
    st.tuples(st.floats(0.1, 3.0), st.floats(-2.0, 2.0), st.floats(-2.0, 2.0)),
)
def test_penalties_agree(row: NDArray[np.float32], window: list[int], strengths: tuple[float, float, float]) -> None:
    ours, theirs = row.copy(), row.copy()
    REFERENCE.penalize(ours, window, *strengths)
    native_scans().penalize(theirs, window, *strengths)
    assert ours.tobytes() == theirs.tobytes()


@given(rows(), st.lists(st.integers(0, 2**32 - 1), max_size=4))
def test_bitmasks_agree_with_the_definition(row: NDArray[np.float32], words: list[int]) -> None:
    mask = np.array(words, np.uint32)
    want = [x if i < 32 * len(words) and words[i // 32] >> (i % 32) & 1 else -np.inf for i, x in enumerate(row)]
    for scans in (REFERENCE, native_scans()):
        masked = row.copy()
        scans.apply_bitmask(masked, mask)
        assert masked.tolist() == want


@settings(max_examples=300)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 700),
    st.integers(0, 24),
    st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]),
    st.integers(0, 800),
    st.floats(1e-3, 1e5),
)
def test_scans_under_a_mask_are_those_of_the_masked_row(
    seed: int, width: int, n_words: int, share: float, k: int, inverse: float
) -> None:
    rng = np.random.default_rng(seed)
    row = rng.normal(0, rng.choice([1, 1000]), width).round(rng.integers(3)).astype(np.float32)  # with ties
    row[rng.random(width) < 0.003] = rng.choice([np.nan, np.inf, -np.inf])
    words = np.packbits(rng.random(32 * n_words) < share, bitorder="little").view("<u4").astype(np.uint32)
    masked = row.copy()
    REFERENCE.apply_bitmask(masked, words)
    want = REFERENCE.top_k(masked, k)
    for scans in (REFERENCE, native_scans()):
        found = scans.top_k(row, k, words)
        if want is None:
            assert found is None
            continue
        assert found is not None
        assert [array.tobytes() for array in found] == [array.tobytes() for array in want]
        if len(want[1]):
            best = float(want[1][0])
            assert scans.exp_sum(row, best, inverse, words) == native_scans().exp_sum(masked, best, inverse)


def test_native_scans_refuse_rows_of_the_wrong_kind() -> None:
    native = native_scans()
    for wrong in (np.zeros(4), np.zeros((2, 2), np.float32), np.zeros(8, np.float32)[::2]):
        with pytest.raises(TypeError):
            native.argmax(wrong)  # type: ignore[arg-type]
