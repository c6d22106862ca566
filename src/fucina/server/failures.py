"""Failures as HTTP knows them: a status, what was wrong, and which field of the request it was."""

from __future__ import annotations

import logging
from contextvars import ContextVar

from pydantic import BaseModel, ValidationError

from fucina.errors import (
    CapacityError,
    Closed,
    ConfigError,
    ConstraintError,
    ContextFull,
    DeadlineExceeded,
    FucinaError,
    TemplateError,
)
from fucina.server.places import joined, place

_LOG = logging.getLogger("fucina.server")

#: The id of the request that is being answered, as its response has it in `x-request-id`.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="?")
# pydantic writes down all of them to tell the first: a minute for a million.
_MOST_ERRORS = 1000


class ApiError(Exception):
    """A request that gets no answer. `param` is the field at fault, `retry_after` seconds to wait for the next try."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.retry_after = status, message, code, param, retry_after


def as_api_error(error: BaseException) -> ApiError:
    """What HTTP says of a failure. What nobody foresaw is told as such, and logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextFull):
        return ApiError(400, str(error), code="context_length_exceeded", param="messages")
    if isinstance(error, ConfigError):
        return ApiError(400, str(error), code="invalid_value", param=error.option)
    if isinstance(error, TemplateError):
        return ApiError(400, str(error), code="template_refused", param="messages")
    if isinstance(error, ConstraintError):
        return ApiError(400, str(error), code="invalid_constraint")
    if isinstance(error, DeadlineExceeded):
        return ApiError(504, str(error), code="deadline_exceeded")
    if isinstance(error, CapacityError):
        return ApiError(503, str(error), code="no_memory", retry_after=5)
    if isinstance(error, Closed):
        return ApiError(
            503, "the server is about to end: ask again when it is back", code="shutting_down", retry_after=5
        )
    if isinstance(error, FucinaError):
        return ApiError(400, str(error), code="refused")
    _LOG.error("request %s failed", REQUEST_ID.get(), exc_info=error)
    return ApiError(500, "this is a bug in the server: its log has the details", code="internal_error")


def invalid(error: ValidationError, body: type[BaseModel]) -> ApiError:
    """The first thing that is wrong with a body."""
    if error.error_count() > _MOST_ERRORS:
        return ApiError(400, f"{error.error_count()} things are wrong with the body", code="invalid_value")
    first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    param = place(body, first["loc"], ends_in_field=kind in ("extra_forbidden", "missing")) or None
    if kind == "json_invalid":
        return ApiError(400, f"the body is no JSON: {first['msg']}", code="invalid_json")
    if kind == "extra_forbidden":
        return ApiError(
            400, f"there is no field '{param}': it is none that this server knows", code="unknown_field", param=param
        )
    if kind == "unsupported":
        param = joined(param or "", first["ctx"]["field"])
        return ApiError(501, f"{param}: {first['msg']}", code="unsupported", param=param)
    if kind == "missing":
        return ApiError(400, f"the field '{param}' is missing", code="missing_field", param=param)
    return ApiError(400, f"{param or 'the body'}: {first['msg']}", code="invalid_value", param=param)
