"""What a client asks, in no dialect: every route makes one of these of its own request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from fucina.errors import ConstraintError, ContextFull, TemplateError
from fucina.server.failures import ApiError, as_api_error
from fucina.server.reading import ChoiceReader
from fucina.server.reasoning import ReasoningSplitter
from fucina.server.state import Loaded
from fucina.server.tools.definition import ToolUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Either a `prompt` or `messages`, and how the answer is to be.

    `form` is what the answer must look like, with the field that asks for it. `effort` and `thinking` say how much the
    model should think, where it can be told. `references` are texts that the answer may quote. `n` answers are given,
    each with the seed after the one before. `source` is the request's field with what is asked, for errors.
    """

    prompt: Prompt | None = None
    messages: Sequence[Message] = ()
    tools: ToolUse = field(default_factory=ToolUse)
    effort: str | None = None
    thinking: bool | None = None
    params: SamplingParams
    form: tuple[str, Constraint] | None = None
    bias: Mapping[int, float] | None = None
    min_tokens: int = 0
    references: Sequence[str] = ()
    n: int = 1
    cache_salt: str = ""
    deadline_s: float | None = None
    source: str = "messages"

    def requests(self, loaded: Loaded) -> list[Request]:
        """What the engine computes. Takes as long as template, tokenizer and grammar do.

        Raises ApiError for a form that cannot be honoured, and what template and engine raise.
        """
        model, form = loaded.model, self._form(loaded)
        try:
            prompt = self.prompt_ids(loaded)
            return [self._request(model, prompt, i, form[1] if form is not None else None) for i in range(self.n)]
        except ConstraintError as error:
            param = form[0] if form is not None else None
            raise ApiError(400, str(error), code="invalid_constraint", param=param) from error
        except (ContextFull, TemplateError) as error:
            failure = as_api_error(error)
            failure.param = self.source
            raise failure from error

    def prompt_ids(self, loaded: Loaded) -> Prompt:
        """The tokens of what is asked. Raises ConfigError and TemplateError."""
        if self.prompt is None:
            return self._chat_ids(loaded)
        return loaded.model.speech.prompt_ids(self.prompt) if isinstance(self.prompt, str) else self.prompt

    def _form(self, loaded: Loaded) -> tuple[str, Constraint] | None:
        """What the answer must look like, its calls included. Raises ApiError and ConfigError."""
        if not self.tools.offered:
            return self.form
        if self.form is not None:
            message = f"'{self.form[0]}' beside tools that may be called: ask for either of them"
            raise ApiError(501, message, code="unsupported", param=self.form[0])
        calls = loaded.manners.format.constraint(self.tools)
        return None if calls is None else ("tools", calls)

    def _chat_ids(self, loaded: Loaded) -> list[int]:
        offered = self.tools.offered
        messages, told = loaded.manners.prompt(self.messages, offered, effort=self.effort, thinking=self.thinking)
        return loaded.model.speech.chat_ids(messages, **told)

    def _request(self, model: Model, prompt: Prompt, i: int, constraint: Constraint | None) -> Request:
        return model.request(
            prompt,
            self._params(i),
            constraint=constraint,
            processor=self._processor(model),
            references=self.references,
            cache_salt=self.cache_salt,
            deadline_s=self.deadline_s,
        )

    def reader(self, loaded: Loaded, prompt_ids: Sequence[int]) -> ChoiceReader:
        """What reads one of its answers."""
        if self.prompt is not None:
            return ChoiceReader()
        model, manners = loaded.model, loaded.manners
        thinking = model.constraints.thinking(prompt_ids)
        return ChoiceReader(
            None if thinking is None else ReasoningSplitter(thinking, model.tokenizer),
            manners.format.parser(self.tools) if self.tools.offered else None,
            manners.hidden,
        )

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
