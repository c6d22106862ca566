"""Masks ahead: the same ones whoever computes them, each once, and a thread that never holds anybody up."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Iterator, Sequence
from threading import Event, Timer, get_ident
from typing import Any

import numpy as np
import pytest

from fucina.decoding.grammar import masks
from fucina.decoding.grammar.masks import MasksAhead, MaskThread
from fucina.errors import ConstraintFailed
from fucina.testing.scripted_matcher import ScriptedMatcher

VOCAB, END = 70, 69
#: Nothing here takes so long; it turns a wait for ever into a failure.
PATIENCE_S = 120.0
ANSWERS = [[1, 2, 3], [1, 2, 40, 5], [6], [6, 7]]


class Watched(ScriptedMatcher):
    """Remembers who computed what; may be slow, or fail, in `masks`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: list[tuple[int, list[int]]] = []
        self.go_on, self.began = Event(), Event()
        self.go_on.set()
        self.error: Exception | None = None

    def masks(self, drafts: Sequence[int], out: Any) -> int:
        self.calls.append((get_ident(), list(drafts)))
        self.began.set()
        assert self.go_on.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return super().masks(drafts, out)


def watched() -> Watched:
    return Watched(ANSWERS, vocab=VOCAB, end_ids={END})


def allowed(mask: np.ndarray) -> set[int]:
    assert mask.shape == (3,) and mask.dtype == np.uint32
    return {token for token in range(96) if int(mask[token // 32]) >> token % 32 & 1}


@pytest.fixture
def thread() -> Iterator[MaskThread]:
    yield MaskThread()


@pytest.fixture(autouse=True)
def always_handed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_WORTH_HANDING_S", 0.0)


@pytest.mark.parametrize("drafts", [[], [1], [1, 2], [1, 2, 40, 5], [1, 2, 3, END], [9, 1], [1, 9], [6, 6]])
@pytest.mark.parametrize("answer", [[1, 2, 3], [1, 2, 40, 5], [6]])
def test_masks_do_not_depend_on_who_computes_them(thread: MaskThread, drafts: list[int], answer: list[int]) -> None:
    told = []
    for used in (thread, None):
        ahead = MasksAhead(watched(), used)
        seen = []
        for n, token in enumerate(answer):
            if n in (0, 2):
                ahead.prepare(drafts)
            seen.append(allowed(ahead.mask()))
            ahead.consume(token)
        seen.append(allowed(ahead.mask()))
        told.append(seen)
    assert told[0] == told[1]
    assert told[0][0] == {1, 6}
    assert END in told[0][-1]


def test_drafts_that_come_true_need_no_other_mask(thread: MaskThread) -> None:
    matcher = watched()
    ahead = MasksAhead(matcher, thread)
    ahead.prepare((1, 2))
    for token in (1, 2):
        ahead.mask()
        ahead.consume(token)
    assert allowed(ahead.mask()) == {3, 40}
    assert [drafts for _, drafts in matcher.calls] == [[1, 2]]
    assert ahead.costs.masks == 3


def test_the_same_preparation_twice_is_computed_once(thread: MaskThread) -> None:
    matcher = watched()
    ahead = MasksAhead(matcher, thread)
    ahead.prepare([1])
    ahead.prepare((1,))  # the pass failed, and is tried again
    ahead.mask()
    ahead.prepare([6])
    assert allowed(ahead.mask()) == {1, 6}
    ahead.consume(6)
    assert allowed(ahead.mask()) == {7, END}
    assert [drafts for _, drafts in matcher.calls] == [[1], [6]]


def test_another_thread_computes_and_the_time_waited_is_less(
    thread: MaskThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(masks, "perf_counter", lambda: now_s[0])
    compute = ScriptedMatcher.masks

    def in_five_seconds(self: ScriptedMatcher, drafts: Sequence[int], out: Any) -> int:
        now_s[0] += 5.0
        return compute(self, drafts, out)

    monkeypatch.setattr(ScriptedMatcher, "masks", in_five_seconds)
    matcher = watched()
    ahead = MasksAhead(matcher, thread)
    ahead.prepare(())
    assert matcher.began.wait(PATIENCE_S)
    assert ahead.matcher is matcher  # which waits for its mask
    ahead.mask()
    assert matcher.calls[0][0] != get_ident()
    assert (ahead.costs.seconds, ahead.costs.waited_s, ahead.costs.hidden) == (5.0, 0.0, 1.0)
    alone = MasksAhead(watched(), None)
    alone.prepare(())
    alone.mask()
    assert (alone.costs.seconds, alone.costs.waited_s, alone.costs.hidden) == (5.0, 5.0, 0.0)


def test_a_mask_that_nobody_began_is_computed_by_who_needs_it(thread: MaskThread) -> None:
    first, second = watched(), watched()
    first.go_on.clear()
    busy, waiting = MasksAhead(first, thread), MasksAhead(second, thread)
    busy.prepare(())
    assert first.began.wait(PATIENCE_S)
    waiting.prepare(())
    assert allowed(waiting.mask()) == {1, 6}  # though the thread is not free
    assert second.calls[0][0] == get_ident()
    first.go_on.set()
    assert allowed(busy.mask()) == {1, 6}
    assert len(first.calls) == len(second.calls) == 1


def test_whoever_uses_the_matcher_waits_for_its_masks(thread: MaskThread) -> None:
    matcher = watched()
    ahead = MasksAhead(matcher, thread)
    matcher.go_on.clear()
    ahead.prepare(())
    assert matcher.began.wait(PATIENCE_S)
    Timer(0.02, matcher.go_on.set).start()
    assert ahead.matcher is matcher
    assert matcher.n_masks == 1  # it was done by then


def test_a_failure_comes_out_where_the_mask_is_needed(thread: MaskThread) -> None:
    for used in (thread, None):
        matcher = watched()
        matcher.error = ConstraintFailed("broken")
        ahead = MasksAhead(matcher, used)
        ahead.prepare([1, 2])
        with pytest.raises(ConstraintFailed, match="broken"):
            ahead.mask()
    ahead = MasksAhead(watched(), thread)  # the thread goes on
    ahead.prepare(())
    assert allowed(ahead.mask()) == {1, 6}


def test_cheap_masks_are_not_handed_over(thread: MaskThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_WORTH_HANDING_S", 1000.0)
    matcher = watched()
    ahead = MasksAhead(matcher, thread)
    ahead.prepare(())  # nothing is known yet
    assert thread._thread is not None
    ahead.mask()
    ahead.consume(6)
    ahead.prepare(())
    assert len(matcher.calls) == 1
    assert allowed(ahead.mask()) == {7, END}
    assert matcher.calls[1][0] == get_ident()


def test_an_idle_thread_ends_and_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_IDLE_S", 0.01)
    thread = MaskThread()
    for _ in range(2):
        ahead = MasksAhead(watched(), thread)
        ahead.prepare(())
        assert allowed(ahead.mask()) == {1, 6}
        began = thread._thread
        assert began is not None and began.daemon
        began.join(PATIENCE_S)
        assert not began.is_alive()


def test_the_thread_keeps_no_matcher_alive(thread: MaskThread) -> None:
    matcher = watched()
    gone = weakref.ref(matcher)
    ahead = MasksAhead(matcher, thread)
    ahead.prepare(())
    ahead.mask()
    del ahead, matcher
    until = time.monotonic() + PATIENCE_S
    while gone() is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.001)
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_has_a_thread_of_its_own_and_never_hangs(thread: MaskThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_LOOK_S", 0.01)
    ready, blocked = watched(), watched()
    idle, busy = MasksAhead(ready, thread), MasksAhead(blocked, thread)
    blocked.go_on.clear()
    busy.prepare(())
    assert blocked.began.wait(PATIENCE_S)
    child = os.fork()
    if child == 0:  # no assertion may leave this branch
        code = 1
        try:
            idle.prepare(())
            if allowed(idle.mask()) == {1, 6}:
                try:
                    busy.mask()
                except ConstraintFailed:
                    code = 0
        finally:
            os._exit(code)
    blocked.go_on.set()
    assert allowed(busy.mask()) == {1, 6}
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_forced_token_has_a_mask_of_its_own_that_costs_nothing(thread: MaskThread) -> None:
    for used in (thread, None):
        matcher = watched()
        ahead = MasksAhead(matcher, used)
        ahead.mask()
        ahead.consume(1)
        ahead.prepare(())
        assert allowed(ahead.mask()) == {2}
        assert len(matcher.calls) == 1
        ahead.consume(2)
        assert allowed(ahead.mask()) == {3, 40}
        assert ahead.costs.masks == 3


@pytest.mark.parametrize("drafts", [[2], [2, 40], [2, 40, 5], [9], [2, 9], []])
def test_masks_behind_forced_drafts(thread: MaskThread, drafts: list[int]) -> None:
    """The thread goes on through what is forced on a matcher of its own, and computes what is not."""
    matcher = watched()
    ahead = MasksAhead(matcher, thread)
    ahead.mask()
    ahead.consume(1)
    ahead.prepare(drafts)
    assert matcher.consumed == (1,)
    seen = []
    for token in (2, 40, 5):
        seen.append(allowed(ahead.mask()))
        ahead.consume(token)
    assert [*seen, allowed(ahead.mask())] == [{2}, {3, 40}, {5}, {END}]
    assert ahead.forced() == []
