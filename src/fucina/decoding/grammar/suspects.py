"""Finding the place in a schema that the engine refuses, since the engine's own words name none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fucina.decoding.grammar.checking import CheckedSchema, children, joined_keys
from fucina.decoding.grammar.trial import Trial
from fucina.errors import ConstraintTooLarge

_MAX_CPU_S, _MAX_TRIALS = 0.4, 200


def culprit(schema: CheckedSchema, trial: Callable[[Any], Trial], *, spent_s: float) -> tuple[str, str | None]:
    """Give the JSON path and the keyword of the innermost subschema that is refused by itself.

    Tries parts of the schema as long as all trials, `spent_s` included, took little time; the path may end too early
    otherwise, and the keyword be None.
    """
    n_trials = 0

    def fails(part: Any) -> bool:
        nonlocal n_trials, spent_s
        n_trials += 1
        if n_trials > _MAX_TRIALS or spent_s > _MAX_CPU_S:
            raise TimeoutError
        found = trial(part)
        spent_s += found.cpu_s
        return bool(found.reason)

    pointer, keyword = "", None
    try:
        while (inner := _refused_child(schema, pointer, fails)) is not None:
            pointer = inner
        keyword = _refused_keyword(schema.for_engine(pointer), fails)
    except (TimeoutError, ConstraintTooLarge):
        pass
    return schema.paths[pointer], keyword


def _refused_child(schema: CheckedSchema, pointer: str, fails: Callable[[Any], bool]) -> str | None:
    node = schema.nodes[pointer]
    if isinstance(node, dict):
        for keys, child in children(node):
            inner = pointer + joined_keys(keys)
            if child is not False and fails(schema.for_engine(inner)):
                return inner
    return None


def _refused_keyword(engine_schema: Any, fails: Callable[[Any], bool]) -> str | None:
    """The keyword without which the rest is taken."""
    if isinstance(engine_schema, dict):
        for keyword in engine_schema:
            if keyword not in ("type", "$defs"):
                rest = {name: value for name, value in engine_schema.items() if name != keyword}
                if not fails(rest):
                    return "format" if keyword == "allOf" and _is_format(engine_schema) else keyword
    return None


def _is_format(engine_schema: dict[str, Any]) -> bool:
    return all(set(part) == {"pattern"} for part in engine_schema["allOf"])
