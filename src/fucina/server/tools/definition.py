"""The functions that a client offers to a model, and which of them it may, must or must not call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from fucina.decoding.grammar.schema import canonical_schema
from fucina.errors import ConfigError, ConstraintError

MAX_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

#: auto: the model decides; none: it may not; required: it must call some; named: it must call the one.
Mode = Literal["auto", "none", "required", "named"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function: its name, what it is for, and a JSON schema of its arguments. None takes no arguments.

    `strict`: calls must fit the schema even where the model decides whether it calls. `path` and `parameters_path` tell
    where a request gave it and its schema, for errors. Raises ConfigError.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, object] | None = None
    strict: bool = False
    path: str = field(default="tools[].function", compare=False)
    parameters_path: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            expected = "1 to 64 letters from a to z or A to Z, digits, _ or -"
            raise ConfigError(f"{self.path}.name", got=self.name, expected=expected)
        if self.description is not None and not isinstance(self.description, str):
            raise ConfigError(f"{self.path}.description", got=self.description, expected="text")
        if not isinstance(self.strict, bool):
            raise ConfigError(f"{self.path}.strict", got=self.strict, expected="true or false")
        if not self.parameters_path:
            object.__setattr__(self, "parameters_path", f"{self.path}.parameters")
        if self.parameters is not None:
            self._check_parameters(self.parameters)

    def _check_parameters(self, parameters: object) -> None:
        if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
            raise ConfigError(self.parameters_path, got=parameters, expected="a JSON schema of type object")
        try:
            canonical_schema(parameters)
        except ConstraintError as error:
            raise ConfigError(self.parameters_path, got="a schema", expected=f"another one: {error}") from error

    def described(self) -> dict[str, object]:
        """Give the description that chat templates take."""
        function: dict[str, object] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = self.parameters if self.parameters is not None else {"type": "object"}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools an answer may or must call. `name` belongs to the mode named only. Raises ConfigError."""

    mode: Mode = "auto"
    name: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ConfigError("tool_choice", got=self.mode, expected=f"one of {', '.join(get_args(Mode))}")
        if (self.mode == "named") != isinstance(self.name, str):
            raise ConfigError("tool_choice", got=self.name, expected="a name where one is asked for, and only there")

    @classmethod
    def named(cls, name: str) -> ToolChoice:
        """Ask for a call of this one."""
        return cls("named", name)

    @property
    def is_forced(self) -> bool:
        """Whether the answer must be a call."""
        return self.mode in ("required", "named")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """All that a request says on tools. `parallel`: one answer may hold several calls. Raises ConfigError."""

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = ToolChoice()
    parallel: bool = True

    def __post_init__(self) -> None:
        if len(self.tools) > MAX_TOOLS:
            raise ConfigError("tools", got=f"{len(self.tools)} of them", expected=f"at most {MAX_TOOLS}")
        known: set[str] = set()
        for tool in self.tools:
            if tool.name in known:
                raise ConfigError(f"{tool.path}.name", got=tool.name, expected="another name: it is taken already")
            known.add(tool.name)
        if self.choice.mode == "named" and self.choice.name not in known:
            expected = f"the name of one of the tools: {', '.join(sorted(known)) or 'there are none'}"
            raise ConfigError("tool_choice", got=self.choice.name, expected=expected)
        if self.choice.is_forced and not self.tools:
            raise ConfigError("tool_choice", got=self.choice.mode, expected="tools to choose from")

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model is told of."""
        return () if self.choice.mode == "none" else self.tools

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that the answer may call."""
        if self.choice.mode == "named":
            return tuple(tool for tool in self.tools if tool.name == self.choice.name)
        return self.offered

    @property
    def is_guarded(self) -> bool:
        """Whether a grammar must hold the answer: a call is forced, or some tool is strict."""
        return self.choice.is_forced or any(tool.strict for tool in self.callable)
