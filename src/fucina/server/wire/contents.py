"""Contents that are a text or a list of typed parts, and parts that no model here can take."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import ConfigDict, Discriminator, Field, GetJsonSchemaHandler, Tag, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from fucina.server.wire.fields import WirePart, unsupported

Text = Annotated[str, Field(max_length=1 << 24)]
Part = TypeVar("Part")

# Tags are no names of fields, so that errors leave them out of the path to what is wrong.
_TEXT, _LIST, _WORD, _OTHER = "as text", "as list", "as word", "other type"


def _form(value: object) -> str:
    return _LIST if isinstance(value, list) else _TEXT


#: `TextOr[Part]`: a text, or a list of parts.
TextOr = Annotated[
    Annotated[Text, Tag(_TEXT)] | Annotated[list[Part], Tag(_LIST), Field(max_length=10_000)], Discriminator(_form)
]


#: Marks the member of a union for plain words, and the one for all types that the others do not have.
WORDS, OTHERS = Tag(_WORD), Tag(_OTHER)


def tagged(kind: str) -> Tag:
    """Mark the member of a union for values of that `type`."""
    return Tag(f"type {kind}")


def by_type(*known: str, default: str = "", has_words: bool = False) -> Discriminator:
    """Tell the members of a union apart by `type`, which values of type `default` may leave out."""
    tags = {kind: f"type {kind}" for kind in known}

    def tag_of(value: object) -> str:
        if has_words and not isinstance(value, dict | WirePart):
            return _WORD
        kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return tags.get(kind or default, _OTHER) if isinstance(kind or default, str) else _OTHER

    return Discriminator(
        tag_of, custom_error_type="unknown_type", custom_error_message="there is nothing of that type here"
    )


class Unsupported(WirePart):
    """Something of a vendor's interface that no model here can take: it is refused by its name, never dropped."""

    model_config = ConfigDict(extra="allow")

    note: ClassVar[str] = "models here read text"
    type: str

    @model_validator(mode="after")
    def _name(self) -> Self:
        sent = self.model_extra or {}
        raise unsupported(self.type, self.note, self.type if self.type in sent else "")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """No value of it is valid."""
        return {"not": {}, "description": f"Refused: {cls.note}."}
