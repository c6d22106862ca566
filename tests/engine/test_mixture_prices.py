"""Speculation on a mixture: rows activate experts of their own, so a verify may cost as much as the steps it saves.

The model is scripted and the clock is its own: a pass takes what its experts take, so every decision is the same
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fucina.decoding.params import SamplingParams
from fucina.engine import pass_costs, runner
from fucina.engine.completion import Completion
from fucina.engine.model import Model
from fucina.engine.pass_costs import STREAMED_ROWS, PassCosts, measure_streamed_costs
from fucina.engine.speculation import Speculation
from fucina.ops.batch import Batch
from fucina.testing.byte_tokenizer import ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

#: A pass takes this besides its experts; one of them takes 1, and READ more where it has to be read.
DENSE, READ = 0.5, 20.0
#: Forty tokens, none of them twice, that are said again and again.
PHRASE = list(range(40, 80))
N_TOKENS = 400

#: The experts that a token activates.
Router = Callable[[int], frozenset[int]]


def the_same(_: int) -> frozenset[int]:
    """All tokens share eight experts."""
    return frozenset(range(8))


def its_own(token: int) -> frozenset[int]:
    """No two tokens share any."""
    return frozenset(range(8 * token, 8 * token + 8))


def its_own_when_written(token: int) -> frozenset[int]:
    """Of what is written each shares half of its experts, the first tokens share all: their prices mislead."""
    return the_same(token) if token < PHRASE[0] else frozenset([*range(4), *range(8 * token, 8 * token + 4)])


@dataclass
class Clock:
    """Time that only the model spends."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Mixture(ScriptedModel):
    """Repeats a phrase; its passes take what their experts take. `slots`: it reads those not among the last so many.

    `every`: so often it says something else.
    """

    def __init__(self, clock: Clock, router: Router, slots: int | None, every: int = 0) -> None:
        super().__init__(context_length=1024, script=lambda prefix: _said(len(prefix), every))
        self._clock, self._router, self._slots = clock, router, slots
        self._held: list[int] = []

    def forward(self, batch: Batch) -> Any:
        wanted = frozenset[int]().union(*(self._router(token) for span in batch.spans for token in span.tokens))
        self._clock.now += DENSE + len(wanted)
        if self._slots is not None:
            self._clock.now += READ * len(wanted - set(self._held))
            kept = [expert for expert in self._held if expert not in wanted]
            self._held = [*kept, *sorted(wanted)][-self._slots :]
        return super().forward(batch)


def _said(position: int, every: int) -> int:
    if every and position * position % every == 1:
        return PHRASE[-1] + 1 + position % 100
    return PHRASE[position % len(PHRASE)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(runner, "perf_counter", clock)
    monkeypatch.setattr(pass_costs, "perf_counter", clock)
    return clock


def answer(
    clock: Clock, router: Router, slots: int | None, *, speculate: bool, every: int = 0
) -> tuple[Completion, float]:
    """The answer, and what its passes took; prices are known before."""
    lm = Mixture(clock, router, slots, every)
    speculation = Speculation(lm.vocab, PassCosts(lm, streamed=slots is not None))
    with Model(lm, ByteTokenizer(), speculation=speculation) as model:
        model.drafts.measure_costs()
        before = clock.now
        params = SamplingParams(max_tokens=N_TOKENS, ignore_eos=True)
        done = model.generate(PHRASE * 2, params, speculate=speculate)
        return done, clock.now - before


#: All experts in memory; all are read once; there is room for those of two tokens.
SLOTS = {"resident": None, "room for all": 8 * 272, "room for few": 16}


@pytest.mark.parametrize("slots", SLOTS.values(), ids=SLOTS)
def test_where_rows_share_experts_drafts_are_tried_and_pay(clock: Clock, slots: int | None) -> None:
    plain, plain_s = answer(clock, the_same, slots, speculate=False)
    drafted, drafted_s = answer(clock, the_same, slots, speculate=True)
    assert drafted.ids == plain.ids
    stats = drafted.speculation
    assert stats is not None
    assert stats.accepted > N_TOKENS * 0.7
    assert stats.gate == "on"
    assert drafted_s < 0.3 * plain_s


@pytest.mark.parametrize("slots", SLOTS.values(), ids=SLOTS)
def test_where_every_row_has_its_own_experts_nothing_is_drafted(clock: Clock, slots: int | None) -> None:
    """All drafts would be right, and a verify of k of them would take k more plain steps less what is dense."""
    plain, plain_s = answer(clock, its_own, slots, speculate=False)
    drafted, drafted_s = answer(clock, its_own, slots, speculate=True)
    assert drafted.ids == plain.ids
    stats = drafted.speculation
    assert stats is not None
    assert drafted_s <= plain_s * 1.03
    if slots != SLOTS["room for all"]:
        assert stats.drafted < N_TOKENS * 0.05


def test_a_gate_that_was_misled_closes(clock: Clock) -> None:
    """By the prices drafts cost nothing; as many as are right here are worth less than their rows take."""
    plain, plain_s = answer(clock, its_own_when_written, None, speculate=False, every=7)
    drafted, drafted_s = answer(clock, its_own_when_written, None, speculate=True, every=7)
    assert drafted.ids == plain.ids
    stats = drafted.speculation
    assert stats is not None
    assert stats.verify_cost == stats.verify_steps, "drafts cost nothing, by the table"
    assert stats.gate == "off"
    assert stats.off_steps > N_TOKENS / 2
    assert drafted_s < 1.15 * plain_s


def test_prices_of_experts_that_are_read_are_those_of_passes_that_read(clock: Clock) -> None:
    """Of plain steps too: with one token again and again they would seem to read nothing."""
    table, _ = measure_streamed_costs(Mixture(clock, its_own, 16))
    one_s, three_s = (DENSE + 8 * n * (1 + READ) for n in (1, 3))
    assert table.cost(3) == pytest.approx(three_s / one_s, rel=0.01)
    fixed = pass_costs.measure_costs(Mixture(clock, its_own, 16))  # the first token is always there
    assert fixed.cost(3) < 0.75 * table.cost(3)


def test_a_slow_model_is_measured_with_few_passes_and_not_for_ever(clock: Clock, tmp_path: Path) -> None:
    model, file = Mixture(clock, its_own, 16), tmp_path / "prices.json"
    table = PassCosts(model, file, streamed=True).table()
    assert model.n_forwards == 1 + 2 * 2  # each takes longer than all should
    assert [rows for rows, _ in table.points] == [1, STREAMED_ROWS[-1]]
    assert not file.exists()
    assert model.kv_pool.n_free == model.kv_pool.capacity


def test_a_fast_model_is_measured_once(tmp_path: Path) -> None:
    model, file = ScriptedModel(), tmp_path / "prices.json"
    table = PassCosts(model, file, streamed=True).table()
    assert [rows for rows, _ in table.points] == [1, *STREAMED_ROWS]
    n_forwards = model.n_forwards
    assert PassCosts(model, file, streamed=True).table().points == table.points
    assert model.n_forwards == n_forwards
    assert [rows for rows, _ in measure_streamed_costs(ScriptedModel(max_rows=1))[0].points] == [1]
