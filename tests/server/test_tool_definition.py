"""What a client says on tools, checked before anything is computed."""

from __future__ import annotations

from typing import Any

import pytest

from fucina.errors import ConfigError
from fucina.server.tools.definition import Tool, ToolChoice, ToolUse
from fucina.server.tools.hermes import HermesFormat

PATH = "tools[3].function"


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 65, "a.b", None, 3, "a\n"])
def test_a_bad_name_is_refused_by_its_place(name: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Tool(name, path=PATH)
    assert refused.value.option == "tools[3].function.name"


@pytest.mark.parametrize(
    "parameters", [[], "{}", {"type": "string"}, {"type": ["object", "null"]}, {"type": "object", "default": {1: 2}}]
)
def test_parameters_are_a_schema_of_objects(parameters: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Tool("f", parameters=parameters, path="tools[0]", parameters_path="tools[0].input_schema")
    assert refused.value.option == "tools[0].input_schema"


def test_names_are_unique_and_few() -> None:
    with pytest.raises(ConfigError) as refused:
        ToolUse((Tool("f", path="tools[0].function"), Tool("f", path="tools[1].function")))
    assert refused.value.option == "tools[1].function.name"
    with pytest.raises(ConfigError, match="at most 128"):
        ToolUse(tuple(Tool(f"f{i}") for i in range(129)))
    assert len(ToolUse(tuple(Tool(f"f{i}") for i in range(128))).callable) == 128


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice.named("f")])
def test_a_call_cannot_be_forced_without_its_tool(choice: ToolChoice) -> None:
    with pytest.raises(ConfigError) as refused:
        ToolUse((), choice)
    assert refused.value.option == "tool_choice"


@pytest.mark.parametrize("given", [("some", None), ("named", None), ("auto", "f"), ("named", 3)])
def test_a_choice_is_one_of_four(given: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        ToolChoice(*given)
    assert refused.value.option == "tool_choice"


def test_what_is_offered_and_what_may_be_called() -> None:
    f, g = Tool("f"), Tool("g", strict=True)
    assert ToolUse((f, g)).callable == (f, g)
    assert ToolUse((f, g), ToolChoice.named("f")).offered == (f, g)
    assert ToolUse((f, g), ToolChoice.named("f")).callable == (f,)
    assert ToolUse((f, g), ToolChoice("none")).offered == ()
    assert not ToolUse((f,)).is_guarded
    assert ToolUse((f, g)).is_guarded


def test_a_keyword_that_cannot_be_enforced_is_refused_where_it_stands_and_only_where_it_would_be() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}
    lax, strict = Tool("f", parameters=schema, path=PATH), Tool("f", parameters=schema, path=PATH, strict=True)
    assert HermesFormat().constraint(ToolUse((lax,))) is None
    for use in (ToolUse((lax,), ToolChoice("required")), ToolUse((strict,))):
        with pytest.raises(ConfigError) as refused:
            HermesFormat().constraint(use)
        assert refused.value.option == "tools[3].function.parameters.properties.x.uniqueItems"
    assert HermesFormat().constraint(ToolUse((lax, Tool("g")), ToolChoice.named("g"))) is not None
