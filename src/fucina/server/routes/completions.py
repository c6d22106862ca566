"""POST /v1/completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from fucina.engine.events import FinishEvent, TokenEvent
from fucina.engine.options import Prompt
from fucina.server.answer import Answer, Outcome, Step, answering, whole
from fucina.server.beside import IsGone, beside
from fucina.server.deltas import TextDelta
from fucina.server.endpoint import Call, json_response
from fucina.server.forms import wanted_form
from fucina.server.legacy_logprobs import LegacyLogprobs
from fucina.server.prompt_scores import Scored, prompt_scores
from fucina.server.question import Question
from fucina.server.reading import finish_reason
from fucina.server.sse import COMMENT, DONE, event_stream, frame
from fucina.server.state import Loaded
from fucina.server.wire.completions import DEFAULT_MAX_TOKENS, CompletionRequest, prompts_of
from fucina.server.wire.errors import OPENAI
from fucina.server.wire.usage import usage_of


async def complete(call: Call) -> Response:
    """Continue texts."""
    body: CompletionRequest = call.body
    loaded = call.state.require(body.model)
    prompts = prompts_of(body.prompt)
    writer = _Writer(body, loaded, prompts)
    ask = partial(_questions, body, call, prompts)
    if body.stream:
        return event_stream(_chunks(call, writer, ask), OPENAI, call.state.options.stall_s, last=DONE)
    async with answering(call.state, writer.n, ask) as answer:
        await writer.read_prompts(answer)
        return json_response(writer.whole(await whole(answer)))


def _questions(body: CompletionRequest, call: Call, prompts: Sequence[Prompt]) -> list[Question]:
    """What the body asks. Raises ApiError and ConfigError."""
    max_tokens = body.max_tokens if body.max_tokens is not None else DEFAULT_MAX_TOKENS
    params = body.params(call.state.options.defaults, max_tokens=max_tokens, logprobs=body.logprobs)
    form = wanted_form(body)
    return [
        Question(
            prompt=prompt,
            source="prompt",
            params=params,
            form=form,
            bias=body.bias(),
            min_tokens=body.min_tokens or 0,
            references=body.references or (),
            n=body.n or 1,
            cache_salt=call.salt(body.cache_salt),
            deadline_s=call.state.options.deadline_s,
        )
        for prompt in prompts
    ]


async def _chunks(call: Call, writer: _Writer, ask: partial[list[Question]]) -> AsyncGenerator[bytes, None]:
    """The answer as server-sent events."""
    ends: dict[int, FinishEvent] = {}
    async with answering(call.state, writer.n, ask) as answer:
        await writer.read_prompts(answer)
        opening = b"".join(frame(chunk) for chunk in writer.opening())
        async for steps in answer.steps():
            yield opening + (b"".join(frame(chunk) for step in steps for chunk in writer.chunks(step)) or COMMENT)
            opening = b""
            ends |= {step.choice: step.event for step in steps if isinstance(step.event, FinishEvent)}
    if writer.has_usage:
        yield frame(writer.usage_chunk([ends[choice] for choice in sorted(ends)]))
    yield DONE


class _Writer:
    """Writes the answer to one request down, as a whole or in chunks."""

    def __init__(self, body: CompletionRequest, loaded: Loaded, prompts: Sequence[Prompt]) -> None:
        self._model, self._prompts, self._n_each = loaded.model, prompts, body.n or 1
        self._echoes, self._n_top = bool(body.echo), body.logprobs
        self.n = len(prompts) * self._n_each
        self.has_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        self._logprobs = [LegacyLogprobs(loaded.texts) for _ in range(self.n)] if body.logprobs is not None else None
        self._echoed = [""] * self.n
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": loaded.name,
            "system_fingerprint": loaded.fingerprint,
        }

    async def read_prompts(self, answer: Answer) -> None:
        """Read what is to be echoed. Raises KvPoolFull."""
        if not self._echoes:
            return
        for index, ids in enumerate(answer.prompts):
            prompt = self._prompts[index]
            text = prompt if isinstance(prompt, str) else self._model.tokenizer.decode(ids)
            choices = range(index * self._n_each, (index + 1) * self._n_each)
            scores = await beside(partial(self._scores, ids)) if self._logprobs is not None else []
            for choice in choices:
                self._echoed[choice] = text
                if self._logprobs is not None:
                    self._logprobs[choice].read_prompt(text, scores)

    def _scores(self, ids: Sequence[int], is_gone: IsGone) -> list[Scored]:
        return prompt_scores(self._model, ids, self._n_top or 0, is_gone)

    def whole(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """The whole answer."""
        choices = [
            self._choice(
                i, self._echoed[i] + outcome.text, outcome.tokens, finish_reason(outcome.finish, has_calls=False)
            )
            for i, outcome in enumerate(outcomes)
        ]
        usage = usage_of([outcome.finish for outcome in outcomes], n_each=self._n_each)
        return {**self._head, "choices": choices, "usage": usage}

    def opening(self) -> list[dict[str, Any]]:
        """The chunks of echoed prompts."""
        return [self._chunk([self._choice(i, text, [])]) for i, text in enumerate(self._echoed) if text]

    def chunks(self, step: Step) -> list[dict[str, Any]]:
        """The chunks of one step; none where there is nothing to say."""
        text = "".join(delta.text for delta in step.deltas if isinstance(delta, TextDelta))
        if isinstance(step.event, FinishEvent):
            return [self._chunk([self._choice(step.choice, text, [], finish_reason(step.event, has_calls=False))])]
        return [self._chunk([self._choice(step.choice, text, [step.event])])] if text or self._logprobs else []

    def usage_chunk(self, ends: Sequence[FinishEvent]) -> dict[str, Any]:
        """The last chunk, which has no choices."""
        return self._chunk([]) | {"usage": usage_of(ends, n_each=self._n_each)}

    def _choice(self, index: int, text: str, tokens: Sequence[TokenEvent], reason: str | None = None) -> dict[str, Any]:
        logprobs = None
        if self._logprobs is not None:
            self._logprobs[index].read(tokens)
            logprobs = self._logprobs[index].take()
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = {**self._head, "choices": choices}
        return chunk | {"usage": None} if self.has_usage else chunk
