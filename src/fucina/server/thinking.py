"""What a request says of thinking, checked against what the model can be told, under the names of its dialect."""

from __future__ import annotations

from fucina.errors import ConfigError
from fucina.server.failures import ApiError
from fucina.server.state import Loaded


def told_effort(loaded: Loaded, effort: str | None, param: str) -> str | None:
    """The effort, if the model can be told it. Raises ApiError, which names `param`."""
    try:
        loaded.manners.switches.variables(effort=effort)
    except ConfigError as error:
        raise ApiError(400, str(error), code="invalid_value", param=param) from error
    return effort


def told_thinking(loaded: Loaded, wanted: bool | None, param: str) -> bool | None:
    """Whether to think, for a model that can be told; None where it does so anyway. Raises ApiError."""
    if wanted is None:
        return None
    try:
        loaded.manners.switches.variables(enable_thinking=wanted)
    except ConfigError:
        thinks = loaded.model.constraints.thinking(()) is not None
        if thinks != wanted:
            what = "always thinks" if thinks else "does not think"
            message = f"this model {what}, and its chat template has no switch for it"
            raise ApiError(400, message, code="invalid_value", param=param) from None
        return None
    return wanted
