"""An answer on its way to whoever asked: the engine's events as they come, in no dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

from fucina.engine.events import Event, FinishEvent, TokenEvent
from fucina.engine.request import Request
from fucina.engine.service import Ticket
from fucina.server.deltas import CallArguments, CallStart, Delta, ReasoningDelta, TextDelta
from fucina.server.failures import ApiError, as_api_error
from fucina.server.inbox import Inbox
from fucina.server.question import Question
from fucina.server.reading import ChoiceReader
from fucina.server.state import ServerState


class Step(NamedTuple):
    """A token of one choice, or its end, and what that says; `event` tells all there is to know of it."""

    choice: int
    deltas: list[Delta]
    event: TokenEvent | FinishEvent


class Outcome:
    """One choice as a whole."""

    def __init__(self) -> None:
        self.text = self.reasoning = ""
        self.calls: list[WholeCall] = []
        self.tokens: list[TokenEvent] = []
        self.end: FinishEvent | None = None

    def add(self, step: Step) -> None:
        """Take note of a step."""
        for delta in step.deltas:
            match delta:
                case TextDelta(text):
                    self.text += text
                case ReasoningDelta(text):
                    self.reasoning += text
                case CallStart(_, call_id, name):
                    self.calls.append(WholeCall(call_id, name))
                case CallArguments(call, text):
                    self.calls[call].arguments += text
        if isinstance(step.event, FinishEvent):
            self.end = step.event
        else:
            self.tokens.append(step.event)

    @property
    def finish(self) -> FinishEvent:
        """How it ended; it has."""
        assert self.end is not None
        return self.end


@dataclass(slots=True)
class WholeCall:
    """A call of a tool."""

    id: str
    name: str
    arguments: str = ""


class Answer:
    """One question's answer, of one or more choices. `async with` it: what is left is cancelled on the way out."""

    def __init__(
        self, state: ServerState, requests: Sequence[Request], readers: Sequence[ChoiceReader], n_each: int
    ) -> None:
        """`n_each` requests in a row have the same prompt."""
        self._state, self._requests, self._readers, self._n_each = state, requests, readers, n_each
        self.n = len(requests)
        self.prompts = [request.prompt_ids for request in requests[::n_each]]
        self.prompt_ids = self.prompts[0]
        self._inbox = Inbox(asyncio.get_running_loop())
        self._service = state.require().service
        self._tickets: dict[int, Ticket] = {}
        self._n_open = 0
        self._asked_s = perf_counter()
        self._heard_s: list[float | None] = [None] * len(requests)

    @property
    def n_reasoning(self) -> int:
        """Tokens of thoughts so far, of all choices."""
        return sum(reader.n_reasoning for reader in self._readers)

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        for ticket in self._tickets.values():
            ticket.cancel()

    async def steps(self) -> AsyncIterator[list[Step]]:
        """Give what happens, as much at a time as has come; nothing now and then in a long silence.

        Raises ApiError where a choice ends in an error.
        The first choice of a prompt reads it; the others begin with what it has read.
        """
        self._submit(range(0, self.n, self._n_each))
        while self._n_open:
            letters = await self._inbox.take()
            for first in {choice - choice % self._n_each for choice, _ in letters}:
                self._submit(range(first, first + self._n_each))
            failure = self._observe(letters)
            yield [
                self._step(choice, event)
                for choice, event in letters
                if failure is None or isinstance(event, TokenEvent)
            ]
            if failure is not None:
                raise failure

    def _step(self, choice: int, event: Event) -> Step:
        reader = self._readers[choice]
        step = Step(choice, reader.read(event), event)
        if reader.is_complete and isinstance(event, TokenEvent):
            self._tickets[choice].cancel()
        return step

    def _submit(self, choices: Iterable[int]) -> None:
        """Begin those of them that have not begun."""
        for choice in choices:
            if choice not in self._tickets:
                self._tickets[choice] = self._service.submit(self._requests[choice], self._inbox.slot(choice))
                self._inbox.watch(self._tickets[choice])
                self._n_open += 1

    def _observe(self, letters: Sequence[tuple[int, TokenEvent | FinishEvent]]) -> ApiError | None:
        """Count for the metrics; give the failure in which a choice ended."""
        metrics, now, failure = self._state.metrics, perf_counter(), None
        for choice, event in letters:
            if isinstance(event, TokenEvent):
                heard = self._heard_s[choice]
                if heard is None:
                    metrics.first_token.observe(now - self._asked_s)
                else:
                    metrics.inter_token.observe(now - heard)
                self._heard_s[choice] = now
                continue
            self._n_open -= 1
            metrics.queue.observe(event.timings.queue_s)
            if event.error is not None:
                failure = as_api_error(event.error)
        return failure


@asynccontextmanager
async def answering(
    state: ServerState, n: int, ask: Callable[[], Question | Sequence[Question]]
) -> AsyncIterator[Answer]:
    """An answer of `n` choices, with a place for it as long as it is wanted.

    `ask` makes the question, or several of as many choices each, beside the event loop: a form may take its time.
    Raises ApiError.
    """
    loaded = state.require()
    with state.place(n):
        try:
            asked = await asyncio.to_thread(ask)
            questions = [asked] if isinstance(asked, Question) else asked
            made = [await asyncio.to_thread(question.requests, loaded) for question in questions]
        except Exception as error:
            raise as_api_error(error) from error
        requests = [request for one in made for request in one]
        readers = [
            question.reader(loaded, request.prompt_ids)
            for question, one in zip(questions, made, strict=True)
            for request in one
        ]
        async with Answer(state, requests, readers, len(made[0])) as answer:
            yield answer


async def whole(answer: Answer) -> list[Outcome]:
    """Wait for all of it."""
    outcomes = [Outcome() for _ in range(answer.n)]
    async for steps in answer.steps():
        for step in steps:
            outcomes[step.choice].add(step)
    return outcomes
