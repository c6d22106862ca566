"""OpenAI's legacy completions: https://platform.openai.com/docs/api-reference/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from fucina.engine.options import Prompt
from fucina.server.wire.chat import References, StreamOptions
from fucina.server.wire.contents import Text
from fucina.server.wire.fields import BOOKKEEPING, Count, WireReply, WireRequest, refused
from fucina.server.wire.sampling import FormFields, SamplingFields, TokenId
from fucina.server.wire.usage import UsageReply

#: Tokens that an answer has at most where the request does not say, as OpenAI's interface has it.
DEFAULT_MAX_TOKENS = 16

TokenIds = Annotated[list[TokenId], Field(min_length=1, max_length=1 << 20)]
Prompts = (
    Text
    | TokenIds
    | Annotated[list[Text], Field(min_length=1, max_length=2048)]
    | Annotated[list[TokenIds], Field(min_length=1, max_length=2048)]
)


def prompts_of(given: Prompts) -> Sequence[Prompt]:
    """The prompts in a field that takes one or many of them."""
    return [given] if isinstance(given, str) or isinstance(given[0], int) else [*given]


class CompletionRequest(SamplingFields, FormFields, WireRequest):
    """Texts to be continued."""

    model: Annotated[str, Field(max_length=512)]
    prompt: Annotated[Prompts, Field(description="A text or token ids, or a list of them; each gets n choices.")]
    max_tokens: Annotated[Count | None, Field(description=f"{DEFAULT_MAX_TOKENS} where it is not given.")] = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    echo: Annotated[bool | None, Field(description="Give the prompt too, with its log-probabilities.")] = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    references: Annotated[
        References | None, Field(description="Texts that the answer may quote: drafts are taken from them.")
    ] = None
    user: Annotated[str | None, BOOKKEEPING] = None
    best_of: Annotated[Any, refused("ask for n choices", 1)] = None
    suffix: Annotated[Any, refused("models here only continue a text, none fills a gap", "")] = None


class LegacyLogprobs(WireReply):
    """Of each token: its text, its log-probability, the likeliest ones in its place, and where it begins in the text.

    A token that is not whole characters is shown as `bytes:\\xe2\\x80`. The first token of a prompt has no probability.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(WireReply):
    """A continuation."""

    index: int
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: Literal["stop", "length"]


class CompletionReply(WireReply):
    """What was asked for."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: UsageReply
