"""Which values of a schema may never end: greedy decoding can stay in them until its budget is spent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fucina.decoding.grammar.checking import CheckedSchema, children, joined_keys
from fucina.decoding.grammar.formats import ENDLESS_FORMATS

_MAX_PATHS, _MAX_VALUES, _MAX_HOPS = 1000, 20_000, 16
#: In a pattern without classes and escapes, a quantifier without a highest count.
_ENDLESS_QUANTIFIER = re.compile(r"[*+]|\{[0-9]+,\}")
_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_BRANCHES = ("anyOf", "oneOf")

Node = dict[str, Any]


def endless_paths(schema: CheckedSchema) -> tuple[str, ...]:
    """Tell the JSON paths, at most `_MAX_PATHS`, of values that may become ever longer or nest ever deeper."""
    found: dict[str, None] = {}
    queue: list[tuple[str, tuple[Node, ...]]] = [("", ())]
    seen = {""}
    while queue and len(found) < _MAX_PATHS and len(seen) < _MAX_VALUES:
        pointer, beside = queue.pop(0)
        parts = list(_parts(schema, pointer))
        facets = (*beside, *(node for _, node in parts))
        branches = [
            f"{at}/{keyword}/{i}"
            for at, node in parts
            for keyword in _BRANCHES
            for i in range(len(node.get(keyword, ())))
        ]
        if not branches and schema.nodes[pointer] is not False and _is_endless(facets):
            found[schema.paths[pointer]] = None
        inner = [f"{at}{joined_keys(keys)}" for at, node in parts for keys, _ in children(node) if _holds_value(keys)]
        for target, passed in (*((branch, facets) for branch in branches), *((value, ()) for value in inner)):
            if target not in seen:
                seen.add(target)
                queue.append((target, passed))
    found.update((schema.paths[pointer], None) for pointer in _recursive(schema))
    return tuple(found)[:_MAX_PATHS]


def _parts(schema: CheckedSchema, pointer: str) -> Iterator[tuple[str, Node]]:
    """The schemas that one value must fit all: the one at `pointer`, what it refers to, and their allOf."""
    pending, hops = [pointer], 0
    while pending and hops < _MAX_HOPS:
        hops += 1
        at = pending.pop()
        node = schema.nodes[at]
        if isinstance(node, dict):
            yield at, node
            pending += [f"{at}/allOf/{i}" for i in range(len(node.get("allOf", ())))]
            if "$ref" in node and (target := schema.target(node["$ref"])) is not None:
                pending.append(target)


def _is_endless(facets: tuple[Node, ...]) -> bool:
    if any("const" in node or "enum" in node for node in facets):
        return False
    kinds = {"null", "boolean", "number", "string", "array", "object"}
    for node in facets:
        if "type" in node:
            named = node["type"] if isinstance(node["type"], list) else [node["type"]]
            kinds &= {"number" if name == "integer" else name for name in named}
    return any(
        (
            "string" in kinds and not any(_ends_string(node) for node in facets),
            "number" in kinds and not _ends_number(facets),
            "array" in kinds and not any("maxItems" in node or _has_no_more_items(node) for node in facets),
            "object" in kinds and not any(_ends_object(node) for node in facets),
        )
    )


def _ends_string(node: Node) -> bool:
    if "maxLength" in node or node.get("format", "uri") not in ENDLESS_FORMATS:
        return True
    pattern = node.get("pattern", "")
    rest = _ATOM.sub("", pattern)
    return (
        pattern.startswith("^")
        and pattern.endswith("$")
        and not pattern.endswith("\\$")
        and "|" not in rest  # ^a|b$ is anchored on one side each
        and not _ENDLESS_QUANTIFIER.search(rest)
    )


def _ends_number(facets: tuple[Node, ...]) -> bool:
    """Between two bounds whole numbers and multiples have an end; fractions may have ever more digits."""
    keys = {keyword for node in facets for keyword in node}
    whole = "multipleOf" in keys or any("integer" in node.get("type", ()) for node in facets)
    return whole and bool(keys & {"minimum", "exclusiveMinimum"}) and bool(keys & {"maximum", "exclusiveMaximum"})


def _has_no_more_items(node: Node) -> bool:
    return node.get("additionalItems" if isinstance(node.get("items"), list) else "items") is False


def _ends_object(node: Node) -> bool:
    return "maxProperties" in node or (node.get("additionalProperties") is False and not node.get("patternProperties"))


def _recursive(schema: CheckedSchema) -> Iterator[str]:
    """Pointers of schemas that are part of themselves, one for each way back."""
    state: dict[str, bool] = {}  # False: on the way down, True: done
    stack = [("", iter(_below(schema, "")))]
    state[""] = False
    while stack:
        pointer, rest = stack[-1]
        for target in rest:
            if target not in state:
                state[target] = False
                stack.append((target, iter(_below(schema, target))))
                break
            if not state[target]:
                yield target
        else:
            state[pointer] = True
            stack.pop()


def _below(schema: CheckedSchema, pointer: str) -> list[str]:
    node = schema.nodes[pointer]
    if not isinstance(node, dict):
        return []
    targets = [f"{pointer}{joined_keys(keys)}" for keys, _ in children(node) if keys[0] not in ("$defs", "definitions")]
    if "$ref" in node and (target := schema.target(node["$ref"])) is not None:
        targets.append(target)
    return targets


def _holds_value(keys: tuple[str | int, ...]) -> bool:
    return keys[0] not in ("$defs", "definitions", "allOf", *_BRANCHES)
