"""Many requests, one thread of arithmetic: submit, step, cancel. The facade over scheduler and runner.

An engine belongs to one thread at a time; `dispatch` lets several share one.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter

from fucina.core.randomness import fresh_seed
from fucina.core.shapes import KV_BLOCK
from fucina.decoding.picker import Picker
from fucina.decoding.scans import open_scans
from fucina.decoding.speculation.costs import StepCosts
from fucina.engine.arrivals import Arrivals, Deadlines
from fucina.engine.counters import Counters, KvUse
from fucina.engine.events import Event
from fucina.engine.pacing import Pacing
from fucina.engine.request import Request, checked_ids
from fucina.engine.runner import Runner
from fucina.engine.scheduler import Scheduler, blocks_for
from fucina.engine.session import Ending, Session, constraint_of
from fucina.engine.speculator import Speculator
from fucina.engine.wording import Wording
from fucina.errors import CannotRewind, Closed, ConfigError, DeadlineExceeded, KvPoolFull
from fucina.models.contract import CausalLM
from fucina.storage.kv.prefix import PrefixCache
from fucina.storage.kv.sequence import KvSequence

#: Prompt rows of one pass: every row takes buffers, and there is nothing to win long before this.
PREFILL_CHUNK_LIMIT = 8192

_LATE = "the request had not ended {:g} s after it was submitted: give it more time, or ask for fewer tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What an engine may do: positions of one sequence, prompt rows of one pass, requests running at once.

    `context` and `max_running`: None means as much as the model can.
    """

    context: int | None = None
    prefill_chunk: int = 512
    max_running: int | None = None

    def __post_init__(self) -> None:
        for option, most in (
            ("context", 2**31 - 1),
            ("prefill_chunk", PREFILL_CHUNK_LIMIT),
            ("max_running", 2**31 - 1),
        ):
            value = getattr(self, option)
            if value is None and option != "prefill_chunk":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ConfigError(option, got=value, expected=f"a whole number from 1 to {most}")


class Engine:
    """Advances every submitted request, one pass a step."""

    def __init__(
        self,
        model: CausalLM,
        wording: Wording,
        config: EngineConfig | None = None,
        prefixes: PrefixCache | None = None,
    ) -> None:
        """`prefixes`, over the model's pool, keeps what was computed for prompts to come."""
        config = config or EngineConfig()
        self._model, self._wording = model, wording
        if config.context is not None and config.context > model.context_length:
            raise ConfigError("context", got=config.context, expected=f"at most {model.context_length} for this model")
        self.context = config.context or model.context_length
        self._max_running = config.max_running or model.max_rows
        self._n_choosable = min(model.vocab, wording.vocab_size)
        self._counters = Counters()
        self._scans = open_scans()
        self._pacing = Pacing()
        self._scheduler = Scheduler(max_rows=model.max_rows, prefill_chunk=config.prefill_chunk, pacing=self._pacing)
        self._prefixes = prefixes or PrefixCache(model.kv_pool)
        # an engine that is simply dropped, or alive when the process ends, stores what it keeps too
        weakref.finalize(self, self._prefixes.close)
        self._runner = Runner(model, self._n_choosable, self._counters, self._pacing, self._keep_prompt)
        self._waiting = Arrivals()
        self._running: dict[int, Session] = {}
        self._restoring: tuple[Session, KvSequence] | None = None  # who is next, and what is fetched of its tokens
        self._deadlines = Deadlines()
        self._outbox: list[Event] = []
        self._n_submitted = self._n_steps = 0
        self._closed = False
        #: Whether the last step had nothing to compute because all that runs is held.
        self.is_stalled = False

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing left to compute and no event to hand out."""
        return not (self._running or self._waiting or self._outbox)

    def learn_costs(self, costs: StepCosts) -> None:
        """Tell `costs` what passes take, and pace prompts by their table, from now on."""
        if costs is not self._runner.costs:
            self._runner.costs = costs
            self._pacing.learn(costs.table)

    @property
    def prefixes(self) -> PrefixCache:
        """What is kept for requests to come."""
        return self._prefixes

    @property
    def counters(self) -> Counters:
        """A copy of the counters, with what blocks are used for now; a closed engine has none."""
        kv = KvUse(0, 0, 0)
        if not self._closed:
            pool = self._model.kv_pool
            kv = KvUse(pool.capacity, pool.n_free, self._prefixes.n_blocks)
        return replace(self._counters, finished=dict(self._counters.finished), kv=kv)

    def checked_prompt(self, ids: Iterable[int]) -> list[int]:
        """Give the tokens of a prompt as a list, if a request may have it. Raises ConfigError and ContextFull."""
        return checked_ids(ids, vocab=self._n_choosable, context=self.context)

    def submit(self, request: Request) -> int:
        """Queue a request and give its id. Raises ConfigError, ContextFull and Closed; nothing has changed then."""
        self._check_open()
        prompt_ids = self.checked_prompt(request.prompt_ids)
        self._check_sharing(request)
        params = request.params
        if not self._model.can_rewind and (request.draft_source is not None or request.speculator is not None):
            raise CannotRewind("draft_source", family=self._model.family)
        if params.ignore_eos and constraint_of(request.processor) is not None:
            raise ConfigError("ignore_eos", got=True, expected="False with a constraint: its answer could never end")
        seed = params.seed if params.seed is not None else fresh_seed()
        stop_ids = params.stop_token_ids if params.ignore_eos else params.stop_token_ids | self._wording.eog_ids
        self._n_submitted += 1
        session = Session(
            self._n_submitted,
            request,
            prompt_ids,
            Picker(params, seed, request.processor, self._scans),
            self._wording.text_stream(),
            speculator=request.speculator or (Speculator(request.draft_source) if request.draft_source else None),
            stop_ids=stop_ids,
            context=self.context,
        )
        self._waiting.add(session)
        if request.deadline_s is not None:
            self._deadlines.add(session.id, request.deadline_s)
        self._counters.requests += 1
        return session.id

    def step(self) -> list[Event]:
        """Compute one pass and give what happened since the last call.

        Raises what the model's forward raises. Then nothing was committed in that pass: stepping again tries it again,
        and cancelling ends a request as ever.
        """
        self._check_open()
        for request_id, seconds in self._deadlines.passed():
            self._end(request_id, Ending("error", error=DeadlineExceeded(_LATE.format(seconds))))
        if self._waiting:
            self._admit()
        running = self._running
        unheld = [session for session in running.values() if not session.is_held]
        self.is_stalled = bool(running) and not unheld
        if unheld:
            self._n_steps += 1
            plan = self._scheduler.plan(unheld)
            try:
                starved = self._runner.run(plan, running, self._n_steps, self._outbox.append)
            finally:
                for session in tuple(running.values()):
                    if session.ending is not None:
                        self._retire(session)
            if starved:
                self._make_room(starved, nobody_ran=len(starved) == len(plan.spans))
        return self.drain()

    def drain(self) -> list[Event]:
        """Give what happened since the last call, computing nothing."""
        events, self._outbox = self._outbox, []
        return events

    def run(self) -> Iterator[Event]:
        """Step until every request has ended."""
        while not self.is_idle:
            yield from self.step()

    def cancel(self, request_id: int, error: Exception | None = None) -> None:
        """End a request with reason 'cancelled', or 'error'; one that has ended, or never was, is left alone."""
        self._end(request_id, Ending("cancelled") if error is None else Ending("error", error=error))

    def hold(self, request_id: int, *, held: bool) -> None:
        """Compute no more of a request for now, or go on with it. It may still give its blocks away to others."""
        session = self._running.get(request_id) or self._waiting.get(request_id)
        if session is not None:
            session.is_held = held

    def close(self) -> None:
        """Cancel everything and let go of the model; `drain` still tells of it. Closing twice is harmless."""
        if self._closed:
            return
        for request_id in [*self._running, *(session.id for session in self._waiting)]:
            self.cancel(request_id)
        self._closed = True
        self._prefixes.close()
        del self._model, self._runner

    def _end(self, request_id: int, ending: Ending) -> None:
        session = self._running.get(request_id) or self._waiting.get(request_id)
        if session is not None:
            session.ending = ending
            self._retire(session)

    def _admit(self) -> None:
        """Let requests in, in their order, as far as there is room; less important ones give way for it."""
        while self._waiting:
            session = self._waiting.first()
            while self._running and not self._has_room_for(session):
                least = self._least_important()
                if least.priority >= session.priority:
                    return
                self._preempt(least)
            kv = self._known_prefix(session)
            if kv is None:
                return
            self._waiting.remove(session.id)
            self._running[session.id] = session
            session.served_at = self._n_steps
            if session.is_started:
                session.go_on(kv)
                continue
            try:
                session.start(kv)
            except Exception as error:
                session.ending = Ending("error", error=error)
                self._retire(session)
                continue
            self._counters.prompt_tokens += session.n_prompt
            self._counters.cached_tokens += session.n_cached

    def _known_prefix(self, session: Session) -> KvSequence | None:
        """A cache that begins with what is known of the session's tokens, but for the last, whose logits it wants.

        None if more of it is stored than can be fetched in one step without keeping running ones waiting too long; the
        next steps go on with it.
        """
        if self._restoring is None or self._restoring[0] is not session:
            self._stop_restoring()
            self._restoring = session, KvSequence(self._model.kv_pool)
        kv, n_most, began_s = self._restoring[1], len(session.history) - 1, perf_counter()
        until = began_s + self._pacing.spare_s(len(self._running)) if self._running else inf
        self._prefixes.token_s = self._runner.token_s
        if not self._prefixes.extend(kv, session.history, n_most, session.request.salt, until):
            self._pacing.spend(perf_counter() - began_s)
            return None
        self._restoring = None
        return kv

    def _stop_restoring(self) -> None:
        """Hold nothing for a session that is not let in; what was fetched stays in the cache while there is room."""
        if self._restoring is not None:
            self._restoring[1].close()
            self._restoring = None

    def _keep_prompt(self, session: Session) -> None:
        """Let others share the whole blocks of a prompt while its answer is still being written."""
        n_whole = session.n_prompt // KV_BLOCK * KV_BLOCK
        self._prefixes.insert(session.history, session.kv.blocks, n_whole, session.request.salt)

    def _take_cache(self, session: Session) -> None:
        """Keep what a session computed for those to come, as long as there is room, and take it from the session."""
        if session.is_started:
            kv = session.kv
            self._prefixes.insert(session.history, kv.blocks, kv.length, session.request.salt)
            kv.close()

    def _has_room_for(self, session: Session) -> bool:
        """Whether one more may run, and the pool hold its tokens besides those that running ones have still to read."""
        if len(self._running) >= self._max_running:
            return False
        n_needed = blocks_for(len(session.history) + 1)
        if self._restoring is not None and self._restoring[0] is session:
            n_needed -= len(self._restoring[1].blocks)
        n_promised = sum(
            max(0, blocks_for(len(other.history) + 1) - len(other.kv.blocks)) for other in self._running.values()
        )
        return n_needed + n_promised <= self._model.kv_pool.n_free

    def _least_important(self) -> Session:
        """Who gives way first: the lowest priority, then the last that came."""
        return max(self._running.values(), key=lambda session: (-session.priority, session.id))

    def _make_room(self, starved: Sequence[Session], *, nobody_ran: bool) -> None:
        """Let the least important sequence give way if nobody could go on, or one more important than it could not."""
        if self._restoring is not None:
            self._stop_restoring()
            return
        least = self._least_important()
        if not nobody_ran and least.priority >= max(session.priority for session in starved):
            return
        if len(self._running) > 1:
            self._preempt(least)
        elif not least.leave_shared_block():
            n_free, n_own = self._model.kv_pool.n_free, len(least.kv.blocks)
            error = KvPoolFull(
                f"{len(least.history)} tokens need more KV blocks than the {n_own} this sequence has and the {n_free} "
                "free ones: close a conversation, shorten the prompt, or load with a smaller context"
            )
            self._end(least.id, Ending("error", error=error))

    def _preempt(self, session: Session) -> None:
        """Take a session's blocks, to be found or computed again, and let it wait."""
        del self._running[session.id]
        self._take_cache(session)
        self._waiting.add(session)
        self._counters.preemptions += 1

    def _retire(self, session: Session) -> None:
        """Tell of a session's end, keep what it computed, and forget it."""
        assert session.ending is not None
        self._running.pop(session.id, None)
        self._waiting.remove(session.id)
        self._deadlines.remove(session.id)
        if self._restoring is not None and self._restoring[0] is session:
            self._stop_restoring()
        self._counters.finished[session.ending.reason] += 1
        finish = session.finish(session.ending)
        self._outbox.append(finish)
        if finish.mask_costs is not None:
            self._counters.masks += finish.mask_costs.masks
            self._counters.mask_s += finish.mask_costs.seconds
            self._counters.mask_wait_s += finish.mask_costs.waited_s
        self._counters.draft_failures += session.speculator is not None and session.speculator.error is not None
        self._take_cache(session)

    def _check_sharing(self, request: Request) -> None:
        """Refuse what two live requests may not share. Raises ConfigError."""
        for other in (*self._running.values(), *self._waiting):
            theirs = other.request
            if request.processor is not None and request.processor is theirs.processor:
                raise ConfigError("processor", got="one in use by another request", expected="one for each request")
            if request.draft_source is not None and request.draft_source is theirs.draft_source:
                raise ConfigError("draft_source", got="one in use by another request", expected="one for each request")
            if request.speculator is not None and request.speculator is theirs.speculator:
                raise ConfigError("speculator", got="one in use by another request", expected="one for each request")

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this engine was closed")
