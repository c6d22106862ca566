"""What becomes of each field of a request: honoured, kept out of the way, or refused by name. Never silently dropped.

The annotations are the truth that the documentation's tables and the tests are made from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done with a field. `neutral` values of a refused one change nothing, and are taken."""

    kind: Literal["honored", "bookkeeping", "refused"]
    note: str = ""
    neutral: tuple[object, ...] = (None,)

    def takes(self, value: object) -> bool:
        """Whether a value of a refused field changes nothing. JSON's true is not 1, which Python's is."""
        return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in self.neutral)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The field in a JSON schema: of a refused one only what changes nothing is valid."""
        if self.kind == "refused":
            return {"enum": list(self.neutral), "description": f"Refused: {self.note}."}
        return {**handler(core), "description": f"Bookkeeping: {self.note}."}


def refused(note: str, *neutral: object) -> Policy:
    """A field that would change the answer in a way that this server has not."""
    return Policy("refused", note, (None, *neutral))


def unsupported(what: str, note: str, field: str = "") -> PydanticCustomError:
    """The refusal of a part by what it is, or of a field in it: of that the failure tells the place too."""
    return PydanticCustomError(
        "unsupported", "'{what}' is not supported: {note}", {"what": what, "note": note, "field": field}
    )


#: A field that changes no answer: accepted and left alone.
BOOKKEEPING = Policy("bookkeeping", "changes no answer")


class WirePart(BaseModel):
    """A request's body or a part of it. Unknown fields are refused, and so are those that would be dropped."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _refuse(self) -> Self:
        for name, policy in _refusals(type(self)):
            if not policy.takes(getattr(self, name)):
                sent = type(self).model_fields[name].alias or name
                raise unsupported(sent, policy.note, sent)
        return self


class WireRequest(WirePart):
    """A request's body."""


class WireReply(BaseModel):
    """What is answered, or a part of it: these fields and no others."""

    model_config = ConfigDict(extra="forbid")


def policies(request: type[BaseModel]) -> Iterator[tuple[str, Policy]]:
    """Each field of a request and what is done with it."""
    for name, field in request.model_fields.items():
        found = [entry for entry in field.metadata if isinstance(entry, Policy)]
        yield name, found[0] if found else Policy("honored", field.description or "")


@cache
def _refusals(part: type[BaseModel]) -> tuple[tuple[str, Policy], ...]:
    return tuple((name, policy) for name, policy in policies(part) if policy.kind == "refused")


Temperature = Annotated[float, Field(ge=0, le=1000)]
Probability = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Strength = Annotated[float, Field(gt=0, le=1000)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**64 - 1)]
