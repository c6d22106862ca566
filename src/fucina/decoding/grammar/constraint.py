"""What an answer must look like: a JSON schema, a regular expression or a Lark grammar, as a value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fucina.decoding.grammar.closing import closed
from fucina.decoding.grammar.json_text import MAX_SCHEMA_CHARACTERS
from fucina.decoding.grammar.schema import canonical_schema, checked_schema
from fucina.errors import BadGrammar, ConfigError, ConstraintTooLarge

#: Characters of a regular expression and of a Lark grammar.
MAX_REGEX_CHARACTERS, MAX_LARK_CHARACTERS = 1 << 14, 1 << 16

Kind = Literal["json_schema", "regex", "lark", "json_lark"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule for answers. Equal content is an equal constraint, which is then compiled only once.

    `text` is the schema as compact JSON with its keys in the order they came in, the pattern, or the grammar.
    """

    kind: Kind
    text: str

    @classmethod
    def json_schema(cls, schema: object) -> Constraint:
        """Ask for JSON that fits a schema: a mapping, JSON text, True (any JSON), or a type.

        Types (a pydantic model, a dataclass, or what else pydantic can describe) need the optional package pydantic;
        objects then have the fields of their type and no others, unless it says extra='allow'.
        Raises BadSchema, ConstraintTooLarge and ConfigError.
        """
        if not isinstance(schema, str | bool | Mapping):
            schema = _schema_of_type(schema)
        text = canonical_schema(schema)
        checked_schema(text)
        return cls("json_schema", text)

    @classmethod
    def regex(cls, pattern: str) -> Constraint:
        """Ask for text that a regular expression matches as a whole. Raises BadGrammar and ConstraintTooLarge."""
        return cls("regex", _text("pattern", pattern, MAX_REGEX_CHARACTERS))

    @classmethod
    def lark(cls, grammar: str) -> Constraint:
        """Ask for text that follows a Lark grammar from its rule `start`. Raises BadGrammar and ConstraintTooLarge."""
        return cls("lark", _text("grammar", grammar, MAX_LARK_CHARACTERS))

    @classmethod
    def json_lark(cls, grammar: str) -> Constraint:
        """Ask for JSON within text: as `lark`, but no object has a key twice, whatever its schema leaves open.

        What the grammar writes around its JSON must be without quotes and brackets of its own. Raises BadGrammar and
        ConstraintTooLarge.
        """
        return cls("json_lark", _text("grammar", grammar, MAX_SCHEMA_CHARACTERS))

    @classmethod
    def any_json(cls) -> Constraint:
        """Ask for a JSON object with whatever in it."""
        return cls("json_schema", json.dumps({"type": "object"}, separators=(",", ":")))


def _text(what: str, text: str, most: int) -> str:
    if not isinstance(text, str):
        raise ConfigError(what, got=text, expected="text")
    if len(text) > most:
        raise ConstraintTooLarge(f"a {what} of {len(text)} characters: at most {most} are taken")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadGrammar(f"the {what} holds a lone surrogate, which is no Unicode text")
    if not text:
        raise BadGrammar(f"the {what} is empty")
    return text


def _schema_of_type(annotation: Any) -> Mapping[str, object]:
    try:
        import pydantic
    except ImportError as error:
        expected = "a mapping or JSON text; types need the extra 'structured': pip install pydantic"
        raise ConfigError("schema", got=annotation, expected=expected) from error
    try:
        schema = pydantic.TypeAdapter(annotation).json_schema()
    except (pydantic.errors.PydanticUserError, TypeError, ValueError) as error:
        raise ConfigError("schema", got=annotation, expected=f"a type that pydantic can describe ({error})") from error
    return closed(schema)
