"""The picker against a plain float64 NumPy implementation of docs/reference/sampling.md."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fucina.core.nativelib import Native, open_native
from fucina.core.randomness import uniform
from fucina.decoding.params import SamplingParams
from fucina.decoding.picker import Picker
from fucina.decoding.reference_scans import ReferenceScans
from fucina.decoding.scans import RowScans
from fucina.errors import AllTokensMasked, BadLogits

Row = NDArray[np.float32]
NATIVE = open_native()
BACKENDS: list[RowScans] = [ReferenceScans()]
if isinstance(NATIVE, Native):
    BACKENDS.append(NATIVE.module)  # type: ignore[arg-type]


def pick(logits: Row, history: Sequence[int], seed: int = 0, **options: object) -> int:
    """Pick with every implementation of the scans; they must agree."""
    params = SamplingParams(**options)  # type: ignore[arg-type]
    tokens = {Picker(params, seed, scans=scans).pick(logits, history).token for scans in BACKENDS}
    assert len(tokens) == 1
    return tokens.pop()


def kept_probabilities(
    logits: Row, temperature: float, top_k: int | None, top_p: float, min_p: float
) -> tuple[NDArray[np.intp], NDArray[np.float64], float]:
    """Ids kept, most probable first, their probabilities, and how near the nearest decision was to a tie."""
    ids = np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))[:top_k]
    x = logits[ids].astype(np.float64) / temperature
    weights = np.exp(x - x[0])
    p = weights / weights.sum()
    cumulative = np.cumsum(p)
    keep = len(p)
    margin = 1.0
    if top_p < 1.0:
        keep = int(np.argmax(cumulative >= top_p)) + 1 if (cumulative >= top_p).any() else keep
        margin = float(np.min(np.abs(cumulative - top_p)))
    if min_p > 0.0:
        ratio = p / p[0]
        if (ratio < min_p).any():
            keep = min(keep, int(np.argmax(ratio < min_p)))
        margin = min(margin, float(np.min(np.abs(ratio - min_p))) if min_p < 1.0 else 1.0)
    keep = max(keep, 1)
    return ids[:keep], p[:keep] / p[:keep].sum(), margin


LOGITS = st.builds(
    lambda seed, width, scale: np.random.default_rng(seed).normal(0, scale, width).astype(np.float32),
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 17, 300, 5000]),
    st.sampled_from([0.1, 1.0, 4.0, 20.0]),
)


@settings(max_examples=400)
@given(
    LOGITS,
    st.one_of(st.floats(0.05, 5.0), st.just(1.0)),
    st.one_of(st.none(), st.integers(1, 400)),
    st.one_of(st.just(1.0), st.floats(0.01, 0.999)),
    st.one_of(st.just(0.0), st.floats(0.001, 1.0)),
    st.tuples(st.integers(-(2**63), 2**64 - 1), st.integers(1, 50)),
)
def test_the_token_is_the_oracles_for_the_same_uniform(
    logits: Row, temperature: float, top_k: int | None, top_p: float, min_p: float, where: tuple[int, int]
) -> None:
    seed, position = where
    ids, p, margin = kept_probabilities(logits, temperature, top_k, top_p, min_p)
    u = uniform(seed, position)
    cumulative = np.cumsum(p)
    assume(min(margin, float(np.min(np.abs(cumulative[:-1] - u), initial=1.0))) > 1e-12)
    want = int(ids[min(int(np.searchsorted(cumulative, u, side="right")), len(ids) - 1)])
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    assert pick(logits, [0] * position, seed, **options) == want


def test_draws_follow_the_distribution_over_the_whole_vocabulary() -> None:
    # flat enough that far more than the first window of 256 tokens must be drawn from
    logits = np.random.default_rng(1).normal(0, 0.5, 3000).astype(np.float32)
    picker = Picker(SamplingParams(temperature=1.3), 77)
    n_draws = 20000
    drawn = Counter(picker.pick(logits, range(n)).token for n in range(n_draws))  # type: ignore[arg-type]
    p = np.exp(logits / 1.3)
    p /= p.sum()
    order = np.argsort(-p)
    for part in np.array_split(order, 30):
        share, want = sum(drawn[int(i)] for i in part) / n_draws, p[part].sum()
        assert abs(share - want) < 5 * np.sqrt(want / n_draws)  # five standard deviations


def test_greedy_takes_the_lowest_of_equals_and_no_seed() -> None:
    logits = np.array([0.0, 2.0, 2.0, -1.0], np.float32)
    assert {pick(logits, [0] * n, seed) for n in range(1, 5) for seed in range(5)} == {1}


@pytest.mark.parametrize("temperature", [1e-4, 1e-30, 5e-324])
def test_tiny_temperatures_are_greedy_and_sound(temperature: float) -> None:
    logits = np.array([3.0, -np.inf, 30000.0, 29999.0], np.float32)
    assert {pick(logits, [0] * n, temperature=temperature) for n in range(1, 30)} == {2}


def test_tiny_temperatures_draw_among_equals() -> None:
    logits = np.array([1.0, 5.0, 5.0], np.float32)
    assert {pick(logits, [0] * n, temperature=1e-300) for n in range(1, 30)} == {1, 2}


def test_a_seed_means_the_same_draws_and_another_seed_other_draws() -> None:
    logits = np.random.default_rng(2).normal(0, 1, 1000).astype(np.float32)
    runs = [[pick(logits, [0] * n, seed, temperature=1.0) for n in range(1, 40)] for seed in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


def test_the_draw_depends_on_the_position_only() -> None:
    logits = np.random.default_rng(3).normal(0, 1, 1000).astype(np.float32)
    picker = Picker(SamplingParams(temperature=1.0), 9)
    picker.pick(logits, [1, 2, 3])
    assert picker.pick(logits, [7] * 20).token == pick(logits, [8] * 20, 9, temperature=1.0)


def test_order_is_temperature_before_top_p() -> None:
    # at temperature 1 the nucleus of 0.8 would keep two tokens (0.67 + 0.24), at 0.5 it keeps one (0.87)
    logits = np.array([3.0, 2.0, 1.0], np.float32)
    assert {pick(logits, [0] * n, temperature=0.5, top_p=0.8) for n in range(1, 200)} == {0}
    assert {pick(logits, [0] * n, temperature=1.0, top_p=0.8) for n in range(1, 200)} == {0, 1}


def test_order_is_top_k_before_top_p() -> None:
    # among the best two the first holds 0.73, so 0.7 keeps one token; of all four it holds only 0.64
    logits = np.array([3.0, 2.0, 1.0, 0.0], np.float32)
    assert {pick(logits, [0] * n, temperature=1.0, top_k=2, top_p=0.7) for n in range(1, 200)} == {0}
    assert {pick(logits, [0] * n, temperature=1.0, top_p=0.7) for n in range(1, 200)} == {0, 1}


def test_min_p_is_relative_to_the_most_probable() -> None:
    logits = np.log(np.array([0.5, 0.26, 0.24], np.float32))
    assert {pick(logits, [0] * n, temperature=1.0, min_p=0.5) for n in range(1, 200)} == {0, 1}
    assert {pick(logits, [0] * n, temperature=1.0, min_p=1.0) for n in range(1, 200)} == {0}


def test_masked_tokens_are_never_drawn() -> None:
    logits = np.full(600, -np.inf, np.float32)
    logits[[5, 599]] = [0.0, 1.0]
    assert {pick(logits, [0] * n, temperature=100.0) for n in range(1, 100)} == {5, 599}


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3}, {"logprobs": 2}])
@pytest.mark.parametrize("width", [1, 40, 1000])
def test_unsound_rows_are_errors(options: dict[str, object], width: int) -> None:
    with pytest.raises(AllTokensMasked, match=f"all {width} tokens"):
        pick(np.full(width, -np.inf, np.float32), [1], **options)
    for bad in (np.nan, np.inf):
        row = np.zeros(width, np.float32)
        row[width // 2] = bad
        with pytest.raises(BadLogits, match=f"{bad} for token {width // 2}"):
            pick(row, [1], **options)


class Recorder:
    """A processor that bans tokens and writes down what it was asked."""

    def __init__(self, banned: Sequence[int] = ()) -> None:
        self.banned, self.calls = list(banned), list[object]()

    def process(self, logits: Row, history: Sequence[int]) -> None:
        self.calls.append(list(history))
        logits[self.banned] = -np.inf

    def commit(self, token: int) -> None:
        self.calls.append(token)

    def reset(self) -> None:
        self.calls.clear()


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 5, "logprobs": 0}])
def test_processors_constrain_every_way_and_commit_once(options: dict[str, object]) -> None:
    logits = np.arange(10, dtype=np.float32)
    before = logits.copy()
    processor = Recorder(banned=range(4, 10))
    choice = Picker(SamplingParams(**options), 1, processor).pick(logits, [7, 7])  # type: ignore[arg-type]
    assert choice.token < 4
    assert processor.calls == [[7, 7], choice.token]
    assert logits.tolist() == before.tolist()


def test_nothing_is_committed_when_all_is_masked() -> None:
    processor = Recorder(banned=range(10))
    with pytest.raises(AllTokensMasked):
        Picker(SamplingParams(), 1, processor).pick(np.zeros(10, np.float32), [7])
    assert processor.calls == [[7]]


def test_penalties_come_after_the_processor_and_before_the_choice() -> None:
    logits = np.array([1.0, 3.0, 2.0], np.float32)
    assert pick(logits, [1], repeat_penalty=2.0) == 2
    assert Picker(SamplingParams(repeat_penalty=2.0), 0, Recorder([2])).pick(logits, [1]).token == 1


def test_logprobs_are_the_models_own() -> None:
    logits = np.array([1.0, 3.0, 2.0, 3.0], np.float32)
    params = SamplingParams(temperature=0.5, top_k=1, repeat_penalty=1.5, logprobs=3)
    choice = Picker(params, 0, Recorder([3])).pick(logits, [1])
    want = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    assert choice.logprob == pytest.approx(want[choice.token], abs=1e-14)
    assert [token for token, _ in choice.top] == [1, 3, 2]
    assert [value for _, value in choice.top] == pytest.approx(want[[1, 3, 2]], abs=1e-14)


def test_no_top_is_computed_unless_asked() -> None:
    logits = np.array([1.0, 3.0], np.float32)
    assert Picker(SamplingParams(), 0).pick(logits, [1]) == (1, None, ())
    zero = Picker(SamplingParams(logprobs=0), 0).pick(logits, [1])
    assert zero.top == ()
    assert zero.logprob == pytest.approx(-np.log1p(np.exp(-2.0)), abs=1e-15)


class Knowing(Recorder):
    """Forbids all but some tokens, and can tell."""

    def __init__(self, tokens: list[int]) -> None:
        super().__init__()
        self.tokens = tokens
        self.n_processed = self.n_masks = 0

    def process(self, logits: Any, history: Sequence[int]) -> None:  # noqa: ARG002
        self.n_processed += 1
        forbidden = np.ones(len(logits), bool)
        forbidden[self.tokens] = False
        logits[forbidden] = -np.inf

    def only_token(self) -> int | None:
        return self.tokens[0] if len(self.tokens) == 1 else None

    def allowed(self) -> NDArray[np.uint32]:
        self.n_masks += 1
        words = np.zeros(max(self.tokens, default=0) // 32 + 1, np.uint32)
        for token in self.tokens:
            words[token // 32] |= np.uint32(1 << token % 32)
        return words

    def take(self, token: int) -> bool:
        if token in self.tokens:
            self.commit(token)
        return token in self.tokens


class Blind:
    """A processor that cannot tell."""

    def __init__(self, inner: Knowing) -> None:
        self.process, self.commit, self.reset = inner.process, inner.commit, inner.reset


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.8}, {"repeat_penalty": 1.5}, {"temperature": 1.0, "top_k": 3}]
)
@pytest.mark.parametrize("allowed", [[3], [7], [1, 5], list(range(8))], ids=repr)
def test_what_is_known_without_a_mask_is_what_the_mask_gives(options: dict[str, Any], allowed: list[int]) -> None:
    rows = np.random.default_rng(3).normal(size=(40, 8)).astype(np.float32)
    knowing, masking = Knowing(allowed), Knowing(allowed)
    blind = Blind(masking)
    params = SamplingParams(logprobs=2, **options)
    told, masked = Picker(params, 1, knowing), Picker(params, 1, blind)
    for n, row in enumerate(rows):
        assert told.pick(row, [1] * n) == masked.pick(row, [1] * n)
    assert masking.n_processed == 40
    assert (knowing.n_processed == 0) == (len(allowed) == 1 or "repeat_penalty" not in options)
    assert (knowing.n_masks == 0) == (len(allowed) == 1 or "temperature" not in options)


def _outcome(picker: Picker, row: Row) -> object:
    try:
        return picker.pick(row, [])
    except (AllTokensMasked, BadLogits) as error:
        return type(error), str(error)


@settings(max_examples=300)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 700),
    st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]),
    st.sampled_from([0.0, 0.003]),
    st.fixed_dictionaries(
        {
            "temperature": st.floats(1e-3, 50.0),
            "top_k": st.one_of(st.none(), st.integers(1, 400)),
            "top_p": st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
            "min_p": st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
            "logprobs": st.just(3),
        }
    ),
)
def test_a_mask_in_place_chooses_as_a_masked_copy_does(
    seed: int, width: int, share: float, bad: float, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(seed)
    row = rng.normal(0, rng.choice([0.5, 5, 500]), width).astype(np.float32)
    tokens = np.flatnonzero(rng.random(width) < share).tolist()
    for value in (-np.inf, np.nan, np.inf):
        row[rng.random(width) < bad] = value
    if not np.all(row < np.inf):  # such a row has no log-probabilities
        options = options | {"logprobs": None}
    params = SamplingParams(**options)
    before = row.tobytes()
    for scans in BACKENDS:
        in_place = Picker(params, seed, Knowing(tokens), scans)
        copying = Picker(params, seed, Blind(Knowing(tokens)), BACKENDS[0])
        assert _outcome(in_place, row) == _outcome(copying, row)
        assert row.tobytes() == before


@pytest.mark.parametrize("rank", [0, 1, 2, 15, 16, 39])
def test_the_greatest_that_is_allowed_is_taken_however_far_down_it_is(rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(20):
        row = rng.integers(0, 12, 40).astype(np.float32)  # with ties
        order = np.argsort(-row, kind="stable")
        knowing = Knowing(sorted(order[rank:].tolist()))
        token = Picker(SamplingParams(), 0, knowing).pick(row, []).token
        assert token == order[rank]
        assert knowing.calls == [token]
        assert knowing.n_processed == (16 <= rank < 39)  # where one is left it is told


def test_the_only_token_must_have_a_logit() -> None:
    row = np.array([0.0, -np.inf, np.nan], np.float32)
    with pytest.raises(AllTokensMasked):
        Picker(SamplingParams(), 0, Knowing([1])).pick(row, [])
    with pytest.raises(BadLogits):
        Picker(SamplingParams(), 0, Knowing([2])).pick(row, [])
