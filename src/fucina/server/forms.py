"""From the many spellings of an answer's form to the one constraint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from fucina.decoding.grammar.constraint import MAX_LARK_CHARACTERS, Constraint
from fucina.errors import ConstraintError
from fucina.server.failures import ApiError
from fucina.server.wire.sampling import (
    AnyJsonFormat,
    FormFields,
    JsonSchemaFormat,
    ResponseFormat,
    StructuredOutputs,
    TypedGrammar,
)


def wanted_form(fields: FormFields) -> tuple[str, Constraint] | None:
    """The form that is asked for, and the field it stands in. Raises ApiError for several, and for what cannot be."""
    found: list[tuple[str, Callable[[], Constraint | None]]] = []
    response, structured, grammar = fields.response_format, fields.structured_outputs, fields.grammar
    regex, lark = fields.regex, fields.lark
    if response is not None:
        found.append(("response_format", lambda: _response_format(response)))
    if structured is not None:
        found.append(("structured_outputs", lambda: _structured(structured)))
    if grammar is not None:
        found.append(("grammar", lambda: _grammar(grammar)))
    if regex is not None:
        found.append(("regex", lambda: Constraint.regex(regex)))
    if lark is not None:
        found.append(("lark", lambda: Constraint.lark(lark)))
    made = [(param, honored(param, make)) for param, make in found]
    forms = [(param, form) for param, form in made if form is not None]
    if len(forms) > 1:
        message = f"'{forms[0][0]}' and '{forms[1][0]}' both ask for a form: give one of them"
        raise ApiError(400, message, code="invalid_value", param=forms[1][0])
    return forms[0] if forms else None


def honored(param: str, make: Callable[[], Constraint | None]) -> Constraint | None:
    """Make a constraint; what it cannot honour is told with the field at fault. Raises ApiError."""
    try:
        return make()
    except ConstraintError as error:
        raise ApiError(400, str(error), code="invalid_constraint", param=param) from error


def _response_format(form: ResponseFormat) -> Constraint | None:
    if isinstance(form, AnyJsonFormat):
        return Constraint.any_json()
    if isinstance(form, JsonSchemaFormat):
        schema = form.json_schema.schema_
        return Constraint.any_json() if schema is None else Constraint.json_schema(schema)
    return None


def _structured(form: StructuredOutputs) -> Constraint | None:
    makers: dict[str, Callable[[Any], Constraint | None]] = {
        "json": Constraint.json_schema,
        "regex": Constraint.regex,
        "choice": lambda choices: Constraint.regex("|".join(re.escape(choice) for choice in choices)),
        "grammar": _grammar,
        "json_object": lambda wanted: Constraint.any_json() if wanted else None,
    }
    given = {name: getattr(form, "json_" if name == "json" else name) for name in makers}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        message = f"structured_outputs has both '{named[0]}' and '{named[1]}': give one of them"
        raise ApiError(400, message, code="invalid_value", param="structured_outputs")
    return makers[named[0]](given[named[0]]) if named else None


def _grammar(grammar: TypedGrammar | str) -> Constraint:
    if isinstance(grammar, str):
        return Constraint.lark(_lark_of(grammar))
    if grammar.type == "json_schema":
        return Constraint.json_schema(grammar.value)
    text = grammar.value if isinstance(grammar.value, str) else json.dumps(grammar.value)
    return Constraint.regex(text) if grammar.type == "regex" else Constraint.lark(text)


def _lark_of(gbnf: str) -> str:
    """Lark for llama.cpp's notation of grammars; what is Lark already stays as it is. Raises ApiError."""
    from llguidance.gbnf_to_lark import any_to_lark

    if len(gbnf) > MAX_LARK_CHARACTERS:
        message = f"a grammar of {len(gbnf)} characters: at most {MAX_LARK_CHARACTERS} are taken"
        raise ApiError(400, message, code="invalid_constraint", param="grammar")
    try:
        lark: str = any_to_lark(gbnf)
    except Exception as error:  # the converter raises all sorts of them, Exception itself among them
        raise ApiError(400, f"the grammar is no GBNF: {error}", code="invalid_constraint", param="grammar") from error
    # the converter's first line sets options of the engine, which requests may not
    return "\n".join(line for line in lark.splitlines() if not line.startswith("%llguidance"))
