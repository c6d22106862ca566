"""What Ollama's interface answers."""

from __future__ import annotations

from typing import Any, Literal

from fucina.server.wire.fields import WireReply


class VersionReply(WireReply):
    """The server's version."""

    version: str


class ModelDetails(WireReply):
    """Of a model file: its format, family, parameters and the format of most weights."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class ListedModel(WireReply):
    """A model that is there."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: ModelDetails


class TagsReply(WireReply):
    """The models that are there."""

    models: list[ListedModel]


class RunningModel(WireReply):
    """A model that is loaded."""

    name: str
    model: str
    size: int
    digest: str
    details: ModelDetails
    expires_at: str
    size_vram: int
    context_length: int


class PsReply(WireReply):
    """The models that are loaded."""

    models: list[RunningModel]


class ShowReply(WireReply):
    """What is known of a model."""

    modelfile: str
    parameters: str
    template: str
    details: ModelDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class AnswerReply(WireReply):
    """A piece of an answer, or the whole of it. Durations are nanoseconds; counts and they come with the end."""

    model: str
    created_at: str
    done: bool
    done_reason: Literal["stop", "length", "load"] | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    logprobs: list[dict[str, Any]] | None = None


class OllamaCalledFunction(WireReply):
    """A function and its arguments."""

    name: str
    arguments: dict[str, Any]


class OllamaCalledTool(WireReply):
    """A call that the model makes."""

    id: str
    function: OllamaCalledFunction


class OllamaAnswer(WireReply):
    """What the model says."""

    role: Literal["assistant"]
    content: str
    thinking: str | None = None
    tool_calls: list[OllamaCalledTool] | None = None


class OllamaChatReply(AnswerReply):
    """An answer, or a piece of it."""

    message: OllamaAnswer


class GenerateReply(AnswerReply):
    """An answer, or a piece of it."""

    response: str
    thinking: str | None = None


class EmbedReply(WireReply):
    """A vector of length 1 for each input."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int
