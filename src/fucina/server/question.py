"""What a client asks, in no dialect: every route makes one of these of its own request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.params import SamplingParams
from fucina.decoding.processors.bias import LogitBias
from fucina.decoding.processors.chain import ProcessorChain
from fucina.decoding.processors.contract import LogitProcessor
from fucina.decoding.processors.minimum import MinTokens
from fucina.engine.model import Model
from fucina.engine.options import Prompt
from fucina.engine.request import Request
from fucina.engine.wording import Message
from fucina.errors import ConstraintError
from fucina.server.failures import ApiError
from fucina.server.reading import ChoiceReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Either a `prompt` or `messages`, and how the answer is to be.

    `form` is what the answer must look like, with the field that asks for it. `references` are texts that the answer
    may quote. `variables` go to the chat template. `n` answers are given, each
    with the seed after the one before.
    """

    prompt: Prompt | None = None
    messages: Sequence[Message] = ()
    variables: Mapping[str, Any] | None = None
    params: SamplingParams
    form: tuple[str, Constraint] | None = None
    bias: Mapping[int, float] | None = None
    min_tokens: int = 0
    references: Sequence[str] = ()
    n: int = 1
    cache_salt: str = ""
    deadline_s: float | None = None

    def requests(self, model: Model) -> list[Request]:
        """What the engine computes. Takes as long as template, tokenizer and grammar do.

        Raises ApiError for a form that cannot be honoured, and what template and engine raise.
        """
        prompt = self.prompt
        if prompt is None:
            prompt = model.speech.chat_ids(self.messages, **(self.variables or {}))
        elif isinstance(prompt, str):
            prompt = model.speech.prompt_ids(prompt)
        try:
            return [self._request(model, prompt, i) for i in range(self.n)]
        except ConstraintError as error:
            param = self.form[0] if self.form is not None else None
            raise ApiError(400, str(error), code="invalid_constraint", param=param) from error

    def _request(self, model: Model, prompt: Prompt, i: int) -> Request:
        return model.request(
            prompt,
            self._params(i),
            constraint=self.form[1] if self.form is not None else None,
            processor=self._processor(model),
            references=self.references,
            cache_salt=self.cache_salt,
            deadline_s=self.deadline_s,
        )

    def reader(self) -> ChoiceReader:
        """What reads one of its answers."""
        return ChoiceReader()

    def _params(self, i: int) -> SamplingParams:
        seed = self.params.seed
        return self.params if seed is None or i == 0 else replace(self.params, seed=seed + i)

    def _processor(self, model: Model) -> LogitProcessor | None:
        """A processor of its own for one answer."""
        processors: list[LogitProcessor] = []
        if self.bias:
            processors.append(LogitBias(self.bias))
        if self.min_tokens:
            processors.append(MinTokens(self.min_tokens, model.tokenizer.eog_ids))
        return ProcessorChain(*processors) if len(processors) > 1 else next(iter(processors), None)
