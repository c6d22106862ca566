"""Vectors of texts on a scripted model: pooled as NumPy would, whatever is read together, giving all memory back."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fucina
from fucina.decoding.params import SamplingParams
from fucina.engine.embedding import Embeddings
from fucina.engine.model import Model
from fucina.engine.pooled import TextPooling
from fucina.errors import BadLogits, Closed, ConfigError, ContextFull, EmptyBatch, KvPoolFull, UnsupportedModel
from fucina.ops.batch import Batch, Span
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.byte_tokenizer import BOS, EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

GOLDEN = Path(__file__).parents[1] / "golden"
POOLINGS: tuple[TextPooling, ...] = get_args(TextPooling)
LONG = SamplingParams(max_tokens=200, ignore_eos=True)
RANDOM = np.random.default_rng(3)
INPUTS = [RANDOM.integers(0, 256, n).tolist() for n in (1, 5, 200, 64, 2, 65, 130, 3)]


class Recording(ScriptedModel):
    """Remembers how many rows the passes for hidden states had; may fail in one of them, or say NaN."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.passes: list[int] = []
        self.fails_at = self.is_damaged_at = -1

    def forward_hidden(self, batch: Batch) -> NDArray[np.float32]:
        if len(self.passes) == self.fails_at:
            raise MemoryError("the fault")
        self.passes.append(batch.n_rows)
        hidden = super().forward_hidden(batch)
        if len(self.passes) - 1 == self.is_damaged_at:
            hidden[0, 3] = np.nan
        return hidden


def model_of(scripted: ScriptedModel) -> Model:
    return Model(scripted, ByteTokenizer())


def hidden_states(ids: Sequence[int]) -> NDArray[np.float32]:
    """Of all tokens, in one pass of a model of their own."""
    scripted = ScriptedModel(max_rows=512)
    kv = KvSequence(scripted.kv_pool)
    kv.reserve(len(ids))
    return scripted.forward_hidden(Batch((Span(ids, 0, kv.blocks, 0),)))


def by_hand(ids: Sequence[int], pooling: TextPooling, *, normalize: bool) -> NDArray[np.float64]:
    rows = hidden_states(ids).astype(np.float64)
    vector = {"mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1]}[pooling]
    return np.asarray(vector / np.linalg.norm(vector) if normalize else vector)


def assert_same(got: Embeddings, expected: Embeddings) -> None:
    assert np.array_equal(got.vectors, expected.vectors)
    assert (got.prompt_tokens, got.pooling) == (expected.prompt_tokens, expected.pooling)


def assert_all_given_back(scripted: ScriptedModel) -> None:
    assert scripted.kv_pool.n_free == scripted.kv_pool.capacity


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_pooled_as_by_hand(pooling: TextPooling, normalize: bool) -> None:
    scripted = ScriptedModel()
    got = model_of(scripted).embed(INPUTS, pooling=pooling, normalize=normalize)
    assert got.vectors.shape == (len(INPUTS), scripted.d_model)
    assert got.vectors.dtype == np.float32
    assert got.prompt_tokens == tuple(map(len, INPUTS))
    assert got.pooling == pooling
    for vector, ids in zip(got.vectors, INPUTS, strict=True):
        # the only rounding is that to float32
        np.testing.assert_allclose(vector, by_hand(ids, pooling, normalize=normalize), rtol=2**-22)
    assert_all_given_back(scripted)


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=150), min_size=1, max_size=8),
    st.integers(1, 64),
    st.integers(3, 12),
    st.sampled_from(POOLINGS),
)
def test_no_schedule_shows_in_a_vector(
    inputs: list[list[int]], max_rows: int, kv_blocks: int, pooling: TextPooling
) -> None:
    scripted = ScriptedModel(max_rows=max_rows, kv_blocks=kv_blocks)
    together = model_of(scripted).embed(inputs, pooling=pooling)
    for ids, vector in zip(inputs, together.vectors, strict=True):
        assert np.array_equal(model_of(ScriptedModel()).embed([ids], pooling=pooling).vectors, vector[None])
    assert_all_given_back(scripted)


def test_passes_are_full() -> None:
    scripted = Recording(max_rows=50)
    model_of(scripted).embed(INPUTS)
    n_rows = sum(map(len, INPUTS))
    assert scripted.passes == [50] * (n_rows // 50) + [n_rows % 50]


def test_texts_have_the_begin_and_end_that_the_model_wants() -> None:
    model = model_of(ScriptedModel())
    got = model.embed(["a", "b<eos>c", [1, 2]])
    assert got.prompt_tokens == (3, 5, 2)
    assert_same(got, model.embed([[BOS, *b"a", EOS], [BOS, *b"b", EOS, *b"c", EOS], (1, 2)]))


def test_the_file_says_how_vectors_are_pooled() -> None:
    inputs = [[1, 2, 3]]
    for said, how in (("mean", "mean"), ("cls", "cls"), ("last", "last"), ("none", "mean"), (None, "mean")):
        model = model_of(ScriptedModel(pooling=said))  # type: ignore[arg-type]
        assert_same(model.embed(inputs), model_of(ScriptedModel()).embed(inputs, pooling=how))  # type: ignore[arg-type]
        assert model.embed(inputs, pooling="cls").pooling == "cls"
    ranking = model_of(ScriptedModel(pooling="rank"))
    with pytest.raises(UnsupportedModel, match="rank"):
        ranking.embed(inputs)
    assert ranking.embed(inputs, pooling="last").pooling == "last"


def test_zeros_stay_zeros() -> None:
    class Silent(ScriptedModel):
        def forward_hidden(self, batch: Batch) -> NDArray[np.float32]:
            return np.zeros_like(super().forward_hidden(batch))

    assert not model_of(Silent()).embed([[1, 2]]).vectors.any()


@pytest.mark.parametrize(
    ("inputs", "error", "words"),
    [
        ([], EmptyBatch, "inputs"),
        ("text", ConfigError, "a single one"),
        (b"text", ConfigError, "a single one"),
        (7, ConfigError, "a single one"),
        (["fine", ""], ConfigError, r"inputs\[1\].*at least one character"),
        ([[1], []], ConfigError, r"inputs\[1\].*at least one token"),
        ([[1], [2], [9999]], ConfigError, r"inputs\[2\].*9999"),
        ([1, 2], ConfigError, r"inputs\[0\].*whole numbers"),
        ([[1], ["a"]], ConfigError, r"inputs\[1\].*whole numbers"),
        ([[1], [1] * 513], ContextFull, r"inputs\[1\].*513 tokens.*context 512"),
        ([[1], [1] * 257], KvPoolFull, r"inputs\[1\].*5 KV blocks of 4"),
    ],
)
def test_impossible_inputs_are_named_before_anything_runs(inputs: Any, error: type[Exception], words: str) -> None:
    scripted = ScriptedModel(kv_blocks=4)
    with pytest.raises(error, match=words):
        model_of(scripted).iter_embed(inputs)
    assert scripted.n_forwards == 0


@pytest.mark.parametrize("pooling", ["none", "rank", "max", 1])
def test_poolings_that_give_no_vector_are_refused(pooling: Any) -> None:
    with pytest.raises(ConfigError, match="pooling"):
        model_of(ScriptedModel()).iter_embed([[1]], pooling=pooling)


def test_an_input_may_fill_the_context() -> None:
    assert model_of(ScriptedModel()).embed([[1] * 512]).prompt_tokens == (512,)


@pytest.mark.parametrize("nth", range(8))
def test_a_failed_pass_gives_everything_back(nth: int) -> None:
    scripted = Recording()
    model = model_of(scripted)
    scripted.fails_at = nth
    with pytest.raises(MemoryError, match="the fault"):
        model.embed(INPUTS)
    assert_all_given_back(scripted)
    scripted.fails_at = -1
    assert_same(model.embed(INPUTS), model_of(ScriptedModel()).embed(INPUTS))


def test_a_closed_iterator_gives_everything_back() -> None:
    scripted = Recording()
    model = model_of(scripted)
    pieces = model.iter_embed(INPUTS)
    assert [found.index for found in next(pieces)] == [0, 1]
    assert scripted.kv_pool.n_free < scripted.kv_pool.capacity  # the third is half read
    assert next(pieces) == ()
    pieces.close()  # type: ignore[attr-defined]
    assert_all_given_back(scripted)
    assert len(scripted.passes) == 2


def test_a_model_that_says_nan_is_told_of_by_input() -> None:
    scripted = Recording(max_rows=10)
    scripted.is_damaged_at = 1
    with pytest.raises(BadLogits, match=r"inputs\[1\].*no finite numbers"):
        model_of(scripted).embed([[1] * 8, [2] * 8])
    assert_all_given_back(scripted)


def test_beside_running_answers_passes_are_short_and_nobody_notices() -> None:
    scripted = Recording()
    model = model_of(scripted)
    expected, said = model.embed(INPUTS), model.generate("hello", LONG).ids
    scripted.passes.clear()
    events = model.stream("hello", LONG)
    first = next(events)
    assert_same(model.embed(INPUTS), expected)
    assert max(scripted.passes) == 16
    assert [event.token for event in (first, *events) if isinstance(event, fucina.TokenEvent)] == said


def test_several_threads_at_once() -> None:
    scripted = ScriptedModel(kv_blocks=16)
    model = model_of(scripted)
    expected, said = model_of(ScriptedModel()).embed(INPUTS), model_of(ScriptedModel()).generate("hello", LONG).ids
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(model.generate, "hello", LONG) for _ in range(3)]
        vectors = [pool.submit(model.embed, INPUTS) for _ in range(3)]
        for vector in vectors:
            assert_same(vector.result(), expected)
        assert all(answer.result().ids == said for answer in answers)


def test_where_memory_is_short_answers_end_first() -> None:
    params = SamplingParams(max_tokens=60, ignore_eos=True)
    model = model_of(ScriptedModel(kv_blocks=4))
    events = model.stream("x" * 150, params)
    first = next(events)
    assert_same(model.embed([[1] * 250]), model_of(ScriptedModel()).embed([[1] * 250]))
    before = model.counters.rows
    said = [event.token for event in (first, *events) if isinstance(event, fucina.TokenEvent)]
    assert said == model_of(ScriptedModel()).generate("x" * 150, params).ids
    assert model.counters.rows == before  # all had been said when the vector was computed


def test_memory_that_nobody_will_give_back_is_an_error() -> None:
    scripted = ScriptedModel(kv_blocks=4)
    model = model_of(scripted)
    held = KvSequence(scripted.kv_pool)
    held.reserve(100)
    with pytest.raises(KvPoolFull, match=r"inputs\[1\].*3 KV blocks, and 2 are free"):
        model.embed([[1], [2] * 130])
    held.close()
    assert_all_given_back(scripted)


def test_a_closed_model_says_so() -> None:
    model = model_of(ScriptedModel())
    model.close()
    with pytest.raises(Closed):
        model.embed([[1]])


#: Of the angle between our vector and the peer's: our activations are rounded to 8 bits at every product, the peer's
#: are not. Different texts here are a hundred times farther from each other.
ROUNDED_ACTIVATIONS = 3e-3


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_vectors_are_those_of_transformers(name: str, request: pytest.FixtureRequest) -> None:
    golden = np.load(GOLDEN / "embeddings.npz")
    inputs = [golden[f"{name}-{i}-ids"].tolist() for i in range(4)]
    path: Path = request.getfixturevalue(f"{name}_path")
    found: dict[str, Embeddings] = {}
    with fucina.load(path, threads=2, speculation=False) as model:
        for pooling in ("mean", "last"):
            found[pooling] = model.embed(inputs, pooling=pooling)  # type: ignore[arg-type]
            peer = np.stack([golden[f"{name}-{i}-{pooling}"] for i in range(4)]).astype(np.float64)
            cosines = found[pooling].vectors.astype(np.float64) @ peer.T
            print(f"{name}, {pooling}: cosines with the peer's {cosines.diagonal().round(5)}")
            assert cosines.diagonal().min() >= 1.0 - ROUNDED_ACTIVATIONS
            assert (cosines - np.eye(4) * 2).max() <= 1.0 - 50 * ROUNDED_ACTIVATIONS
    with fucina.load(path, threads=1, prefill_chunk=7, speculation=False) as model:
        for pooling, expected in found.items():
            for i in (3, 1):
                alone = model.embed(inputs[i : i + 1], pooling=pooling)  # type: ignore[arg-type]
                assert np.array_equal(alone.vectors[0], expected.vectors[i])
