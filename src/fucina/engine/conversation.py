"""A chat that remembers its messages and the keys and values of all that was said: a turn costs only its own text."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack, overload

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.params import SamplingParams
from fucina.decoding.processors.contract import LogitProcessor
from fucina.engine.batches import checked_size, one_each, own_processors
from fucina.engine.completion import Completion, collect, raise_error, raising
from fucina.engine.constraints import Constraints, watched
from fucina.engine.dispatch import Dispatcher
from fucina.engine.drafts import Drafts
from fucina.engine.events import CacheLoss, Event, FinishEvent, TokenEvent
from fucina.engine.options import TurnOptions, refuse_unknown
from fucina.engine.request import Request
from fucina.engine.saved import Saved
from fucina.engine.structured import Schema, wanted
from fucina.engine.wording import Speech
from fucina.errors import (
    BatchLengthMismatch,
    Closed,
    ConfigError,
    DuplicateBatchConversation,
    MixedBatchModels,
    TemplateError,
)

T = TypeVar("T")


class Conversation:
    """Turns between a user and the model. Made by `Model.conversation`; one turn at a time.

    Every turn is written out with the model's chat template, and what of it was read or said before, here or in any
    other request, is not computed again while its keys and values are kept. A turn that is interrupted or fails keeps
    what was delivered of the answer; if that is nothing, the turn is undone.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        speech: Speech,
        system: str | None,
        drafts: Drafts,
        constraints: Constraints,
        salt: str,
        saved: Saved | None = None,
    ) -> None:
        self._dispatcher, self._speech, self._drafts, self._salt = dispatcher, speech, drafts, salt
        self._constraints = constraints
        self._drafting = drafts.open(salt=salt)
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._opening)
        self._ids: list[int] = []  # of the last turn, answer included
        self._saved = saved
        if saved is not None:
            self._messages, self._ids = saved.resume(self._opening)
            self._opening = [message for message in self._messages[:1] if message["role"] == "system"]
        self._n_changes = 0  # of the messages
        self._was_edited = False  # since the last turn
        self._live: int | None = None  # the request of the turn that runs
        self._closed = False

    @property
    def messages(self) -> list[dict[str, str]]:
        """Everything said so far, the system message first; a copy."""
        return [dict(message) for message in self._messages]

    @property
    def cached_tokens(self) -> int:
        """Tokens of what was said last whose keys and values are kept."""
        return self._dispatcher.n_known(self._ids, self._salt)

    @overload
    def send(
        self,
        text: str,
        params: SamplingParams | None = None,
        *,
        schema: None = None,
        **options: Unpack[TurnOptions],
    ) -> Completion: ...

    @overload
    def send(
        self,
        text: str,
        params: SamplingParams | None = None,
        *,
        schema: type[T],
        **options: Unpack[TurnOptions],
    ) -> T: ...

    @overload
    def send(
        self,
        text: str,
        params: SamplingParams | None = None,
        *,
        schema: Mapping[str, Any] | str,
        **options: Unpack[TurnOptions],
    ) -> Any: ...

    def send(
        self,
        text: str,
        params: SamplingParams | None = None,
        *,
        schema: Schema[T] | None = None,
        **options: Unpack[TurnOptions],
    ) -> Any:
        """Say something and wait for the whole answer. Raises what `stream` raises.

        With `schema` the answer is JSON that fits it, and is given as a value, as `Model.chat` does; it stays in the
        conversation as it was said. Raises IncompleteAnswer too.
        """
        rule = options.get("constraint")
        target = None if schema is None else wanted(schema, rule)
        if target is not None:
            options["constraint"] = target.constraint
        turn = self._turn(text, params, options)
        with closing(watched(self._events(turn), rule)) as events:
            completion = raise_error(collect(turn.request.prompt_ids, events))
        return completion if target is None else target.read(completion, self._constraints)

    def stream(
        self,
        text: str,
        params: SamplingParams | None = None,
        **options: Unpack[TurnOptions],
    ) -> Iterator[Event]:
        """Say something and give the answer's events as they come; closing the iterator stops the answer.

        Raises TemplateError, ConstraintError and Closed at once; ConfigError, ContextFull, KvPoolFull and
        AllTokensMasked on the way.
        """
        return raising(watched(self._events(self._turn(text, params, options)), options.get("constraint")))

    @staticmethod
    def send_batch(
        conversations: Sequence[Conversation],
        texts: Sequence[str],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        constraints: Constraint | Sequence[Constraint | None] | None = None,
        processors: Sequence[LogitProcessor | None] | None = None,
    ) -> list[Completion]:
        """Say something in each of several conversations of one model; their answers are computed in one batch.

        Each is what `send` would give. `params` and `constraints` hold for all, or there is one for each; of
        `processors` there is one for each. An answer that fails has finish_reason 'error' and its error; the others
        are whole. Raises EmptyBatch, BatchLengthMismatch, MixedBatchModels, DuplicateBatchConversation and
        SharedBatchProcessor, which are ConfigErrors, and what `stream` raises; then nothing was said anywhere.
        """
        n = checked_size("conversations", conversations)
        if isinstance(texts, str) or len(texts) != n:
            raise BatchLengthMismatch("texts", got=texts, expected=f"{n}, one for each conversation")
        rules = one_each("constraints", constraints, Constraint, n)
        each = one_each("params", params, SamplingParams, n)
        held = own_processors(processors, n)
        if any(talk._dispatcher is not conversations[0]._dispatcher for talk in conversations):
            raise MixedBatchModels("conversations", got="those of several models", expected="those of one")
        if len({id(talk) for talk in conversations}) < n:
            raise DuplicateBatchConversation("conversations", got="one of them twice", expected="one turn in each")
        parts = zip(conversations, texts, each, rules, held, strict=True)
        turns = [
            talk._turn(text, own, {"constraint": rule, "processor": processor})
            for talk, text, own, rule, processor in parts
        ]
        begun: list[tuple[Conversation, _Turn]] = []
        try:
            for talk, turn in zip(conversations, turns, strict=True):
                talk._begin(turn)
                begun.append((talk, turn))
            return [
                collect(turn.request.prompt_ids, watched(talk._follow(turn), rule))
                for (talk, turn), rule in zip(begun, rules, strict=True)
            ]
        finally:
            for talk, _ in begun:
                talk._undo()

    def add_reference(self, document: str | Sequence[int]) -> None:
        """Give a text, or its tokens, that answers may quote: drafts are taken from it too, which changes speed only.

        Raises ConfigError for what has no tokens, and where the model was loaded without speculation.
        """
        if self._drafting is None:
            self._drafting = self._drafts.open(salt=self._salt)
        self._drafts.add_reference(self._drafting, document)

    def clear_references(self) -> None:
        """Forget every reference. Raises ConfigError where the model was loaded without speculation."""
        self._drafts.clear_references(self._drafting)

    def rewind(self, n_turns: int = 1) -> None:
        """Forget the last turns, each a user's message with its answer. Raises ConfigError."""
        starts = [index for index, message in enumerate(self._messages) if message["role"] == "user"]
        if isinstance(n_turns, bool) or not isinstance(n_turns, int) or not 0 <= n_turns <= len(starts):
            raise ConfigError("n_turns", got=n_turns, expected=f"0 to {len(starts)}, the turns there were")
        if n_turns:
            self._go_back(self._messages[: starts[-n_turns]])

    def reset(self) -> None:
        """Forget every turn; the system message stays."""
        self._go_back(self._opening)

    def close(self) -> None:
        """Stop a running turn; there can be no other. Closing twice is harmless.

        A turn whose events are still being read commits to the conversation's file when they end.
        """
        with self._dispatcher.exclusive():
            self._closed = True
            live = self._live
            if live is not None:
                self._dispatcher.cancel(live)
        if live is None and self._saved is not None:
            self._saved.close()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _change(self, messages: list[dict[str, str]]) -> None:
        self._messages, self._n_changes = list(messages), self._n_changes + 1

    def _go_back(self, messages: list[dict[str, str]]) -> None:
        self._change(messages)
        self._was_edited = True
        if self._saved is not None:
            self._saved.forget(len(messages), self._known_ids())

    def _known_ids(self) -> list[int]:
        """Tokens that the next turn begins with, as far as they can be told without it."""
        try:
            return self._speech.chat_ids(self._messages) if self._messages else []
        except TemplateError:
            return []

    def _turn(self, text: str, params: SamplingParams | None, options: TurnOptions) -> _Turn:
        refuse_unknown(options, TurnOptions)
        if self._closed:
            raise Closed("this conversation was closed: start another with model.conversation()")
        messages = [*self._messages, {"role": "user", "content": text}]
        prompt_ids = self._speech.chat_ids(messages)
        request = Request(
            prompt_ids=prompt_ids,
            params=params or SamplingParams(),
            processor=self._constraints.processor(options.get("constraint"), prompt_ids, options.get("processor")),
            salt=self._salt,
            priority=options.get("priority", 0),
            deadline_s=options.get("deadline_s"),
        )
        return _Turn(messages, request, self._n_changes)

    def _events(self, turn: _Turn) -> Generator[Event, None, None]:
        """Run a turn; on every way out keep what was delivered."""
        self._begin(turn)
        yield from self._follow(turn)

    def _begin(self, turn: _Turn) -> None:
        if self._live is not None:
            raise ConfigError("turn", got="one while another is still being answered", expected="one turn at a time")
        if turn.n_changes != self._n_changes:
            raise ConfigError("turn", got="one that another turn has overtaken", expected="one turn at a time")
        if self._drafting is None:  # there was no room to price drafts
            self._drafting = self._drafts.open(salt=self._salt)
        speculator = self._drafting.speculator if self._drafting is not None else None
        self._live = self._dispatcher.submit(replace(turn.request, speculator=speculator))

    def _undo(self) -> None:
        """Give up a turn that was begun and is not followed."""
        if self._live is not None:
            self._dispatcher.abandon(self._live)
            self._live = None

    def _follow(self, turn: _Turn) -> Generator[Event, None, None]:
        """The events of a turn that was begun."""
        request = turn.request
        assert self._live is not None
        said, self._ids = self._ids, list(request.prompt_ids)
        was_edited, self._was_edited = self._was_edited, False
        answer = ""
        try:
            with closing(self._dispatcher.events(self._live)) as events:
                for event in events:
                    answer += event.text
                    if isinstance(event, TokenEvent):
                        self._ids.append(event.token)
                    else:
                        event = _with_loss(event, said, request.prompt_ids, was_edited)
                    yield event
        finally:
            if answer:
                self._change([*turn.messages, {"role": "assistant", "content": answer}])
            try:
                if self._saved is not None:
                    self._saved.save(self._messages, self._ids)
            finally:
                self._live = None
                if self._closed and self._saved is not None:
                    self._saved.close()


def _with_loss(event: FinishEvent, said: Sequence[int], prompt_ids: Sequence[int], was_edited: bool) -> FinishEvent:
    """Tell why less was reused than `said`, all tokens of the turn before but the last, which was never read."""
    n_wanted = max(len(said) - 1, 0)
    n_same = next((i for i, (a, b) in enumerate(zip(said[:n_wanted], prompt_ids, strict=False)) if a != b), n_wanted)
    loss: CacheLoss | None = None
    if event.usage.cached_tokens < min(n_same, len(prompt_ids) - 1):
        loss = "evicted"
    elif event.usage.cached_tokens < n_wanted:
        loss = "edited" if was_edited else "rewritten"
    return event if loss is None else replace(event, usage=replace(event.usage, cache_loss=loss))


@dataclass(frozen=True, slots=True)
class _Turn:
    """A turn not begun yet: all messages with the new one, its request, and which state of the talk it belongs to."""

    messages: list[dict[str, str]]
    request: Request
    n_changes: int
