"""A JSON schema that has been checked: every keyword in it is honoured, or says nothing about a value.

The form it takes for the engine for grammars holds no annotation, no name of a definition and no format: definitions
are numbered, formats are patterns, and a oneOf whose branches exclude each other is an anyOf.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from fucina.decoding.grammar.formats import FORMATS
from fucina.decoding.grammar.json_text import parsed_schema, path_into
from fucina.decoding.grammar.keywords import ANNOTATIONS, HONOURED, MAX_EXACT, REFUSED, fault_of, is_schema
from fucina.decoding.grammar.overlap import Overlap
from fucina.errors import BadSchema

_MAX_PATTERN_CHARACTERS = 4096
_MAX_BRANCHES = 256
#: Characters that the grammar never writes: those that JSON can only write as \u0000.
_UNWRITABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
#: Where an engine for Rust's regular expressions reads a class otherwise than JSON schema's does.
_CLASS = re.compile(r"\\.|\[\^?\]?((?:\\.|[^\]\\])*)\]", re.DOTALL)
_CLASS_OPERATION = re.compile(r"(?:\\.|[^\\])*?(?:\[|&&|--|~~)", re.DOTALL)

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_ONE = ("additionalProperties", "additionalItems", "items")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")


class CheckedSchema:
    """A schema none of whose keywords would be dropped. `nodes` maps a JSON pointer to the subschema there."""

    def __init__(self, text: str) -> None:
        """Check it. Raises BadSchema and ConstraintTooLarge."""
        self.root: Any = parsed_schema(text)
        self.nodes: dict[str, Any] = {}
        self.paths: dict[str, str] = {}
        self._anchors: dict[str, str] = {}
        self._id = self.root.get("$id", "") if isinstance(self.root, dict) else ""
        if self.root is False:
            raise BadSchema("no value fits false")
        self._visit(self.root, "", "$")
        self._overlap = Overlap(self._node_at)
        for pointer, node in self.nodes.items():
            if isinstance(node, dict):
                self._check_together(node, self.paths[pointer])

    def target(self, reference: str) -> str | None:
        """Give the pointer that a $ref leads to, or None where there is no schema."""
        if self._id and reference.startswith(self._id):
            reference = reference[len(self._id) :] or "#"
        if not reference.startswith("#"):
            return None
        fragment = unquote(reference[1:])
        pointer = self._anchors.get(fragment) if fragment and not fragment.startswith("/") else fragment
        return pointer if pointer in self.nodes else None

    def for_engine(self, pointer: str = "") -> Any:
        """Give the subschema at a pointer as a whole schema in the engine's form."""
        numbers: dict[str, int] = {}
        root = self._emit(self.nodes[pointer], numbers)
        definitions: dict[str, Any] = {}
        while len(definitions) < len(numbers):
            for target in list(numbers)[len(definitions) :]:
                definitions[f"d{numbers[target]}"] = self._emit(self.nodes[target], numbers)
        return {**root, "$defs": definitions} if definitions else root

    def _node_at(self, reference: str) -> Any:
        target = self.target(reference)
        return True if target is None else self.nodes[target]

    def _visit(self, node: object, pointer: str, path: str) -> None:
        """Check each keyword by itself, and remember where schemas are."""
        if not is_schema(node):
            raise BadSchema("a schema is an object, true or false", path=path)
        self.nodes[pointer], self.paths[pointer] = node, path
        if not isinstance(node, dict):
            return
        for keyword, value in node.items():
            self._check_keyword(keyword, value, pointer, path)
        for keys, child in children(node):
            self._visit(child, pointer + joined_keys(keys), _path_of(path, keys))

    def _check_keyword(self, keyword: str, value: object, pointer: str, path: str) -> None:
        if keyword in REFUSED and not (keyword in ("uniqueItems", "nullable") and value is False):
            raise BadSchema(f"cannot be honoured: {REFUSED[keyword]}", path=path, keyword=keyword)
        if keyword == "$anchor" and isinstance(value, str):
            self._anchors[value] = pointer
        if keyword == "$id" and pointer:
            raise BadSchema("only the whole schema may have one", path=path, keyword=keyword)
        if keyword in HONOURED:
            fault = fault_of(keyword, value)
            if fault:
                raise BadSchema(fault, path=path, keyword=keyword)
        elif keyword not in ANNOTATIONS and keyword not in REFUSED and not keyword.startswith("x-"):
            raise BadSchema(
                "an unknown keyword; nothing asked for is ignored, so take it out", path=path, keyword=keyword
            )

    def _check_together(self, node: dict[str, Any], path: str) -> None:
        """Check what depends on several keywords, or on the schemas that a reference leads to."""
        for keyword in ("const", "enum"):
            if keyword in node:
                _check_constants(node[keyword], path, keyword)
        for keyword in ("properties", "required"):
            for name in node.get(keyword, ()):
                _check_writable(name, path, keyword)
        for pattern in (*([node["pattern"]] if "pattern" in node else []), *node.get("patternProperties", ())):
            _check_pattern(pattern, path, "pattern" if pattern == node.get("pattern") else "patternProperties")
        if "$ref" in node and self.target(node["$ref"]) is None:
            raise BadSchema(f"{node['$ref'][:200]!r} leads to no schema in this document", path=path, keyword="$ref")
        if isinstance(node.get("items"), list) and "prefixItems" in node:
            raise BadSchema("a list belongs into prefixItems or into items, not into both", path=path, keyword="items")
        if "additionalItems" in node and not isinstance(node.get("items"), list):
            raise BadSchema("it says nothing unless items is a list", path=path, keyword="additionalItems")
        if node.get("minProperties", 0) > max(1, len(node.get("required", ()))) and not _is_closed(node):
            what = "more than are required cannot be counted: a name may come twice; set additionalProperties to false"
            raise BadSchema(what, path=path, keyword="minProperties")
        if "oneOf" in node:
            self._check_branches(node["oneOf"], path)

    def _check_branches(self, branches: list[Any], path: str) -> None:
        if len(branches) > _MAX_BRANCHES:
            raise BadSchema(f"more than {_MAX_BRANCHES} branches; use anyOf", path=path, keyword="oneOf")
        for i, branch in enumerate(branches):
            for k in range(i):
                if not self._overlap.excludes(branches[k], branch):
                    what = (
                        f"a value might fit both branch {k} and branch {i}; use anyOf, or a const that tells them apart"
                    )
                    raise BadSchema(what, path=path, keyword="oneOf")

    def _emit(self, node: Any, numbers: dict[str, int]) -> Any:
        if not isinstance(node, dict):
            return node
        out: dict[str, Any] = {}
        also: list[Any] = []
        for keyword, value in node.items():
            if keyword not in HONOURED or keyword in ("$defs", "definitions", "additionalItems"):
                continue
            if keyword == "$ref":
                target = self.target(value)
                assert target is not None
                out["$ref"] = f"#/$defs/d{numbers.setdefault(target, len(numbers))}"
            elif keyword == "format":
                also.append({"pattern": f"^(?:{FORMATS[value]})$"})
            elif keyword == "oneOf":
                also.append({"anyOf": [self._emit(branch, numbers) for branch in value]})
            elif keyword == "items" and isinstance(value, list):
                out["prefixItems"] = [self._emit(item, numbers) for item in value]
                out["items"] = self._emit(node.get("additionalItems", True), numbers)
            elif keyword == "minProperties" and value <= len(node.get("required", ())):
                continue
            elif keyword in _MAPS:
                out[keyword] = {name: self._emit(inner, numbers) for name, inner in value.items()}
            elif keyword in _LISTS and isinstance(value, list):
                out[keyword] = [self._emit(inner, numbers) for inner in value]
            elif keyword in _ONE:
                out[keyword] = self._emit(value, numbers)
            else:
                out[keyword] = int(value) if HONOURED[keyword] == "count" else value
        if also:
            out["allOf"] = [*out.get("allOf", []), *also]
        return out


def children(node: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Give the subschemas right below one, each with the keys that lead to it."""
    for keyword, value in node.items():
        if keyword in _MAPS and isinstance(value, dict):
            yield from (((keyword, name), child) for name, child in value.items())
        elif keyword in _LISTS and isinstance(value, list):
            yield from (((keyword, i), child) for i, child in enumerate(value))
        elif keyword in _ONE:
            yield (keyword,), value


def _is_closed(node: dict[str, Any]) -> bool:
    return node.get("additionalProperties") is False and not node.get("patternProperties")


def _check_constants(value: Any, path: str, keyword: str) -> None:
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += [*value, *value.values()]
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, str):
            _check_writable(value, path, keyword)
        elif isinstance(value, int | float) and abs(value) > MAX_EXACT:
            raise BadSchema(f"beyond {MAX_EXACT} numbers are not exact", path=path, keyword=keyword)


def _check_writable(text: str, path: str, keyword: str) -> None:
    found = _UNWRITABLE.search(text)
    if found:
        what = f"the control character U+{ord(found[0]):04X} is never written"
        raise BadSchema(what, path=path, keyword=keyword)


def _check_pattern(pattern: str, path: str, keyword: str) -> None:
    if len(pattern) > _MAX_PATTERN_CHARACTERS:
        raise BadSchema(f"at most {_MAX_PATTERN_CHARACTERS} characters are taken", path=path, keyword=keyword)
    for found in _CLASS.finditer(pattern):
        if found[1] and _CLASS_OPERATION.match(found[1]):
            what = "[, &&, -- and ~~ within a class mean different things to different engines; escape them"
            raise BadSchema(what, path=path, keyword=keyword)


def _path_of(path: str, keys: tuple[str | int, ...]) -> str:
    for key in keys:
        path = path_into(path, key)
    return path


def joined_keys(keys: tuple[str | int, ...]) -> str:
    """Write keys as the end of a JSON pointer."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)
