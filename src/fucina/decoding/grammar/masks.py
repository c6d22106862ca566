"""Masks of one sequence, computed ahead on a thread beside the forward pass, or when they are asked for.

Which of the two it is changes the time they take and nothing else. A mask that nobody has begun when it is needed is
computed by who needs it, so a busy, ended or forked-away thread holds up nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from fucina.decoding.grammar.contract import Matcher
from fucina.decoding.grammar.costs import MaskCosts
from fucina.errors import ConstraintFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Without work for so long the thread ends; the next work starts another.
_IDLE_S = 5.0
# How often a wait looks whether the thread that computes is still there.
_LOOK_S = 1.0
# Masks that take less are computed when they are asked for: handing work to a thread takes up to 50 us of the step's.
_WORTH_HANDING_S = 100e-6


class MaskJob:
    """The masks of a matcher's token behind some that are forced, and of those behind drafts that follow.

    Whoever comes first computes them.
    """

    def __init__(self, matcher: Matcher, forced: Sequence[int], drafts: Sequence[int], out: NDArray[np.uint32]) -> None:
        self._matcher, self._forced, self._drafts, self._out = matcher, forced, drafts, out
        self._claimed, self._done = Lock(), Lock()
        self._done.acquire()
        self._runner: Thread | None = None
        self.is_done = False
        self.n_masks, self.seconds = 0, 0.0
        self.error: Exception | None = None

    def run(self) -> None:
        """Compute, unless somebody else has begun."""
        if not self._claimed.acquire(blocking=False):
            return
        self._runner = current_thread()
        began = perf_counter()
        try:
            matcher = self._matcher
            if self._forced:
                matcher = matcher.copy()
                for token in self._forced:
                    matcher.consume(token)
            self.n_masks = matcher.masks(self._drafts, self._out)
        except Exception as error:
            self.error = error
        finally:
            self.seconds = perf_counter() - began
            self.is_done = True
            self._done.release()

    def wait(self) -> None:
        """Return when it is done, here if need be. Raises ConstraintFailed where it never will be."""
        self.run()
        while not self.is_done:
            if self._done.acquire(timeout=_LOOK_S):
                return
            if self._runner is not None and not self._runner.is_alive():
                raise ConstraintFailed(
                    "the thread that computed a mask is gone, as after a fork in the middle of an answer: "
                    "begin answers in the process that reads them"
                )


class MaskThread:
    """One thread that computes masks for every sequence of the process. It starts with the first work and ends idle."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[MaskJob] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, job: MaskJob) -> None:
        """Have a job done. What this thread never comes to, `MaskJob.wait` does."""
        if self._thread is None or not self._thread.is_alive():
            # a queue of its own: a fork may have left the old one as if somebody waited at it
            self._jobs = SimpleQueue()
            self._thread = Thread(target=_serve, args=(self._jobs,), name="fucina-masks", daemon=True)
            self._thread.start()
        self._jobs.put(job)


def _serve(jobs: SimpleQueue[MaskJob]) -> None:
    while True:
        try:
            job = jobs.get(timeout=_IDLE_S)
        except Empty:
            return
        job.run()
        del job  # and with it the matcher of an answer that may be over


#: The thread of this process.
MASK_THREAD = MaskThread()


class MasksAhead:
    """One matcher and the masks of the states it is about to be in. Every use of the matcher goes through here.

    Where a token is forced nothing is computed: its mask holds nothing else.
    """

    def __init__(self, matcher: Matcher, thread: MaskThread | None = MASK_THREAD) -> None:
        """Without a thread every mask is computed when it is asked for."""
        self._matcher, self._thread = matcher, thread
        self._out = np.zeros((1, matcher.n_words), np.uint32)
        self._single = np.zeros(matcher.n_words, np.uint32)  # for a forced token
        self._forced: Sequence[int] = ()
        self._knows_forced = False
        self._job: MaskJob | None = None  # of masks that are still to be used
        self._job_tokens: list[int] = []  # forced ones that lead to its first mask, and its drafts
        self._n_lead = self._n_consumed = 0  # forced ones, and tokens of all that were consumed
        self._is_settled = True
        self._expected_s = inf  # of the next mask: what the last one took, for neighbors are alike
        self.costs = MaskCosts()

    @property
    def matcher(self) -> Matcher:
        """The matcher, with no other thread at it."""
        self._settle()
        return self._matcher

    def forced(self) -> Sequence[int]:
        """Tell the tokens that must follow. Raises what the matcher raises."""
        if not self._knows_forced:
            if not self._is_settled:
                self._settle()
            self._forced, self._knows_forced = self._matcher.forced_tokens(), True
        return self._forced

    def prepare(self, drafts: Sequence[int]) -> None:
        """Begin with the masks of the next token and of those behind the drafts, unless it is better to wait."""
        if self._thread is None or self._expected_s * (len(drafts) + 1) < _WORTH_HANDING_S:
            return
        drafts = list(drafts)
        if self._job is not None and not self._n_consumed and self._job_tokens == drafts:
            return  # the pass before failed, and is tried again
        forced = self.forced()
        n_lead = len(forced)
        if list(forced) == drafts[:n_lead]:  # else every token that can come of this pass is forced
            self._thread.submit(self._begin(drafts, n_lead))

    def mask(self) -> NDArray[np.uint32]:
        """Give the mask of the next token (n_words,), valid until the next call of `prepare` or `mask`.

        Raises what the matcher raises.
        """
        began = perf_counter()
        if self._job is None or self._n_consumed < self._n_lead:
            forced = self.forced()
            if forced:
                self.costs.masks += 1
                self._single[:] = 0
                self._single[forced[0] >> 5] = 1 << (forced[0] & 31)
                return self._single
        mask = self._mask_of_job() if self._job is not None else None
        if mask is None:
            mask = self._mask_now()
        self.costs.waited_s += perf_counter() - began
        return mask

    def take(self, token: int) -> bool:
        """Go on by a token if the mask allows it. False: it does not, and nothing changed."""
        if not self._is_settled:
            self._settle()
        if not self._matcher.take(token):
            return False
        if self._knows_forced and len(self._forced) > 1 and self._forced[0] == token:
            self._forced = self._forced[1:]
        else:
            self._knows_forced = False
        if self._n_consumed < len(self._job_tokens) and self._job_tokens[self._n_consumed] == token:
            self._n_consumed += 1
        else:
            self._job = None
        return True

    def consume(self, token: int) -> None:
        """Go on by a token that the mask allows. Raises ConstraintFailed for any other, which changes nothing."""
        if not self.take(token):
            raise ConstraintFailed(f"token {token} is not allowed here")

    def _mask_of_job(self) -> NDArray[np.uint32] | None:
        """The mask of the next token, where the job has it: it may have ended at a draft that is not allowed."""
        self._settle()
        assert self._job is not None
        if self._job.error is not None:
            raise self._job.error
        index = self._n_consumed - self._n_lead
        if index >= self._job.n_masks:
            return None
        mask: NDArray[np.uint32] = self._out[index]
        return mask

    def _mask_now(self) -> NDArray[np.uint32]:
        """The mask of the next token, computed here."""
        self._job, began = None, perf_counter()
        self._matcher.masks((), self._out[:1])
        self._count(1, perf_counter() - began)
        mask: NDArray[np.uint32] = self._out[0]
        return mask

    def _count(self, n_masks: int, seconds: float) -> None:
        self.costs.masks += n_masks
        self.costs.seconds += seconds
        self._expected_s = seconds / max(n_masks, 1)

    def _begin(self, tokens: list[int], n_lead: int) -> MaskJob:
        """A job for the masks behind the first `n_lead` of the tokens, which are forced, and behind each later one."""
        self._settle()
        n_masks = len(tokens) - n_lead + 1
        if len(self._out) < n_masks:
            self._out = np.zeros((n_masks, self._matcher.n_words), np.uint32)
        self._job_tokens, self._n_lead, self._n_consumed, self._is_settled = tokens, n_lead, 0, False
        self._job = MaskJob(self._matcher, tokens[:n_lead], tokens[n_lead:], self._out[:n_masks])
        return self._job

    def _settle(self) -> None:
        """Wait for what is being computed."""
        if not self._is_settled and self._job is not None:
            self._job.wait()
            self._is_settled = True
            self._count(self._job.n_masks, self._job.seconds)
