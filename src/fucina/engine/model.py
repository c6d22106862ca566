"""A loaded model, ready to talk: what `fucina.load` gives. Text or tokens in, text or events out.

Any number of threads may use one Model: there is one lock around stepping, whoever waits for his answer steps for
everybody, and requests that are alive together run in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from os import PathLike
from typing import Any, TypeVar, overload

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.params import SamplingParams
from fucina.decoding.processors.contract import LogitProcessor
from fucina.engine.batches import checked_size, one_each, own_processors
from fucina.engine.completion import Completion, collect, raise_error, raising
from fucina.engine.constraints import Constraints, watched
from fucina.engine.conversation import Conversation
from fucina.engine.counters import Counters
from fucina.engine.dispatch import Dispatcher
from fucina.engine.drafts import Drafts
from fucina.engine.engine import Engine, EngineConfig
from fucina.engine.events import Event
from fucina.engine.request import Request
from fucina.engine.saved import open_saved
from fucina.engine.scoring import Scoring
from fucina.engine.speculation import Speculation
from fucina.engine.structured import Schema, wanted
from fucina.engine.wording import Codec, Message, Speech
from fucina.errors import ConfigError
from fucina.models.contract import CausalLM
from fucina.storage.kv.prefix import PrefixCache

#: A prompt: text, encoded with the model's begin token and its markers; or token ids, taken as they are.
Prompt = str | Sequence[int]

T = TypeVar("T")


class Model(Scoring):
    """A causal language model, its tokenizer and its engine.

    Prompts that do not fit raise ContextFull, wrong options ConfigError, constraints that cannot be honoured
    ConstraintError, before anything is computed. An answer that fails on the way raises its own error:
    AllTokensMasked, KvPoolFull, or what a processor raised. One that runs out of tokens where its constraint would have
    let it go on forever gives an UnboundedAnswerWarning.
    """

    def __init__(
        self,
        model: CausalLM,
        speech: Speech,
        config: EngineConfig | None = None,
        speculation: Speculation | None = None,
        prefixes: PrefixCache | None = None,
    ) -> None:
        """With `speculation` answers are drafted and verified where that is faster; it changes nothing else.

        `prefixes` keeps what was said for requests to come. Files of conversations are for models of its identity.
        """
        self._engine = Engine(model, speech, config, prefixes)
        self._identity = self._engine.prefixes.identity
        self._speech = speech
        super().__init__(model, Dispatcher(self._engine))
        #: What speculation costs, and what it has learned.
        self.drafts = Drafts(speculation, self._engine, self._dispatcher, speech.tokenizer, model.vocab)
        #: What constrained answers need; `.prepare()` builds it before the first one does.
        self.constraints = Constraints(speech.tokenizer)

    @property
    def tokenizer(self) -> Codec:
        """Text to tokens and back: `.encode(text, special=False)`, `.decode(ids)`."""
        return self._speech.tokenizer

    @property
    def end_ids(self) -> frozenset[int]:
        """The tokens with which the model ends an answer."""
        return self._speech.eog_ids

    @property
    def context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self._engine.context

    @property
    def counters(self) -> Counters:
        """What was computed so far; a copy."""
        return self._dispatcher.counters()

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
    ) -> Completion:
        """Continue a prompt and wait for the whole answer.

        `constraint` is what the answer must look like; `satisfied` tells whether it came to a whole one. `references`
        are texts, or tokens, that the answer may quote: drafts are taken from them. Without `speculate` there are no
        drafts, which changes speed only.
        """
        return self._complete(self._request(prompt, params, constraint, processor, references, speculate), constraint)

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
    ) -> Iterator[Event]:
        """Continue a prompt and give its events as they come: TokenEvents, then one FinishEvent.

        The request is submitted when the first event is asked for; closing the iterator cancels it.
        """
        return self._events(self._request(prompt, params, constraint, processor, references, speculate), constraint)

    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
        schema: None = None,
    ) -> Completion: ...

    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
        schema: type[T],
    ) -> T: ...

    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
        schema: Mapping[str, Any] | str,
    ) -> Any: ...

    def chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
        schema: Schema[T] | None = None,
    ) -> Any:
        """Answer chat messages (a string is one user message), written out by the model's template.

        With `schema` the answer is JSON that fits it, and is given as a value: an instance of a type (a pydantic
        model, a dataclass), or the JSON value for a schema as a mapping or JSON text. Raises IncompleteAnswer where the
        answer is cut off before it is whole.
        """
        target = None if schema is None else wanted(schema, constraint)
        rule = constraint if target is None else target.constraint
        request = self._request(self._chat_ids(messages), params, rule, processor, references, speculate)
        if target is None:
            return self._complete(request, constraint)
        return target.read(self._complete(request, None), self.constraints)

    def stream_chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
    ) -> Iterator[Event]:
        """Answer chat messages and give the events as they come, like `stream`. Raises TemplateError too."""
        request = self._request(self._chat_ids(messages), params, constraint, processor, references, speculate)
        return self._events(request, constraint)

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        constraints: Constraint | Sequence[Constraint | None] | None = None,
        processors: Sequence[LogitProcessor | None] | None = None,
        speculate: bool = True,
    ) -> list[Completion]:
        """Continue several prompts in one batch; each gets the tokens it would get alone.

        `params` and `constraints` hold for all, or there is one for each; of `processors` there is one for each. An
        answer that fails has finish_reason 'error' and its error; the others are whole. Raises EmptyBatch,
        BatchLengthMismatch and SharedBatchProcessor, which are ConfigErrors.
        """
        n = checked_size("prompts", prompts)
        rules = one_each("constraints", constraints, Constraint, n)
        parts = zip(
            prompts, one_each("params", params, SamplingParams, n), rules, own_processors(processors, n), strict=True
        )
        requests = [self._request(prompt, own, rule, one, (), speculate) for prompt, own, rule, one in parts]
        submitted: list[int] = []
        try:
            for request in requests:
                submitted.append(self._dispatcher.submit(request))
            return [
                collect(request.prompt_ids, watched(self._dispatcher.events(request_id), rule))
                for request, request_id, rule in zip(requests, submitted, rules, strict=True)
            ]
        finally:
            for request_id in submitted:
                self._dispatcher.abandon(request_id)

    def conversation(
        self, system: str | None = None, *, cache_salt: str = "", file: str | PathLike[str] | None = None
    ) -> Conversation:
        """Start a chat that remembers its turns.

        Requests share the keys and values of what they begin with; with a `cache_salt` of its own a chat shares them
        with those of the same salt only, so that nobody can tell from the time it takes what others have said.

        With a `file` the chat goes on where the file's left off, keys and values included, or begins there if there is
        none; after every turn the file holds all that was said. It takes nobody else's turns until `close`. Raises
        ConversationFileError for a file that cannot be used, and ConfigError for another system message than its own.
        """
        geometry = self._live_model().kv_geometry
        saved = None if file is None else open_saved(self._dispatcher, file, geometry, self._identity, cache_salt)
        return Conversation(self._dispatcher, self._speech, system, self.drafts, self.constraints, cache_salt, saved)

    def forget_prefixes(self) -> None:
        """Forget the keys and values kept of what was said so far: the next prompts are read from their beginning."""
        self._dispatcher.forget_prefixes()

    def close(self) -> None:
        """End every request and let go of the model's memory. Closing twice is harmless."""
        self._dispatcher.close()
        self._model = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        constraint: Constraint | None,
        processor: LogitProcessor | None,
        references: Sequence[Prompt],
        speculate: bool,
    ) -> Request:
        """A request that the engine will take; what it would refuse is refused now."""
        self._live_model()
        ids = self._speech.prompt_ids(prompt) if isinstance(prompt, str) else prompt
        prompt_ids = self._engine.checked_prompt(ids)
        if references and not speculate:
            raise ConfigError("references", got=f"{len(references)} of them", expected="none without speculation")
        drafting = self.drafts.open(references) if speculate else None
        speculator = drafting.speculator if drafting is not None else None
        return Request(
            prompt_ids=prompt_ids,
            params=params or SamplingParams(),
            processor=self.constraints.processor(constraint, prompt_ids, processor),
            speculator=speculator,
        )

    def _chat_ids(self, messages: str | Sequence[Message]) -> list[int]:
        return self._speech.chat_ids([{"role": "user", "content": messages}] if isinstance(messages, str) else messages)

    def _complete(self, request: Request, constraint: Constraint | None) -> Completion:
        with closing(watched(self._dispatcher.events(self._dispatcher.submit(request)), constraint)) as events:
            return raise_error(collect(request.prompt_ids, events))

    def _events(self, request: Request, constraint: Constraint | None) -> Iterator[Event]:
        yield from raising(watched(self._dispatcher.events(self._dispatcher.submit(request)), constraint))
