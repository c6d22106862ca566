"""Biases, bans, a least length and chains: by hand, by property, and the same with and without speculation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fucina.decoding.params import SamplingParams
from fucina.decoding.processors.banned import BannedTokens
from fucina.decoding.processors.bias import LogitBias
from fucina.decoding.processors.chain import ProcessorChain
from fucina.decoding.processors.contract import LogitProcessor, PassListener, StructuralProcessor
from fucina.decoding.processors.minimum import MinTokens
from fucina.engine.engine import Engine
from fucina.engine.events import Event, TokenEvent
from fucina.engine.request import Request
from fucina.errors import ConfigError
from fucina.testing.byte_tokenizer import EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

VOCAB = 12
ids = st.integers(0, VOCAB - 1)
rows = st.lists(st.floats(-50, 50, width=32), min_size=VOCAB, max_size=VOCAB).map(lambda r: np.array(r, np.float32))


@given(rows, st.dictionaries(ids, st.floats(-1000, 1000)))
def test_a_bias_adds_to_its_tokens_and_leaves_the_others(row: NDArray[np.float32], strengths: dict[int, float]) -> None:
    biased = row.copy()
    LogitBias(strengths).process(biased, [1])
    for token in range(VOCAB):
        assert biased[token] == row[token] + np.float32(strengths.get(token, 0.0))
    assert np.isfinite(biased).all()


def test_a_bias_does_not_bring_a_forbidden_token_back() -> None:
    row = np.array([0.0, -np.inf], np.float32)
    LogitBias({1: 1000}).process(row, [])
    assert row.tolist() == [0.0, -np.inf]


@given(rows, st.sets(ids))
def test_a_ban_forbids_its_tokens_and_nothing_else(row: NDArray[np.float32], banned: set[int]) -> None:
    masked = row.copy()
    BannedTokens(banned).process(masked, [1])
    for token in range(VOCAB):
        assert masked[token] == (-np.inf if token in banned else row[token])


@given(st.integers(0, 6), st.sets(ids, min_size=1), st.integers(0, 9))
def test_no_end_before_so_many_tokens(n: int, ends: set[int], n_given: int) -> None:
    minimum = MinTokens(n, ends)
    for _ in range(2):  # a reset makes it as new
        minimum.reset()
        for _ in range(n_given):
            minimum.commit(0)
        row = np.zeros(VOCAB, np.float32)
        minimum.process(row, [])
        assert set(np.flatnonzero(row == -np.inf).tolist()) == (ends if n_given < n else set())


@pytest.mark.parametrize(
    "strengths", [{0: np.inf}, {0: -np.inf}, {0: np.nan}, {0: 1001}, {0: "1"}, {-1: 1.0}, {1.5: 1.0}, [1], {True: 1.0}]
)
def test_what_is_no_bias(strengths: Any) -> None:
    with pytest.raises(ConfigError, match=r"^logit bias"):
        LogitBias(strengths)


@pytest.mark.parametrize("banned", [[-1], ["1"], "12", 3, [True], [2**31]])
def test_what_is_no_ban(banned: Any) -> None:
    with pytest.raises(ConfigError, match=r"^banned tokens"):
        BannedTokens(banned)


@pytest.mark.parametrize("n", [-1, 1.5, True, "3", None])
def test_what_is_no_minimum(n: Any) -> None:
    with pytest.raises(ConfigError, match=r"^minimum of tokens"):
        MinTokens(n, {EOS})


@pytest.mark.parametrize("processor", [LogitBias({3: 1.0, VOCAB: 1.0}), BannedTokens([VOCAB]), MinTokens(1, [VOCAB])])
def test_ids_beyond_the_model_are_refused_at_the_first_row(processor: LogitProcessor) -> None:
    with pytest.raises(ConfigError, match=f"got {VOCAB}, expected token ids of this model, 0 to {VOCAB - 1}"):
        processor.process(np.zeros(VOCAB, np.float32), [1])
    processor.process(np.zeros(VOCAB + 1, np.float32), [1])


class Told:
    """Keeps what it is told, and adds one to every logit."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:
        logits += 1
        self.calls.append(("process", list(history)))

    def commit(self, token: int) -> None:
        self.calls.append(("commit", token))

    def reset(self) -> None:
        self.calls.append("reset")


class Listening(Told):
    def prepare(self, drafts: Sequence[int]) -> None:
        self.calls.append(("prepare", list(drafts)))


class Ahead(Listening):
    """Allows nothing but token 7."""

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:
        super().process(logits, history)
        logits[:] = np.where(np.arange(len(logits)) == 7, logits, -np.inf)

    def forced_tokens(self, max_tokens: int) -> Sequence[int]:
        return [7] * max_tokens

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:
        return next((i for i, token in enumerate(tokens) if token != 7), len(tokens))


def test_a_chain_tells_each_of_everything_in_order() -> None:
    first, second = Told(), Listening()
    chain = ProcessorChain(first, second)
    row = np.zeros(VOCAB, np.float32)
    chain.reset()
    chain.prepare([4, 5])
    chain.process(row, [1, 2])
    chain.commit(3)
    calls = ["reset", ("process", [1, 2]), ("commit", 3)]
    assert first.calls == calls
    assert second.calls == [calls[0], ("prepare", [4, 5]), *calls[1:]]
    assert row.tolist() == [2.0] * VOCAB
    assert isinstance(chain, PassListener)
    assert not isinstance(chain, StructuralProcessor)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_the_structural_one_comes_last_and_the_chain_looks_ahead(first: bool, nested: bool) -> None:
    ahead: LogitProcessor = ProcessorChain(Ahead()) if nested else Ahead()
    plain = LogitBias({7: 2.0, 3: 5.0})
    chain = ProcessorChain(ahead, plain) if first else ProcessorChain(plain, ahead)
    assert isinstance(chain, StructuralProcessor)
    assert chain.forced_tokens(3) == [7, 7, 7]
    assert chain.valid_prefix_len([7, 7, 3]) == 2
    row = np.zeros(VOCAB, np.float32)
    chain.process(row, [])
    assert np.flatnonzero(np.isfinite(row)).tolist() == [7]
    assert row[7] == 3.0


def test_chains_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="at most one that is structural"):
        ProcessorChain(Ahead(), Ahead())
    told = Told()
    with pytest.raises(ConfigError, match="each of them once"):
        ProcessorChain(told, told)
    row = np.zeros(3, np.float32)
    ProcessorChain().process(row, [])
    assert row.tolist() == [0.0, 0.0, 0.0]


class Guesses:
    """A source that drafts, right or wrong, what an earlier answer said."""

    def __init__(self, said: Sequence[int], every: int) -> None:
        self._said, self._every, self._n = list(said), every, 0

    def suggest(self, context: Sequence[int], max_tokens: int) -> Sequence[int]:
        n = len(context) - 2
        guess = self._said[n : n + min(max_tokens, 5)]
        return [0 if (n + i) % self._every == 0 else token for i, token in enumerate(guess)]

    def observe(self, committed: Sequence[int]) -> None: ...


@given(
    st.dictionaries(st.integers(0, 255), st.floats(-8, 8), max_size=20),
    st.sets(st.integers(0, 255), max_size=60),
    st.integers(0, 20),
    st.sampled_from([0.0, 1.0]),
    st.integers(2, 9),
)
@settings(max_examples=40)
def test_speculation_changes_nothing(
    bias: dict[int, float], banned: set[int], least: int, temperature: float, every: int
) -> None:
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=24, logprobs=1)

    def answer(source: Guesses | None) -> list[tuple[int, float | None]]:
        engine = Engine(ScriptedModel(script=lambda prefix: EOS if len(prefix) % 5 == 0 else None), ByteTokenizer())
        chain = ProcessorChain(LogitBias(bias), BannedTokens(banned), MinTokens(least, {EOS}))
        engine.submit(Request(prompt_ids=[1, 2], params=params, processor=chain, draft_source=source))
        events: list[Event] = list(engine.run())
        return [(event.token, event.logprob) for event in events if isinstance(event, TokenEvent)]

    plain = answer(None)
    said = [token for token, _ in plain]
    assert answer(Guesses(said, every)) == plain
    assert not banned & set(said)
    assert EOS not in said[:least]
    assert len(said) == 24 or said.index(EOS) == len(said) - 1
