"""A loaded model, ready to talk: what `fucina.load` gives. Text or tokens in, text or events out.

Any number of threads may use one Model: there is one lock around stepping, whoever waits for his answer steps for
everybody, and requests that are alive together run in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from fucina.decoding.params import SamplingParams
from fucina.decoding.processors.contract import LogitProcessor
from fucina.engine.completion import Completion, collect, raise_error, raising
from fucina.engine.conversation import Conversation
from fucina.engine.counters import Counters
from fucina.engine.dispatch import Dispatcher
from fucina.engine.engine import Engine, EngineConfig
from fucina.engine.events import Event
from fucina.engine.request import Request, checked_ids
from fucina.engine.speculation import REFERENCE_LIMIT, Drafting, Speculation
from fucina.engine.wording import Codec, Message, Speech
from fucina.errors import Closed, ConfigError, KvPoolFull
from fucina.models.contract import CausalLM
from fucina.ops.batch import Batch, Span
from fucina.storage.kv.sequence import KvSequence

#: A prompt: text, encoded with the model's begin token and its markers; or token ids, taken as they are.
Prompt = str | Sequence[int]


class Model:
    """A causal language model, its tokenizer and its engine.

    Prompts that do not fit raise ContextFull, wrong options ConfigError, before anything is computed. An answer that
    fails on the way raises its own error: AllTokensMasked, KvPoolFull, or what a processor raised.
    """

    def __init__(
        self,
        model: CausalLM,
        speech: Speech,
        config: EngineConfig | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        """With `speculation` answers are drafted and verified where that is faster; it changes nothing else."""
        self._engine = Engine(model, speech, config)
        self._model: CausalLM | None = model
        self._speculation = speculation
        self._speech, self._dispatcher = speech, Dispatcher(self._engine)

    @property
    def tokenizer(self) -> Codec:
        """Text to tokens and back: `.encode(text, special=False)`, `.decode(ids)`."""
        return self._speech.tokenizer

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
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
    ) -> Completion:
        """Continue a prompt and wait for the whole answer.

        `references` are texts, or tokens, that the answer may quote: drafts are taken from them. Without `speculate`
        there are no drafts, which changes speed only.
        """
        return self._complete(self._request(prompt, params, processor, references, speculate))

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
    ) -> Iterator[Event]:
        """Continue a prompt and give its events as they come: TokenEvents, then one FinishEvent.

        The request is submitted when the first event is asked for; closing the iterator cancels it.
        """
        return self._events(self._request(prompt, params, processor, references, speculate))

    def chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
    ) -> Completion:
        """Answer chat messages (a string is one user message), written out by the model's template."""
        return self._complete(self._request(self._chat_ids(messages), params, processor, references, speculate))

    def stream_chat(
        self,
        messages: str | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        processor: LogitProcessor | None = None,
        references: Sequence[Prompt] = (),
        speculate: bool = True,
    ) -> Iterator[Event]:
        """Answer chat messages and give the events as they come, like `stream`. Raises TemplateError too."""
        return self._events(self._request(self._chat_ids(messages), params, processor, references, speculate))

    def generate_many(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[Completion]:
        """Continue several prompts in one batch; each gets the tokens it would get alone.

        `params` holds for all, or there is one for each. An answer that fails has finish_reason 'error' and its error;
        the others are whole.
        """
        each = [params] * len(prompts) if params is None or isinstance(params, SamplingParams) else list(params)
        if len(each) != len(prompts):
            raise ConfigError("params", got=f"{len(each)} of them", expected=f"one, or {len(prompts)}, one per prompt")
        requests = [self._request(prompt, own, None, (), True) for prompt, own in zip(prompts, each, strict=True)]
        submitted: list[int] = []
        try:
            for request in requests:
                submitted.append(self._dispatcher.submit(request))
            return [
                collect(request.prompt_ids, self._dispatcher.events(request_id))
                for request, request_id in zip(requests, submitted, strict=True)
            ]
        finally:
            for request_id in submitted:
                self._dispatcher.abandon(request_id)

    def logits(self, ids: Sequence[int], *, chunk: int = 512) -> NDArray[np.float32]:
        """Compute the logits (len(ids), vocab) f32 that follow each prefix of `ids`, `chunk` rows a pass."""
        rows = np.empty((len(ids), self._live_model().vocab), np.float32)
        for start, piece in self.iter_logits(ids, chunk=chunk):
            rows[start : start + len(piece)] = piece
        return rows

    def iter_logits(self, ids: Sequence[int], *, chunk: int = 512) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Compute the same piece by piece: (index of the first row, logits (rows, vocab) f32, the caller's to keep)."""
        model = self._live_model()
        if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
            raise ConfigError("chunk", got=chunk, expected="a whole number of at least 1")
        tokens = checked_ids(ids, vocab=model.vocab, context=self.context, n_more=0)
        return self._logit_pieces(model, tokens, min(chunk, model.max_rows))

    def conversation(self, system: str | None = None) -> Conversation:
        """Start a chat that remembers its turns and their keys and values."""
        kv = KvSequence(self._live_model().kv_pool)
        return Conversation(self._dispatcher, self._speech, kv, system, drafting=self._drafting())

    def measure_pass_costs(self) -> tuple[tuple[int, float], ...]:
        """Measure anew, and keep, what passes of several rows cost: (rows, time in passes of one row).

        Raises ConfigError without speculation, and KvPoolFull.
        """
        self._live_model()
        if self._speculation is None:
            raise ConfigError("pass costs", got="a model without speculation", expected="one loaded with it")
        with self._dispatcher.exclusive():
            return self._speculation.measure_costs().points

    def forget_drafts(self) -> None:
        """Forget what earlier answers taught the sources of drafts. It only ever made later ones faster."""
        if self._speculation is not None:
            with self._dispatcher.exclusive():
                self._speculation.forget()

    def close(self) -> None:
        """End every request and let go of the model's memory. Closing twice is harmless."""
        self._dispatcher.close()
        self._model = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _live_model(self) -> CausalLM:
        if self._model is None:
            raise Closed("this model was closed: load it again")
        return self._model

    def _request(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        processor: LogitProcessor | None,
        references: Sequence[Prompt],
        speculate: bool,
    ) -> Request:
        """A request that the engine will take; what it would refuse is refused now."""
        self._live_model()
        ids = self._speech.prompt_ids(prompt) if isinstance(prompt, str) else prompt
        prompt_ids = self._engine.checked_prompt(ids)
        if references and (self._speculation is None or not speculate):
            raise ConfigError("references", got=f"{len(references)} of them", expected="none without speculation")
        texts = [self._reference_ids(reference) for reference in references]
        drafting = self._drafting() if speculate else None
        if drafting is not None:
            for tokens in texts:
                drafting.cascade.add_reference(tokens)
        speculator = drafting.speculator if drafting is not None else None
        return Request(
            prompt_ids=prompt_ids, params=params or SamplingParams(), processor=processor, speculator=speculator
        )

    def _reference_ids(self, reference: Prompt) -> list[int]:
        """The tokens of a document. Raises ConfigError."""
        ids = self._speech.tokenizer.encode(reference) if isinstance(reference, str) else reference
        return checked_ids(ids, vocab=self._live_model().vocab, context=REFERENCE_LIMIT, n_more=0)

    def _drafting(self) -> Drafting | None:
        """Sources and gate for one more sequence; None without speculation, or while there is no room to price it."""
        if self._speculation is None:
            return None
        with self._dispatcher.exclusive():
            try:
                self._engine.learn_costs(self._speculation.costs)
            except KvPoolFull:
                return None
            return self._speculation.drafting()

    def _chat_ids(self, messages: str | Sequence[Message]) -> list[int]:
        return self._speech.chat_ids([{"role": "user", "content": messages}] if isinstance(messages, str) else messages)

    def _complete(self, request: Request) -> Completion:
        with closing(self._dispatcher.events(self._dispatcher.submit(request))) as events:
            return raise_error(collect(request.prompt_ids, events))

    def _events(self, request: Request) -> Iterator[Event]:
        yield from raising(self._dispatcher.events(self._dispatcher.submit(request)))

    def _logit_pieces(
        self, model: CausalLM, tokens: list[int], chunk: int
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        kv = KvSequence(model.kv_pool)
        try:
            for start in range(0, len(tokens), chunk):
                piece = tokens[start : start + chunk]
                with self._dispatcher.exclusive():
                    kv.reserve(len(piece))
                    logits = model.forward(Batch((Span(piece, start, kv.blocks, len(piece)),))).copy()
                    kv.advance(len(piece))
                yield start, logits
        finally:
            with self._dispatcher.exclusive():
                kv.close()
