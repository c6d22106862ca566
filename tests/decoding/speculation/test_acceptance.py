"""The estimated acceptance, against fractions worked out by hand; and the mutes, against a window of the last 64."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.speculation.acceptance import Acceptance, Kind
from fucina.decoding.speculation.mute import Mute

KINDS: list[Kind] = ["conversation", "reference", "recycling"]


def test_before_anything_is_known_longer_matches_are_trusted_more() -> None:
    acceptance = Acceptance()
    for kind in ("conversation", "reference"):
        found = [acceptance.probability(kind, match) for match in (2, 3, 4, 5, 8, 9, 16, 17)]
        assert found == pytest.approx([0.35, 0.55, 0.55, 0.75, 0.75, 0.9, 0.9, 0.9], abs=1e-12)
    assert acceptance.probability("recycling", 0) == pytest.approx(0.25, abs=1e-12)


def test_guesses_count_that_were_never_tried() -> None:
    acceptance = Acceptance()
    acceptance.count("recycling", 0, 3, 5)
    assert acceptance.probability("recycling", 0) == pytest.approx((3 + 1) / (5 + 4), abs=1e-12)
    acceptance.count("recycling", 0, 0, 0)
    assert acceptance.probability("recycling", 0) == pytest.approx((3 + 1) / (5 + 4), abs=1e-12)


def test_by_hand() -> None:
    # The prior of recycling counts for 4 tokens of which 1 was right. What a token leaves of the older ones: 0.97.
    acceptance = Acceptance()
    # drafted  right    hits                        hits + misses
    # 3        1        1                           2
    acceptance.record("recycling", 0, 1, 3)
    assert acceptance.probability("recycling", 0) == pytest.approx((1 + 1) / (2 + 4), abs=1e-12)
    # 8        0        0.97                        2 * 0.97 + 1
    acceptance.record("recycling", 0, 0, 8)
    assert acceptance.probability("recycling", 0) == pytest.approx((0.97 + 1) / (2.94 + 4), abs=1e-12)
    # 2        2        0.97 * 0.97**2 + 2          2.94 * 0.97**2 + 2
    acceptance.record("recycling", 0, 2, 2)
    assert acceptance.probability("recycling", 0) == pytest.approx((2.912673 + 1) / (4.766246 + 4), abs=1e-12)
    # refused           2.912673 * 0.99             4.766246 * 0.99
    acceptance.refuse("recycling", 0)
    assert acceptance.probability("recycling", 0) == pytest.approx((2.88354627 + 1) / (4.71858354 + 4), abs=1e-12)


def test_an_empty_record_says_nothing() -> None:
    acceptance = Acceptance()
    acceptance.record("conversation", 4, 0, 1)
    before = acceptance.probability("conversation", 4)
    acceptance.record("conversation", 4, 0, 0)
    assert acceptance.probability("conversation", 4) == before


@pytest.mark.parametrize("bucket", [(2, 2), (3, 4), (5, 8), (9, 16), (17, 10_000_000)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_counts_for_its_kind_and_its_bucket_only(kind: Kind, bucket: tuple[int, int]) -> None:
    first, last = bucket
    for length in bucket:
        acceptance = Acceptance()
        untouched = Acceptance()
        acceptance.record(kind, length, 0, 4)
        for other in KINDS:
            for match in (0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 10_000_000):
                is_touched = other == kind and (first <= match <= last or (first == 2 and match < 2))
                changed = acceptance.probability(other, match) < untouched.probability(other, match)
                assert changed == is_touched, (other, match)


def test_what_is_long_ago_is_forgotten_and_the_refused_get_another_chance() -> None:
    acceptance = Acceptance()
    for _ in range(200):
        acceptance.record("conversation", 20, 16, 16)
    assert acceptance.probability("conversation", 20) == 0.98
    for _ in range(40):
        acceptance.record("conversation", 20, 0, 16)
    poor = acceptance.probability("conversation", 20)
    assert poor < 0.4
    for _ in range(1000):
        acceptance.refuse("conversation", 20)
    assert 0.89 < acceptance.probability("conversation", 20) < 0.9


records = st.tuples(st.integers(0, 70), st.integers(0, 70)).map(sorted)


@given(st.sampled_from(KINDS), st.integers(0, 40), st.lists(records, max_size=60))
def test_always_within_bounds_and_never_against_the_evidence(kind: Kind, match: int, history: list[list[int]]) -> None:
    acceptance = Acceptance()
    for n_right, n_tried in history:
        before = acceptance.probability(kind, match)
        acceptance.record(kind, match, n_right, n_tried)
        after = acceptance.probability(kind, match)
        assert 0.02 <= after <= 0.98
        if n_right == n_tried:
            assert after >= before - 1e-2  # forgetting a good past can outweigh one more right token, by little
        if n_right == 0 < n_tried:
            assert after <= before + 1e-12


@pytest.mark.parametrize(("n_accepted", "is_muted"), [(0, True), (12, True), (13, False), (64, False)])
def test_fewer_than_20_percent_of_64_mute(n_accepted: int, is_muted: bool) -> None:
    mute = Mute()
    mute.record(n_accepted, n_accepted)
    mute.record(0, 63 - n_accepted if n_accepted < 64 else 0)
    assert not mute.is_muted  # 63 drafted tokens are too few to judge, and 64 right ones are right
    if n_accepted < 64:
        mute.record(0, 1)
    assert mute.is_muted == is_muted
    assert (mute.drafted, mute.accepted) == (64, n_accepted)


def test_a_mute_lasts_128_committed_tokens_and_the_window_starts_anew() -> None:
    mute = Mute()
    mute.record(0, 64)
    mute.count_down(127)
    assert mute.is_muted
    mute.count_down(1)
    assert not mute.is_muted
    mute.record(0, 63)
    assert not mute.is_muted
    mute.record(0, 1)
    assert mute.is_muted
    mute.count_down(5000)
    mute.count_down(1)
    assert not mute.is_muted
    assert (mute.drafted, mute.accepted) == (128, 0)


def test_only_the_last_64_count() -> None:
    mute = Mute()
    mute.record(16, 16)  # these leave the window, one by one, as wrong ones come in
    mute.record(0, 48)
    mute.record(0, 3)
    assert not mute.is_muted  # 13 of 64
    mute.record(0, 1)
    assert mute.is_muted  # 12 of 64


@given(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 64), st.integers(0, 40)), max_size=60))
def test_every_verdict_equals_that_of_a_plain_window(history: list[tuple[int, int, int]]) -> None:
    mute, window, left = Mute(), deque[bool](maxlen=64), 0
    for n_accepted, n_wrong, n_committed in history:
        n_wrong = min(n_wrong, 64 - n_accepted)
        mute.record(n_accepted, n_accepted + n_wrong)
        window.extend([True] * n_accepted + [False] * n_wrong)
        if len(window) == 64 and sum(window) / 64 < 0.20:
            left = 128
            window.clear()
        assert mute.is_muted == (left > 0)
        mute.count_down(n_committed)
        left = max(left - n_committed, 0)
        assert mute.is_muted == (left > 0)
