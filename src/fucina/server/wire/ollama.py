"""A part of Ollama's interface: https://github.com/ollama/ollama/blob/main/docs/api.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from fucina.server.wire.chat import ToolDefinition
from fucina.server.wire.contents import Text
from fucina.server.wire.fields import BOOKKEEPING, Penalty, Share, Strength, Temperature, WirePart, WireRequest, refused
from fucina.server.wire.sampling import Schema, StopText, Window

ModelName = Annotated[str, Field(min_length=1, max_length=512)]
KeepAlive = Annotated[float | str | None, BOOKKEEPING]
Images = Annotated[Any, refused("models here read text", [])]
Whole = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class OllamaOptions(WirePart):
    """How to choose tokens. What is about loading a model changes nothing here: it is loaded already."""

    temperature: Temperature | None = None
    top_k: Annotated[Whole | None, Field(description="0 and less keep all.")] = None
    top_p: Share | None = None
    min_p: Share | None = None
    seed: Annotated[Whole | None, Field(description="A negative one takes a fresh seed.")] = None
    num_predict: Annotated[Whole | None, Field(description="Tokens at most; 0 and less: no such limit.")] = None
    num_ctx: Annotated[
        Annotated[int, Field(ge=1, le=2**31 - 1)] | None,
        Field(description="Refused if it is more than the context that is served."),
    ] = None
    stop: StopText | Annotated[list[StopText], Field(max_length=16)] | None = None
    repeat_penalty: Strength | None = None
    repeat_last_n: Annotated[Window | None, Field(description="Tokens that penalties look at; -1: all.")] = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    num_keep: Annotated[int | None, BOOKKEEPING] = None
    num_batch: Annotated[int | None, BOOKKEEPING] = None
    num_gpu: Annotated[int | None, BOOKKEEPING] = None
    main_gpu: Annotated[int | None, BOOKKEEPING] = None
    num_thread: Annotated[int | None, BOOKKEEPING] = None
    numa: Annotated[bool | None, BOOKKEEPING] = None
    low_vram: Annotated[bool | None, BOOKKEEPING] = None
    f16_kv: Annotated[bool | None, BOOKKEEPING] = None
    use_mmap: Annotated[bool | None, BOOKKEEPING] = None
    use_mlock: Annotated[bool | None, BOOKKEEPING] = None
    mirostat_tau: Annotated[float | None, BOOKKEEPING] = None
    mirostat_eta: Annotated[float | None, BOOKKEEPING] = None
    logits_all: Annotated[Any, refused("ask for logprobs", False)] = None
    vocab_only: Annotated[Any, refused("the model is loaded already", False)] = None
    embedding_only: Annotated[Any, refused("the model is loaded already", False)] = None
    tfs_z: Annotated[Any, refused("tokens are chosen by top_k, top_p and min_p", 1)] = None
    typical_p: Annotated[Any, refused("tokens are chosen by top_k, top_p and min_p", 1)] = None
    mirostat: Annotated[Any, refused("tokens are chosen by top_k, top_p and min_p", 0)] = None
    penalize_newline: Annotated[Any, refused("line ends are tokens like others", True)] = None


class AnswerFields(BaseModel):
    """What chat and generate have in common."""

    model: ModelName
    stream: Annotated[bool | None, Field(description="true where it is not given.")] = None
    options: OllamaOptions | None = None
    format: Annotated[
        Literal["", "json"] | Schema | None, Field(description="'json' for some JSON object, or a schema.")
    ] = None
    think: Annotated[bool | Literal["high", "medium", "low"] | None, Field(description="The template's switch.")] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    keep_alive: KeepAlive = None


class OllamaFunctionCall(WirePart):
    """A function and its arguments."""

    name: Annotated[str, Field(max_length=256)]
    arguments: Schema = Field(default_factory=dict)
    description: Annotated[Any, BOOKKEEPING] = None
    index: Annotated[int | None, BOOKKEEPING] = None


class OllamaToolCall(WirePart):
    """A call that an assistant made."""

    id: Annotated[str, Field(max_length=256)] | None = None
    type: Literal["function"] | None = None
    function: OllamaFunctionCall


class OllamaMessage(WirePart):
    """What somebody says."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Text | None = None
    thinking: Text | None = None
    tool_calls: Annotated[list[OllamaToolCall], Field(max_length=128)] | None = None
    tool_name: Annotated[str, Field(max_length=256)] | None = None
    tool_call_id: Annotated[str, Field(max_length=256)] | None = None
    images: Images = None


class OllamaChatRequest(AnswerFields, WireRequest):
    """A question as a conversation; none asks whether the model is loaded."""

    messages: Annotated[list[OllamaMessage], Field(max_length=10_000)] | None = None
    tools: Annotated[list[ToolDefinition], Field(max_length=128)] | None = None


class GenerateRequest(AnswerFields, WireRequest):
    """A question as one text; none asks whether the model is loaded."""

    prompt: Text | None = None
    system: Text | None = None
    raw: Annotated[bool | None, Field(description="Continue the prompt as it is, without the template.")] = None
    images: Images = None
    suffix: Annotated[Any, refused("models here only continue a text, none fills a gap", "")] = None
    template: Annotated[Any, refused("a request cannot bring its own template", "")] = None
    context: Annotated[Any, refused("use /api/chat: what was said is kept in the cache", [])] = None
    width: Annotated[Any, refused("models here make no images", 0)] = None
    height: Annotated[Any, refused("models here make no images", 0)] = None
    steps: Annotated[Any, refused("models here make no images", 0)] = None


class EmbedRequest(WireRequest):
    """Texts to be made into vectors."""

    model: ModelName
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=2048)]
    truncate: Annotated[bool | None, Field(description="Cut what is too long, instead of refusing it: true.")] = None
    dimensions: Annotated[
        Annotated[int, Field(ge=1, le=2**31 - 1)] | None,
        Field(description="Refused unless the model's vectors have that many: none are cut."),
    ] = None
    options: OllamaOptions | None = None
    keep_alive: KeepAlive = None


class ShowRequest(WireRequest):
    """A model to be told of."""

    model: ModelName | None = None
    name: Annotated[ModelName | None, Field(description="As model.")] = None
    verbose: Annotated[bool | None, BOOKKEEPING] = None
