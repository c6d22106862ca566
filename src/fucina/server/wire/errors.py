"""How each dialect tells of failures."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from fucina.server.endpoint import Dialect
from fucina.server.failures import ApiError

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class OpenAIFailure(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """A failure as OpenAI's interface tells it."""

    error: OpenAIFailure


class AnthropicFailure(BaseModel):
    """What went wrong."""

    type: str
    message: str


class AnthropicError(BaseModel):
    """A failure as Anthropic's interface tells it."""

    type: Literal["error"]
    error: AnthropicFailure


class OllamaError(BaseModel):
    """A failure as Ollama's interface tells it."""

    error: str


def openai_failure(error: ApiError) -> dict[str, Any]:
    """The body of a failure."""
    kind = _OPENAI_TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def anthropic_failure(error: ApiError) -> dict[str, Any]:
    """The body of a failure."""
    kind = _ANTHROPIC_TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    where = f" (in '{error.param}')" if error.param else ""
    return {"type": "error", "error": {"type": kind, "message": error.message + where}}


def ollama_failure(error: ApiError) -> dict[str, Any]:
    """The body of a failure."""
    return {"error": error.message}


OPENAI = Dialect("openai", openai_failure, OpenAIError)
ANTHROPIC = Dialect("anthropic", anthropic_failure, AnthropicError)
OLLAMA = Dialect("ollama", ollama_failure, OllamaError)
