"""OpenAI's embeddings: https://platform.openai.com/docs/api-reference/embeddings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fucina.server.wire.completions import Prompts
from fucina.server.wire.fields import BOOKKEEPING, Count, WireReply, WireRequest


class EmbeddingRequest(WireRequest):
    """Texts, or token ids, to be made into vectors."""

    model: Annotated[str, Field(max_length=512)]
    input: Annotated[Prompts, Field(description="A text or token ids, or a list of them.")]
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Field(description="base64: of little-endian 32 bit floats. float.")
    ] = None
    dimensions: Annotated[
        Count | None, Field(description="Refused unless the model's vectors have that many: none are cut.")
    ] = None
    user: Annotated[str | None, BOOKKEEPING] = None


class EmbeddingEntry(WireReply):
    """The vector of an input: numbers, or their bytes as base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(WireReply):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingReply(WireReply):
    """A vector of length 1 for each input."""

    object: Literal["list"]
    data: list[EmbeddingEntry]
    model: str
    usage: EmbeddingUsage
