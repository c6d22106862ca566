"""Vectors of texts, for search and comparison: hidden states instead of logits, pooled into one vector each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fucina.engine.batches import checked_size
from fucina.engine.dispatch import Dispatcher
from fucina.engine.options import Prompt
from fucina.engine.pooled import Pooled, TextPooling, chosen_pooling
from fucina.engine.request import checked_ids
from fucina.engine.scheduler import blocks_for
from fucina.engine.scoring import Scoring
from fucina.engine.wording import Speech
from fucina.errors import BadLogits, ConfigError, ContextFull, KvPoolFull
from fucina.models.contract import CausalLM
from fucina.ops.batch import Batch, Span
from fucina.storage.kv.sequence import KvSequence

#: Rows of a pass while answers are being written, which wait for it: they take about as long as two tokens.
_ROWS_BESIDE = 16


@dataclass(frozen=True, slots=True)
class Embeddings:
    """One vector for each input.

    vectors        (inputs, d_model) f32, in the order of the inputs.
    prompt_tokens  of each input, begin and end tokens included.
    pooling        how hidden states became a vector: 'mean', 'cls' or 'last'.
    """

    vectors: NDArray[np.float32]
    prompt_tokens: tuple[int, ...]
    pooling: TextPooling


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vector (d_model,) f32 of input `index`, which has `prompt_tokens` tokens."""

    index: int
    vector: NDArray[np.float32]
    prompt_tokens: int


class Embedding(Scoring):
    """A model that gives vectors of texts, beside whatever else runs on it."""

    def __init__(self, model: CausalLM, dispatcher: Dispatcher, speech: Speech) -> None:
        super().__init__(model, dispatcher)
        #: Text and messages to tokens: `.prompt_ids(text)`, `.chat_ids(messages)`.
        self.speech = speech

    def embed(
        self, inputs: Sequence[Prompt], *, pooling: TextPooling | None = None, normalize: bool = True
    ) -> Embeddings:
        """Compute a vector (d_model,) for each input: texts, with the begin and end tokens the model wants, or ids.

        `pooling`: 'mean' of the hidden states of all tokens, 'cls' the first, 'last' the last one; None: as the file
        says, the mean where it does not. With `normalize` vectors have length 1, so that their product is the cosine of
        their angle. An input's vector is the same bits whatever the others are.

        Raises EmptyBatch, ConfigError (an input that is empty or no prompt, named by its index), ContextFull and
        KvPoolFull (one that is too long, named too), UnsupportedModel (the file says 'rank') and BadLogits.
        """
        pieces = list(self.iter_embed(inputs, pooling=pooling, normalize=normalize))
        found = [embedded for piece in pieces for embedded in piece]
        return Embeddings(
            np.stack([embedded.vector for embedded in found]),
            tuple(embedded.prompt_tokens for embedded in found),
            chosen_pooling(self._live_model().pooling, pooling),
        )

    def iter_embed(
        self, inputs: Sequence[Prompt], *, pooling: TextPooling | None = None, normalize: bool = True
    ) -> Iterator[tuple[Embedded, ...]]:
        """Compute the same pass by pass: the inputs that were finished by each, in their order, maybe none.

        Inputs are checked now. Closing the iterator ends the work and gives its memory back.
        """
        model = self._live_model()
        how = chosen_pooling(model.pooling, pooling)
        if isinstance(inputs, str | bytes) or not isinstance(inputs, Sequence):
            raise ConfigError("inputs", got=inputs, expected="a sequence of prompts; put a single one into a list")
        checked_size("inputs", inputs)
        texts = [self._checked_input(model, index, given) for index, given in enumerate(inputs)]
        return _Reader(model, self._dispatcher, texts, how, normalize=normalize).passes()

    def _checked_input(self, model: CausalLM, index: int, given: Prompt) -> list[int]:
        """The tokens of an input. Raises ConfigError, ContextFull and KvPoolFull, which name it."""
        name = f"inputs[{index}]"
        if isinstance(given, str) and not given:
            raise ConfigError(name, got=given, expected="a text of at least one character")
        try:
            ids = self.speech.whole_text_ids(given) if isinstance(given, str) else given
            tokens = checked_ids(ids, vocab=model.vocab, context=model.context_length, n_more=0)
        except ConfigError as error:
            raise ConfigError(name, got=error.got, expected=error.expected) from None
        except ContextFull as error:
            raise ContextFull(f"{name}: {error}") from None
        if (n_blocks := blocks_for(len(tokens))) > model.kv_pool.capacity:
            raise KvPoolFull(
                f"{name}: {len(tokens)} tokens need {n_blocks} KV blocks of {model.kv_pool.capacity}: shorten it, or "
                "load with more memory for keys and values"
            )
        return tokens


class _Text:
    """An input on its way."""

    def __init__(self, index: int, tokens: list[int], kv: KvSequence, pooled: Pooled) -> None:
        self.index, self.tokens, self.kv, self.pooled = index, tokens, kv, pooled

    def span(self, n_rows: int) -> Span:
        """Its next tokens, at most so many."""
        start = self.kv.length
        return Span(self.tokens[start : start + n_rows], start, self.kv.blocks, 0)

    def take(self, rows: NDArray[np.float32]) -> None:
        """The hidden states of the next tokens."""
        self.kv.advance(len(rows))
        self.pooled.add(rows)

    @property
    def is_read(self) -> bool:
        """Whether nothing of it is left."""
        return self.kv.length == len(self.tokens)


class _Reader:
    """Reads inputs in full passes: several in one, and what does not fit into one in the next."""

    def __init__(
        self, model: CausalLM, dispatcher: Dispatcher, texts: list[list[int]], pooling: TextPooling, *, normalize: bool
    ) -> None:
        self._model, self._dispatcher, self._pooling, self._normalize = model, dispatcher, pooling, normalize
        self._waiting = deque(enumerate(texts))
        self._begun: deque[_Text] = deque()  # hold blocks; between passes there is one at most

    def passes(self) -> Iterator[tuple[Embedded, ...]]:
        """Compute pass by pass; what each finished. Others compute between them."""
        try:
            while self._begun or self._waiting:
                with self._dispatcher.exclusive() as is_busy:
                    finished = self._pass(min(_ROWS_BESIDE, self._model.max_rows) if is_busy else self._model.max_rows)
                if finished is None:
                    self._let_others_end(is_busy=is_busy)
                else:
                    yield finished
        finally:
            if self._begun:
                with self._dispatcher.exclusive():
                    for text in self._begun:
                        text.kv.close()

    def _pass(self, n_rows: int) -> tuple[Embedded, ...] | None:
        """Compute up to so many rows; what that finished, or None where there is no room to begin."""
        spans: list[Span] = []
        for text in self._to_read():
            spans.append(text.span(n_rows))
            n_rows -= len(spans[-1].tokens)
            if not n_rows:
                break
        if not spans:
            return None
        hidden = self._model.forward_hidden(Batch(tuple(spans)))
        first = 0
        for text, span in zip(self._begun, spans, strict=True):
            text.take(hidden[first : first + len(span.tokens)])
            first += len(span.tokens)
        finished: list[Embedded] = []
        while self._begun and self._begun[0].is_read:
            finished.append(self._finish(self._begun.popleft()))
        return tuple(finished)

    def _to_read(self) -> Iterator[_Text]:
        """The input begun before, then others, begun as long as there is room for all of their tokens.

        Were blocks taken as they are needed, two callers could each wait for what the other has.
        """
        yield from tuple(self._begun)
        pool = self._model.kv_pool
        while self._waiting and blocks_for(len(self._waiting[0][1])) <= pool.n_free:
            index, tokens = self._waiting.popleft()
            text = _Text(index, tokens, KvSequence(pool), Pooled(self._pooling, self._model.d_model))
            self._begun.append(text)
            text.kv.reserve(len(tokens))
            yield text

    def _finish(self, text: _Text) -> Embedded:
        text.kv.close()
        try:
            return Embedded(text.index, text.pooled.vector(normalize=self._normalize), len(text.tokens))
        except BadLogits as error:
            raise BadLogits(f"inputs[{text.index}]: {error}") from None

    def _let_others_end(self, *, is_busy: bool) -> None:
        """Step once for the answers that have the memory. Raises KvPoolFull where there are none that go on."""
        has_work, is_stalled = self._dispatcher.advance() if is_busy else (False, False)
        if not is_busy or (has_work and is_stalled):
            index, tokens = self._waiting[0]
            raise KvPoolFull(
                f"inputs[{index}]: {len(tokens)} tokens need {blocks_for(len(tokens))} KV blocks, and "
                f"{self._model.kv_pool.n_free} are free: close a conversation, or try again later"
            )
