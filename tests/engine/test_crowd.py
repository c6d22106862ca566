"""In a crowd rows are dearer, and drafts shrink by themselves."""

import json
from pathlib import Path

import pytest

from fucina.decoding.params import SamplingParams
from fucina.decoding.speculation.crowd import Crowd
from fucina.decoding.speculation.stats import SpeculationStats
from fucina.engine.model import Model
from fucina.engine.pass_costs import PassCosts
from fucina.engine.speculation import Speculation
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

WORD = list(b"abcdefghijkl")
PROMPT = WORD * 3


@pytest.fixture(autouse=True)
def _only_the_tables_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes of a scripted model take decides nothing here."""
    monkeypatch.setattr(Crowd, "record_verify", lambda *_: None)


def drafts_of(
    file: Path, points: list[tuple[int, float]], n_together: int, max_rows: int = 512
) -> list[SpeculationStats]:
    """What becomes of so many equal copy tasks in one batch, at these prices."""
    file.write_text(json.dumps({"rows_and_costs": points}))
    lm = ScriptedModel(max_rows=max_rows, script=lambda prefix: WORD[len(prefix) % len(WORD)])
    model = Model(lm, ByteTokenizer(), speculation=Speculation(lm.vocab, PassCosts(lm, file)))
    params = SamplingParams(max_tokens=60)
    completions = model.generate_batch([PROMPT] * n_together, params)
    assert [completion.ids for completion in completions] == [WORD * 5] * n_together
    stats = [completion.speculation for completion in completions if completion.speculation is not None]
    assert len(stats) == n_together
    return stats


def test_where_rows_become_dear_a_crowd_drafts_less(tmp_path: Path) -> None:
    # A row more takes a tenth of a pass of one; beside seven others, which take 1.7, 8 * 0.1 / 1.7 = 0.47 of a step.
    points = [(1, 1.0), (201, 21.0)]
    (alone,) = drafts_of(tmp_path / "prices.json", points, 1)
    assert alone.accepted > 0
    for one in drafts_of(tmp_path / "prices.json", points, 8):
        assert one.accepted > 0
        assert one.drafted / one.verify_steps < alone.drafted / alone.verify_steps
        assert one.verify_cost / one.verify_steps == pytest.approx(1 + 0.47 * one.drafted / one.verify_steps, rel=0.05)


def test_where_rows_are_too_dear_a_crowd_drafts_nothing(tmp_path: Path) -> None:
    points = [(1, 1.0), (8, 1.35), (9, 3.0), (20, 30.0)]
    (alone,) = drafts_of(tmp_path / "prices.json", points, 1)
    assert alone.accepted > 0
    for one in drafts_of(tmp_path / "prices.json", points, 8):
        assert (one.drafted, one.verify_steps) == (0, 0)
        assert one.fallback_steps >= 58  # one token comes with the prompt, and after the last but one nobody is asked


def test_where_rows_are_cheap_a_crowd_drafts_as_much(tmp_path: Path) -> None:
    (alone,) = drafts_of(tmp_path / "prices.json", [(1, 1.0), (200, 1.1)], 1)
    # 64 rows of a pass leave seven drafts each, and a few more until all of them are writing
    for one in drafts_of(tmp_path / "prices.json", [(1, 1.0), (200, 1.1)], 8, max_rows=64):
        assert 5 < one.drafted / one.verify_steps < 9
        assert one.accepted * 2 > alone.accepted
