import numpy as np
import pytest
from numpy.typing import NDArray

from fucina.core.shapes import KV_BLOCK
from fucina.errors import ShapeError
from fucina.ops.batch import Batch, Span
from fucina.storage.kv.sequence import KvSequence
from fucina.testing.scripted_model import ScriptedModel, follow

PROMPT = [int(t) for t in np.random.default_rng(0).integers(0, 256, 150)]


def run(model: ScriptedModel, kv: KvSequence, tokens: list[int]) -> NDArray[np.float32]:
    kv.reserve(len(tokens))
    logits = model.forward(Batch((Span(tokens, kv.length, kv.blocks, len(tokens)),)))
    kv.advance(len(tokens))
    return logits


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(max_rows=200)


def test_logits_do_not_depend_on_the_cutting(model: ScriptedModel) -> None:
    whole = run(model, KvSequence(model.kv_pool), PROMPT)
    for chunk in (1, 7, 64):
        kv = KvSequence(model.kv_pool)
        pieces = [run(model, kv, PROMPT[i : i + chunk]) for i in range(0, len(PROMPT), chunk)]
        assert np.array_equal(np.concatenate(pieces), whole)


def test_every_earlier_token_and_its_position_matter(model: ScriptedModel) -> None:
    whole = run(model, KvSequence(model.kv_pool), PROMPT)[-1]
    for changed in ([PROMPT[0] ^ 1, *PROMPT[1:]], [*PROMPT[:70], PROMPT[71], PROMPT[70], *PROMPT[72:]], PROMPT[1:]):
        assert not np.array_equal(run(model, KvSequence(model.kv_pool), changed)[-1], whole)


def test_it_reads_the_prefix_from_the_blocks_it_is_given(model: ScriptedModel) -> None:
    kv = KvSequence(model.kv_pool)
    run(model, kv, PROMPT)
    right = run(model, kv, [5])[0]
    kv.truncate(len(PROMPT))
    kv.blocks[0], kv.blocks[1] = kv.blocks[1], kv.blocks[0]
    assert not np.array_equal(run(model, kv, [5])[0], right)


def test_a_forgotten_truncation_shows(model: ScriptedModel) -> None:
    kv = KvSequence(model.kv_pool)
    run(model, kv, PROMPT)
    right = run(model, kv, [5])[0]
    assert not np.array_equal(run(model, kv, [5])[0], right)
    kv.truncate(len(PROMPT))
    assert np.array_equal(run(model, kv, [5])[0], right)


def test_forks_share_until_they_write(model: ScriptedModel) -> None:
    kv = KvSequence(model.kv_pool)
    run(model, kv, PROMPT)
    fork = kv.fork()
    one, other = run(model, kv, [1])[0], run(model, fork, [2])[0]
    fresh = run(model, KvSequence(model.kv_pool), [*PROMPT, 1])[-1]
    assert np.array_equal(one, fresh)
    assert not np.array_equal(one, other)


def test_batch_mates_do_not_matter(model: ScriptedModel) -> None:
    a, b = KvSequence(model.kv_pool), KvSequence(model.kv_pool)
    a.reserve(3)
    b.reserve(70)
    both = model.forward(Batch((Span([1, 2, 3], 0, a.blocks, 1), Span(PROMPT[:70], 0, b.blocks, 2))))
    assert np.array_equal(both[0], run(model, KvSequence(model.kv_pool), [1, 2, 3])[-1])
    assert np.array_equal(both[1:], run(model, KvSequence(model.kv_pool), PROMPT[:70])[-2:])


def test_a_script_leads_and_a_wrong_prefix_loses_it() -> None:
    model = ScriptedModel(script=follow([10, 20, 30]))
    assert run(model, KvSequence(model.kv_pool), [10, 20]).argmax(axis=1).tolist() == [20, 30]
    assert run(model, KvSequence(model.kv_pool), [11, 20]).max() < 8.0


def test_too_many_rows_and_missing_blocks_are_refused(model: ScriptedModel) -> None:
    kv = KvSequence(model.kv_pool)
    kv.reserve(1)
    with pytest.raises(ShapeError):
        model.forward(Batch((Span([1] * (KV_BLOCK + 1), 0, kv.blocks, 1),)))
    with pytest.raises(ShapeError):
        model.forward(Batch((Span([1] * 201, 0, kv.blocks, 1),)))
