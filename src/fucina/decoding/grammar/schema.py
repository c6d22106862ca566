"""JSON schemas before they become grammars: what they may hold, where they fail, and what in them may never end."""

from __future__ import annotations

import json
from typing import Any

from fucina.errors import BadSchema, ConstraintTooLarge

MAX_SCHEMA_BYTES = 1 << 20


def canonical_schema(schema: object) -> str:
    """Give a schema as compact JSON, its keys in the order they came in. Raises BadSchema and ConstraintTooLarge."""
    if isinstance(schema, str):
        if len(schema) > MAX_SCHEMA_BYTES:
            raise ConstraintTooLarge(f"a schema of {len(schema)} characters: at most {MAX_SCHEMA_BYTES} are taken")
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise BadSchema(f"not JSON: {error}") from error
    return json.dumps(schema, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def checked_schema(text: str) -> Any:
    """Give the schema as it goes to the engine for grammars. Raises BadSchema and ConstraintTooLarge."""
    return json.loads(text)
