"""What becomes of each field of a request: honoured, kept out of the way, or refused by name. Never silently dropped.

The annotations are the truth that the documentation's tables and the tests are made from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fucina.server.failures import ApiError


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done with a field. `neutral` values of a refused one change nothing, and are taken."""

    kind: Literal["honored", "bookkeeping", "refused"]
    note: str = ""
    neutral: tuple[object, ...] = (None,)


def refused(note: str, *neutral: object) -> Policy:
    """A field that would change the answer in a way that this server has not."""
    return Policy("refused", note, (None, *neutral))


#: A field that changes no answer: accepted and left alone.
BOOKKEEPING = Policy("bookkeeping", "changes no answer")


class WireRequest(BaseModel):
    """A request's body. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _refuse(self) -> Self:
        for name, policy in policies(type(self)):
            if policy.kind == "refused" and getattr(self, name) not in policy.neutral:
                raise ApiError(501, f"'{name}' is not supported: {policy.note}", code="unsupported", param=name)
        return self


class WirePart(BaseModel):
    """A part of a request."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def policies(request: type[BaseModel]) -> Iterator[tuple[str, Policy]]:
    """Each field of a request and what is done with it."""
    for name, field in request.model_fields.items():
        found = [entry for entry in field.metadata if isinstance(entry, Policy)]
        yield name, found[0] if found else Policy("honored", field.description or "")


Temperature = Annotated[float, Field(ge=0, le=1000)]
Probability = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Strength = Annotated[float, Field(gt=0, le=1000)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**64 - 1)]
