"""JSON schemas at the door: read, checked, and asked which of their values may never end."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fucina.decoding.grammar.checking import CheckedSchema
from fucina.decoding.grammar.endless import endless_paths
from fucina.decoding.grammar.json_text import canonical_schema

if TYPE_CHECKING:
    from fucina.decoding.grammar.constraint import Constraint

__all__ = ["canonical_schema", "checked_schema", "unbounded_paths"]


@lru_cache(maxsize=4)  # the door, the warning and the compiler ask for the same one in a row
def checked_schema(text: str) -> CheckedSchema:
    """Check a schema in compact form. Raises BadSchema and ConstraintTooLarge."""
    return CheckedSchema(text)


def unbounded_paths(constraint: Constraint) -> tuple[str, ...]:
    """Tell the JSON paths of values in a schema that may never end; none for other constraints.

    Those are strings without maxLength, enum, const or a pattern or format with an end; numbers, but for whole ones and
    multiples between two bounds; arrays without maxItems; objects open to more properties; and schemas that are part
    of themselves.
    """
    return endless_paths(checked_schema(constraint.text)) if constraint.kind == "json_schema" else ()
