"""What Ollama's chat and generate ask, in no dialect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.params import SamplingParams
from fucina.server.endpoint import Call
from fucina.server.failures import ApiError
from fucina.server.forms import honored
from fucina.server.messages import tools_of
from fucina.server.question import Question
from fucina.server.tools.definition import ToolUse
from fucina.server.wire.chat import ToolDefinition
from fucina.server.wire.ollama import AnswerFields, GenerateRequest, OllamaChatRequest, OllamaMessage, OllamaOptions

# A share of the probability that keeps one token, where a request says 0.
_LEAST_SHARE = 1e-9


def chat_question(call: Call) -> Question:
    """What a conversation asks. Raises ApiError and ConfigError."""
    body: OllamaChatRequest = call.body
    return _question(call, body.tools, messages=[_written(message) for message in body.messages or ()])


def generate_question(call: Call) -> Question:
    """What a text asks. Raises ApiError and ConfigError."""
    return _question(call, None, **_asked(call, call.body), source="prompt")


def _question(call: Call, tools: Sequence[ToolDefinition] | None, **asked: Any) -> Question:
    body: AnswerFields = call.body
    model = call.state.require().model
    n_top = (body.top_logprobs or 0) if body.logprobs else None
    thinking = body.think if isinstance(body.think, bool) else None
    if thinking is False and model.constraints.thinking(()) is None:
        thinking = None  # it never does
    return Question(
        tools=ToolUse(tools_of(tools)),
        effort=body.think if isinstance(body.think, str) else None,
        thinking=thinking,
        params=_params(body.options or OllamaOptions(), call.state.options.defaults, model.context, n_top),
        form=_form(body),
        cache_salt=call.salt(None),
        deadline_s=call.state.options.deadline_s,
        **asked,
    )


def _params(options: OllamaOptions, defaults: SamplingParams, context: int, n_top: int | None) -> SamplingParams:
    """How to choose tokens. Raises ApiError and ConfigError."""
    if options.num_ctx is not None and options.num_ctx > context:
        message = f"num_ctx is {options.num_ctx}, but {context} tokens is what this model is served with"
        raise ApiError(400, message, code="invalid_value", param="options.num_ctx")
    same = ("temperature", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
    changes: dict[str, Any] = {name: getattr(options, name) for name in same if getattr(options, name) is not None}
    if options.top_p is not None:
        changes["top_p"] = max(options.top_p, _LEAST_SHARE)
    if options.top_k is not None:
        changes["top_k"] = options.top_k if options.top_k > 0 else None
    if options.repeat_last_n is not None:
        changes["penalty_window"] = options.repeat_last_n if options.repeat_last_n >= 0 else None
    if options.seed is not None and options.seed >= 0:
        changes["seed"] = options.seed
    if options.num_predict is not None and options.num_predict > 0:
        changes["max_tokens"] = options.num_predict
    if options.stop is not None:
        changes["stop"] = (options.stop,) if isinstance(options.stop, str) else tuple(options.stop)
    return replace(defaults, logprobs=n_top, **changes)


def _form(body: AnswerFields) -> tuple[str, Constraint] | None:
    """The form that is asked for. Raises ApiError."""
    wanted = body.format
    if wanted is None or wanted == "":
        return None
    made = honored(
        "format", Constraint.any_json if isinstance(wanted, str) else partial(Constraint.json_schema, wanted)
    )
    return None if made is None else ("format", made)


def _written(message: OllamaMessage) -> dict[str, object]:
    """A message as templates take it."""
    written: dict[str, object] = {"role": message.role, "content": message.content or ""}
    if message.thinking is not None:
        written["reasoning_content"] = message.thinking
    if message.tool_name is not None:
        written["name"] = message.tool_name
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        written["tool_calls"] = [
            {
                "id": one.id or f"call_{i}",
                "type": "function",
                "function": {"name": one.function.name, "arguments": one.function.arguments},
            }
            for i, one in enumerate(message.tool_calls)
        ]
    return written


def _asked(call: Call, body: GenerateRequest) -> dict[str, Any]:
    """The prompt as it is, or as a user's message where there is a template. Raises ApiError."""
    has_template = call.state.require(body.model).facts.template is not None
    if has_template and not body.raw:
        system = [{"role": "system", "content": body.system}] if body.system else []
        return {"messages": [*system, {"role": "user", "content": body.prompt}]}
    if body.system:
        why = "raw prompts have none" if has_template else "this model has no chat template"
        raise ApiError(400, f"'system' has no place: {why}", code="invalid_value", param="system")
    return {"prompt": body.prompt}
