"""JSON schemas as texts: read strictly, under limits, with the keys in the order they came in."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from fucina.errors import BadSchema, ConstraintTooLarge

#: Characters of a schema's text, levels of brackets, and values in it.
MAX_SCHEMA_CHARACTERS, MAX_DEPTH, MAX_NODES = 1 << 20, 100, 100_000


def canonical_schema(schema: object) -> str:
    """Give a schema (a mapping, JSON text, or True) as compact JSON. Raises BadSchema and ConstraintTooLarge.

    Limits: `MAX_SCHEMA_CHARACTERS`, `MAX_DEPTH`, `MAX_NODES`. A schema beyond them is refused before it is copied.
    """
    if isinstance(schema, str):
        schema = parsed_schema(schema)
    text = "".join(_written(schema))
    if len(text) > MAX_SCHEMA_CHARACTERS:
        raise _too_long(len(text))
    return text


def parsed_schema(text: str) -> Any:
    """Read JSON text strictly: no name twice, no NaN, no infinity. Raises BadSchema and ConstraintTooLarge."""
    if len(text) > MAX_SCHEMA_CHARACTERS:
        raise _too_long(len(text))
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise BadSchema(f"it is no JSON: {error}") from error


def path_into(path: str, key: str | int) -> str:
    """Go on in a JSON path: $.properties.name, or $.properties["a b"] where the name needs quotes."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    shown = key if len(key) <= 64 else f"{key[:64]}..."
    return f"{path}.{shown}" if shown.replace("$", "").isidentifier() else f"{path}[{json.dumps(shown)}]"


def _written(schema: object) -> Iterator[str]:
    """The pieces of the compact text. Walks with a stack of its own, and stops at the first limit it meets."""
    # ("text", literal) or ("value", value, path): paths are built only where they are shown
    stack: list[tuple[str | None, object, int, _Path | None]] = [(None, schema, 0, None)]
    n_nodes = n_characters = 0
    while stack:
        literal, value, depth, path = stack.pop()
        if literal is None:
            n_nodes += 1
            if n_nodes > MAX_NODES:
                raise ConstraintTooLarge(f"a schema of more than {MAX_NODES} values")
            if isinstance(value, Mapping | list | tuple):
                if depth >= MAX_DEPTH:
                    raise _too_deep()
                if len(value) + n_nodes > MAX_NODES:
                    raise ConstraintTooLarge(f"a schema of more than {MAX_NODES} values")
                stack.extend(reversed(_parts(value, depth + 1, path)))
                continue
            literal = _scalar(value, path)
        n_characters += len(literal)
        if n_characters > MAX_SCHEMA_CHARACTERS:
            raise _too_long(n_characters)
        yield literal


_Path = tuple[Any, "str | int"]


def _parts(value: Any, depth: int, path: _Path | None) -> list[tuple[str | None, object, int, _Path | None]]:
    parts: list[tuple[str | None, object, int, _Path | None]] = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise BadSchema(f"the name {key!r} is no text"[:200], path=_shown(path))
            comma = "," if parts else ""
            parts += [(f"{comma}{_scalar(key, path)}:", None, 0, None), (None, inner, depth, (path, key))]
        return [("{", None, 0, None), *parts, ("}", None, 0, None)]
    for i, inner in enumerate(value):
        parts += [*([(",", None, 0, None)] if i else []), (None, inner, depth, (path, i))]
    return [("[", None, 0, None), *parts, ("]", None, 0, None)]


def _scalar(value: object, path: _Path | None) -> str:
    if isinstance(value, str):
        if len(value) > MAX_SCHEMA_CHARACTERS:
            raise _too_long(len(value))
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadSchema("it holds a lone surrogate, which is no Unicode text", path=_shown(path)) from None
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        if value.bit_length() > 64:
            raise BadSchema("an integer of more than 64 bits is not exact in JSON", path=_shown(path))
        return json.dumps(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadSchema(f"{value} is no number of JSON", path=_shown(path))
        return json.dumps(float(value))
    raise BadSchema(f"a {type(value).__name__} is no value of JSON", path=_shown(path))


def _shown(path: _Path | None) -> str:
    keys: list[str | int] = []
    while path is not None:
        path, key = path
        keys.append(key)
    shown = "$"
    for key in reversed(keys):
        shown = path_into(shown, key)
    return shown


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise BadSchema(f"the name {twice[:64]!r} comes twice in one object")
    return found


def _refuse_constant(name: str) -> None:
    raise BadSchema(f"{name} is no number of JSON")


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise BadSchema("an integer of more than 64 bits is not exact in JSON")
    return int(digits)


def _too_long(n_characters: int) -> ConstraintTooLarge:
    return ConstraintTooLarge(f"a schema of {n_characters} characters: at most {MAX_SCHEMA_CHARACTERS} are taken")


def _too_deep() -> ConstraintTooLarge:
    return ConstraintTooLarge(f"a schema of more than {MAX_DEPTH} levels")
