"""The processor of a grammar: what it forbids, what it knows ahead, and how it counts thoughts out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fucina.decoding.grammar import masks
from fucina.decoding.grammar.masks import MaskThread
from fucina.decoding.grammar.processor import GrammarProcessor, Thinking
from fucina.decoding.params import SamplingParams
from fucina.decoding.picker import Picker
from fucina.decoding.processors.contract import Constraining, LogitProcessor, PassListener, StructuralProcessor
from fucina.decoding.reference_scans import ReferenceScans
from fucina.decoding.scans import open_scans
from fucina.errors import AllTokensMasked, ConstraintFailed
from fucina.testing.scripted_matcher import ScriptedMatcher

VOCAB, END, OTHER_END, OPEN, CLOSE = 70, 69, 68, 50, 51
ANSWERS = [[1, 2, 3], [1, 2, 40, 5], [6], [6, 7]]
THINKING = Thinking(OPEN, CLOSE)


@pytest.fixture(autouse=True)
def always_handed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_WORTH_HANDING_S", 0.0)


def new(thinking: Thinking | None = None, matcher: Any = None, **options: Any) -> GrammarProcessor:
    matcher = matcher or ScriptedMatcher(ANSWERS, vocab=VOCAB, end_ids={END, OTHER_END})
    return GrammarProcessor(
        matcher, options.pop("scans", ReferenceScans()), end_ids={END, OTHER_END}, thinking=thinking, **options
    )


def allowed(processor: GrammarProcessor) -> set[int]:
    """The tokens of the next row that are not -inf; whatever is left has its logit."""
    row = np.arange(VOCAB, dtype=np.float32)
    processor.process(row, [])
    kept = np.flatnonzero(row > -np.inf)
    np.testing.assert_array_equal(row[kept], kept.astype(np.float32))
    return set(kept.tolist())


def say(processor: GrammarProcessor, *tokens: int) -> GrammarProcessor:
    for token in tokens:
        assert token in allowed(processor)
        processor.commit(token)
    return processor


def test_it_is_all_that_a_processor_can_be() -> None:
    processor = new()
    for protocol in (LogitProcessor, StructuralProcessor, PassListener, Constraining):
        assert protocol is LogitProcessor or isinstance(processor, protocol)


@pytest.mark.parametrize("scans", [open_scans(), ReferenceScans()], ids=["native", "reference"])
def test_only_what_the_grammar_allows_is_left(scans: Any) -> None:
    processor = new(scans=scans)
    assert allowed(processor) == {1, 6}
    processor.commit(6)
    assert allowed(processor) == {7, END, OTHER_END}
    processor.commit(7)
    assert allowed(processor) == {END, OTHER_END}


def test_one_commit_goes_on_by_one_token_and_nothing_else_does() -> None:
    processor = new()
    matcher = processor._masks.matcher
    assert isinstance(matcher, ScriptedMatcher)
    allowed(processor)
    for _ in range(3):
        processor.prepare([1, 2])
        processor.forced_tokens(5)
        processor.valid_prefix_len([1, 2])
        assert processor.is_satisfied(ended=False) is False
    assert matcher.consumed == ()
    processor.commit(1)
    assert matcher.consumed == (1,)


def test_reset_begins_again_from_a_copy() -> None:
    processor = new()
    say(processor, 1, 2)
    processor.prepare([3])
    processor.reset()
    assert allowed(processor) == {1, 6}
    assert processor.mask_costs.masks == 1
    say(processor, 6, END)
    processor.reset()
    assert allowed(processor) == {1, 6}
    assert not processor.is_satisfied(ended=True)


def test_an_end_is_not_consumed() -> None:
    processor = say(new(), 6, END)
    matcher = processor._masks.matcher
    assert isinstance(matcher, ScriptedMatcher)
    assert matcher.consumed == (6,)


def test_look_aheads() -> None:
    processor = new()
    assert list(processor.forced_tokens(8)) == []
    assert processor.valid_prefix_len([1, 2, 40, 5, END, 1]) == 5
    assert processor.valid_prefix_len([1, 2, 9]) == 2
    assert processor.valid_prefix_len([]) == 0
    say(processor, 1)
    assert list(processor.forced_tokens(8)) == [2]
    say(processor, 2, 40)
    assert list(processor.forced_tokens(8)) == [5]
    assert list(processor.forced_tokens(0)) == []


@pytest.mark.parametrize(
    ("said", "by_end", "cut"),
    [
        ([], False, False),
        ([1, 2], False, False),
        ([6], False, True),  # cut behind the 6
        ([6, 7], True, True),  # 6 alone is an answer too, should 7 be no more than a stop
        ([6, END], True, True),
        ([1, 2, 3], False, True),
        ([1, 2, 3, END], True, True),
    ],
)
def test_whether_an_answer_is_whole(said: list[int], by_end: bool, cut: bool) -> None:
    processor = say(new(), *said)
    assert processor.is_satisfied(ended=True) is by_end
    assert processor.is_satisfied(ended=False) is cut


def test_a_row_without_a_way_out_is_an_error_of_its_own() -> None:
    picker = Picker(SamplingParams(), 0, new())
    row = np.zeros(VOCAB, np.float32)
    row[[1, 6]] = -np.inf  # the model itself allows nothing that the grammar does
    with pytest.raises(AllTokensMasked):
        picker.pick(row, [])


@given(st.lists(st.integers(0, VOCAB - 1), max_size=5), st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_preparing_never_changes_what_is_allowed(drafts: list[int], choices: list[int]) -> None:
    """Whatever is drafted, whenever: the same masks as with no drafts and no thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "_WORTH_HANDING_S", 0.0)
        for thinking in (None, THINKING, THINKING._replace(is_open=True)):
            drafted, plain = new(thinking), new(thinking, thread=None)
            for n, choice in enumerate(choices):
                if n % 3 == 0:
                    drafted.prepare(drafts)
                options = sorted(allowed(plain))
                assert sorted(allowed(drafted)) == options
                assert drafted.valid_prefix_len(drafts) == plain.valid_prefix_len(drafts)
                token = CLOSE if choice == 9 and CLOSE in options else options[choice % len(options)]
                drafted.commit(token)
                plain.commit(token)
                if token in (END, OTHER_END):
                    break
                assert drafted.is_satisfied(ended=False) == plain.is_satisfied(ended=False)


# -- thinking --------------------------------------------------------------------------------------------------


def test_it_may_think_before_its_first_token_and_then_not_again() -> None:
    assert allowed(new(THINKING)) == {1, 6, OPEN}
    assert allowed(say(new(THINKING), 1)) == {2}


def test_thoughts_are_free_but_for_ends_and_the_grammar_begins_behind_them() -> None:
    processor = say(new(THINKING), OPEN)
    thoughts = set(range(VOCAB)) - {END, OTHER_END}
    for token in (9, 33, OPEN, 6):
        assert allowed(processor) == thoughts
        processor.commit(token)
    assert not processor.is_satisfied(ended=False)
    assert allowed(processor) == thoughts
    processor.commit(CLOSE)
    assert allowed(processor) == {1, 6}
    say(processor, 6, END)
    assert processor.is_satisfied(ended=True)


def test_a_prompt_may_end_in_the_thoughts() -> None:
    processor = new(THINKING._replace(is_open=True))
    assert allowed(processor) == set(range(VOCAB)) - {END, OTHER_END}
    processor.commit(CLOSE)
    assert allowed(processor) == {1, 6}
    processor.reset()
    assert allowed(processor) == set(range(VOCAB)) - {END, OTHER_END}


@pytest.mark.parametrize(
    ("is_open", "tokens", "n_valid"),
    [
        (True, [9, 9, CLOSE, 6, 7, 9], 5),
        (True, [9, END, CLOSE], 1),
        (True, [9, 9], 2),
        (True, [CLOSE, 9], 1),
        (True, [CLOSE], 1),
        (False, [OPEN, 9, CLOSE, 1, 2, 9], 5),
        (False, [OPEN, OTHER_END], 1),
        (False, [6, OPEN], 1),
        (False, [9, OPEN], 0),
        (False, [], 0),
    ],
)
def test_drafts_are_checked_from_the_marker_on(is_open: bool, tokens: list[int], n_valid: int) -> None:
    processor = new(THINKING._replace(is_open=is_open))
    assert processor.valid_prefix_len(tokens) == n_valid
    assert list(processor.forced_tokens(4)) == []
    # and so is each row of a pass with these drafts
    processor.prepare(tokens)
    for token in tokens[:n_valid]:
        assert token in allowed(processor)
        processor.commit(token)
    if n_valid < len(tokens):
        assert tokens[n_valid] not in allowed(processor)


def test_nothing_is_forced_while_thinking_may_begin() -> None:
    matcher = ScriptedMatcher([[1, 2]], vocab=VOCAB, end_ids={END})
    assert list(new(None, matcher).forced_tokens(4)) == [1, 2]
    assert list(new(THINKING, matcher).forced_tokens(4)) == []
    assert list(say(new(THINKING, matcher), 1).forced_tokens(4)) == [2]
    assert list(say(new(THINKING, matcher), OPEN, CLOSE).forced_tokens(4)) == [1, 2]


# -- failures --------------------------------------------------------------------------------------------------


class Broken(ScriptedMatcher):
    """Fails in one of its methods."""

    fails_in = ""

    def masks(self, drafts: Sequence[int], out: Any) -> int:
        self._may_fail("masks")
        return super().masks(drafts, out)

    def take(self, token: int) -> bool:
        self._may_fail("take")
        return super().take(token)

    def copy(self) -> Broken:
        other = Broken(self._answers, vocab=VOCAB, end_ids=self._end_ids)
        other.fails_in = self.fails_in
        return other

    def _may_fail(self, method: str) -> None:
        if method == self.fails_in:
            raise ConstraintFailed(f"{method} is broken")


@pytest.mark.parametrize("thread", [None, MaskThread()], ids=["inline", "thread"])
@pytest.mark.parametrize("fails_in", ["masks", "take"])
def test_what_the_matcher_raises_comes_out(fails_in: str, thread: MaskThread | None) -> None:
    matcher = Broken(ANSWERS, vocab=VOCAB, end_ids={END})
    matcher.fails_in = fails_in
    processor = new(None, matcher, thread=thread)
    processor.prepare(())
    with pytest.raises(ConstraintFailed, match=f"{fails_in} is broken"):
        say(processor, 1)
