"""A loaded model, ready to talk: what `fucina.load` gives. Text or tokens in, text or events out.

Any number of threads may use one Model: there is one lock around stepping, whoever waits for his answer steps for
everybody, and requests that are alive together run in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from os import PathLike
from typing import Any, TypeVar, Unpack, overload

from fucina.core.shapes import KV_BLOCK
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
from fucina.engine.embedding import Embedding
from fucina.engine.engine import Engine, EngineConfig
from fucina.engine.events import Event
from fucina.engine.options import AnswerOptions, Prompt, refuse_unknown
from fucina.engine.request import Request
from fucina.engine.saved import open_saved
from fucina.engine.service import Service
from fucina.engine.speculation import Speculation
from fucina.engine.structured import Schema, wanted
from fucina.engine.wording import Codec, Message, Speech
from fucina.errors import CannotRewind, ConfigError
from fucina.models.contract import CausalLM
from fucina.models.streaming import ExpertStream
from fucina.storage.experts.stats import ExpertsLeftOut, ExpertStats
from fucina.storage.kv.prefix import PrefixCache

T = TypeVar("T")


class Model(Embedding):
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
        kv_rule: str = "",
        experts: ExpertStream | None = None,
        left_out: ExpertsLeftOut | None = None,
    ) -> None:
        """With `speculation` answers are drafted and verified where that is faster; it changes nothing else.

        `prefixes` keeps what was said for requests to come. Files of conversations are for models of its identity.
        `experts` are those that the model reads when it needs them; `left_out` tells what it leaves out of them.
        Raises CannotRewind for speculation with a model whose cache cannot be cut back.
        """
        self._experts = experts
        #: What the lossy option moe_expert_top_p leaves out; None where all is computed that the model means.
        self.experts_left_out = left_out
        if speculation is not None and not model.can_rewind:
            raise CannotRewind("speculation", family=model.family)
        self._engine = Engine(model, speech, config, prefixes)
        self._identity = self._engine.prefixes.identity
        #: Text to tokens and back: `.encode(text, special=False)`, `.decode(ids)`; `.eog_ids` end an answer.
        self.tokenizer: Codec = speech.tokenizer
        #: Tokens that a prompt and its answer may have together.
        self.context = self._engine.context
        #: Tokens whose keys and values there is room for, all requests together, and the bytes that takes.
        self.kv_tokens = model.kv_pool.capacity * KV_BLOCK
        self.kv_bytes = model.kv_pool.capacity * model.kv_geometry.block_bytes
        #: Why as many, in a few words.
        self.kv_rule = kv_rule
        super().__init__(model, Dispatcher(self._engine), speech)
        #: What speculation costs, and what it has learned.
        self.drafts = Drafts(speculation, self._engine, self._dispatcher, speech.tokenizer, model.vocab)
        #: What constrained answers need; `.prepare()` builds it before the first one does.
        self.constraints = Constraints(speech.tokenizer)

    @property
    def counters(self) -> Counters:
        """What was computed so far; a copy."""
        return self._dispatcher.counters()

    @property
    def experts(self) -> ExpertStats | None:
        """What reading experts on demand did so far; None where all are in memory, or there are none."""
        return None if self._experts is None else self._experts.stats()

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Completion:
        """Continue a prompt and wait for the whole answer."""
        return self._complete(self.request(prompt, params, **options), options.get("constraint"))

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Iterator[Event]:
        """Continue a prompt and give its events as they come: TokenEvents, then one FinishEvent.

        The request is submitted when the first event is asked for; closing the iterator cancels it.
        """
        return self._events(self.request(prompt, params, **options), options.get("constraint"))

    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        schema: None = None,
        **options: Unpack[AnswerOptions],
    ) -> Completion: ...

    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        schema: type[T],
        **options: Unpack[AnswerOptions],
    ) -> T: ...

    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        schema: Mapping[str, Any] | str,
        **options: Unpack[AnswerOptions],
    ) -> Any: ...

    def chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        schema: Schema[T] | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Any:
        """Answer chat messages (a string is one user message), written out by the model's template.

        With `schema` the answer is JSON that fits it, and is given as a value: an instance of a type (a pydantic
        model, a dataclass), or the JSON value for a schema as a mapping or JSON text. Raises IncompleteAnswer where the
        answer is cut off before it is whole.
        """
        if schema is None:
            return self._complete(self.request(self._chat_ids(messages), params, **options), options.get("constraint"))
        target = wanted(schema, options.get("constraint"))
        options["constraint"] = target.constraint
        request = self.request(self._chat_ids(messages), params, **options)
        return target.read(self._complete(request, None), self.constraints)

    def stream_chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Iterator[Event]:
        """Answer chat messages and give the events as they come, like `stream`. Raises TemplateError too."""
        request = self.request(self._chat_ids(messages), params, **options)
        return self._events(request, options.get("constraint"))

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
        requests = [
            self.request(prompt, own, constraint=rule, processor=one, speculate=speculate)
            for prompt, own, rule, one in parts
        ]
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

        Requests share the keys and values of what they begin with, and what drafts are made from; with a `cache_salt`
        of its own a chat shares them with those of the same salt only, so that nobody can tell from the time it takes
        what others have said.

        With a `file` the chat goes on where the file's left off, keys and values included, or begins there if there is
        none; after every turn the file holds all that was said. It takes nobody else's turns until `close`. Raises
        ConversationFileError for a file that cannot be used, and ConfigError for another system message than its own.
        """
        geometry = self._live_model().kv_geometry
        saved = None if file is None else open_saved(self._dispatcher, file, geometry, self._identity, cache_salt)
        return Conversation(self._dispatcher, self.speech, system, self.drafts, self.constraints, cache_salt, saved)

    def request(
        self, prompt: Prompt, params: SamplingParams | None = None, **options: Unpack[AnswerOptions]
    ) -> Request:
        """What `generate` would submit, for a `service`; what the engine would refuse is refused now.

        Compiles a constraint on the caller's thread.
        """
        refuse_unknown(options, AnswerOptions)
        self._live_model()
        ids = self.speech.prompt_ids(prompt) if isinstance(prompt, str) else prompt
        prompt_ids = self._engine.checked_prompt(ids)
        references, speculate = options.get("references", ()), options.get("speculate", True)
        if references and not speculate:
            raise ConfigError("references", got=f"{len(references)} of them", expected="none without speculation")
        salt = options.get("cache_salt", "")
        drafting = self.drafts.open(references, salt=salt) if speculate else None
        return Request(
            prompt_ids=prompt_ids,
            params=params or SamplingParams(),
            processor=self.constraints.processor(options.get("constraint"), prompt_ids, options.get("processor")),
            speculator=drafting.speculator if drafting is not None else None,
            salt=salt,
            priority=options.get("priority", 0),
            deadline_s=options.get("deadline_s"),
        )

    def service(self) -> Service:
        """Start a thread that computes for callers who must not wait, such as a server's event loop."""
        self._live_model()
        return Service(self._dispatcher)

    def forget_prefixes(self) -> None:
        """Forget the keys and values kept of what was said so far: the next prompts are read from their beginning."""
        self._dispatcher.forget_prefixes()

    def close(self) -> None:
        """End every request and let go of the model's memory. Closing twice is harmless."""
        self._dispatcher.close()
        self._model = None
        if self._experts is not None:
            self._experts.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _chat_ids(self, messages: str | Sequence[Message]) -> list[int]:
        return self.speech.chat_ids([{"role": "user", "content": messages}] if isinstance(messages, str) else messages)

    def _complete(self, request: Request, constraint: Constraint | None) -> Completion:
        with closing(watched(self._dispatcher.events(self._dispatcher.submit(request)), constraint)) as events:
            return raise_error(collect(request.prompt_ids, events))

    def _events(self, request: Request, constraint: Constraint | None) -> Iterator[Event]:
        yield from raising(watched(self._dispatcher.events(self._dispatcher.submit(request)), constraint))
