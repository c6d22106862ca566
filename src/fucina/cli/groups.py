"""Options that go together: a dataclass has them and their defaults, and a verb asks for it whole.

Typer knows functions with one parameter an option; `grouped` makes such a function of one whose parameters are groups.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from fucina.cli import options
from fucina.cli.given import given_constraint
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen."""

    temp: options.Temperature = 0.0
    top_k: options.TopK = None
    top_p: options.TopP = 1.0
    min_p: options.MinP = 0.0
    repeat_penalty: options.RepeatPenalty = 1.0
    seed: options.Seed = None
    stop: options.Stop = None

    def params(self, max_tokens: int | None, logprobs: int | None = None) -> SamplingParams:
        """The same for the engine. Raises ConfigError."""
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=self.temp,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repeat_penalty=self.repeat_penalty,
            seed=self.seed,
            stop=tuple(self.stop or ()),
            logprobs=logprobs,
        )


@dataclass(frozen=True, slots=True)
class Form:
    """The form that answers must have."""

    json_schema: options.JsonSchema = None
    regex: options.Regex = None
    lark: options.Lark = None

    def constraint(self) -> Constraint | None:
        """The same for the engine. Raises ConfigError, and ConstraintError for what the form says."""
        return given_constraint(self.json_schema, self.regex, self.lark)


@dataclass(frozen=True, slots=True)
class Computing:
    """How to compute: options of `fucina.load`, and named as there."""

    threads: options.Threads = None
    tier: options.Tier = None
    backend: options.Backend = None
    context: options.Context = None
    kv_format: options.KvFormat = "f16"
    prefill_chunk: options.PrefillChunk = 512
    repack: options.Repack = None


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where keys and values are kept: options of `fucina.load`, and named as there."""

    kv_memory: options.KvMemory = None
    kv_cache_dir: options.KvCacheDir = None
    kv_disk: options.KvDisk = "8G"


@dataclass(frozen=True, slots=True)
class Experts:
    """How those of a mixture are held, and which are left out: options of `fucina.load`, and named as there."""

    moe_stream: options.MoeStream = None
    moe_cache: options.MoeCache = None
    moe_pin: options.MoePin = None
    moe_learn: options.MoeLearn = True
    moe_pilot: options.MoePilot = None
    moe_expert_top_p: options.MoeExpertTopP = None


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` a parameter for every option of its groups, in their place; it gets the groups made of them."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _options_of(groups[parameter.name])
        else:
            parameters.append(_keyword(parameter.name, hints[parameter.name], parameter.default))

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        made = {
            name: group(**{one.name: given.pop(one.name) for one in fields(group)}) for name, group in groups.items()
        }
        command(**given, **made)

    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _options_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_keyword(one.name, hints[one.name], one.default) for one in fields(group)]


def _keyword(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
