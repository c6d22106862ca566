"""Fields on choosing tokens, and on the form of an answer, that several dialects share."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from fucina.decoding.params import SamplingParams
from fucina.server.wire.fields import Penalty, Probability, Seed, Share, Strength, Temperature, WirePart

#: A bias for each token id.
Bias = Annotated[
    dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]],
    Field(max_length=1024),
]
StopText = Annotated[str, Field(min_length=1, max_length=4096)]
Stops = StopText | Annotated[list[StopText], Field(max_length=4)]
TopK = Annotated[int, Field(ge=-1, le=2**31 - 1)]
Window = Annotated[int, Field(ge=-1, le=2**31 - 1)]
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Salt = Annotated[str, Field(max_length=256)]
#: An object whose content is checked where it is used.
Schema = dict[str, Any]


class SamplingFields(BaseModel):
    """How to choose tokens; the names of OpenAI first, then those of vLLM and llama.cpp."""

    temperature: Annotated[Temperature | None, Field(description="0 always takes the likeliest token.")] = None
    top_p: Probability | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: Bias | None = None
    seed: Annotated[Seed | None, Field(description="The same seed gives the same answer, whatever else runs.")] = None
    stop: Stops | None = None
    top_k: Annotated[TopK | None, Field(description="0 and -1 keep all.")] = None
    min_p: Share | None = None
    repetition_penalty: Strength | None = None
    repeat_penalty: Annotated[Strength | None, Field(description="As repetition_penalty.")] = None
    repeat_last_n: Annotated[Window | None, Field(description="Tokens that penalties look at; -1: all.")] = None
    min_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] | None = None
    ignore_eos: bool | None = None
    cache_salt: Annotated[Salt | None, Field(description="Who has the same may share what is cached and learned.")] = (
        None
    )

    def params(self, defaults: SamplingParams, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """What the engine is told, with the server's defaults for what is not said. Raises ConfigError."""
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "seed": self.seed,
            "min_p": self.min_p,
            "repeat_penalty": self.repetition_penalty if self.repetition_penalty is not None else self.repeat_penalty,
            "ignore_eos": self.ignore_eos,
            "max_tokens": max_tokens,
            "logprobs": logprobs,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        if self.top_k is not None:
            changes["top_k"] = self.top_k if self.top_k > 0 else None
        if self.repeat_last_n is not None:
            changes["penalty_window"] = self.repeat_last_n if self.repeat_last_n >= 0 else None
        if self.stop is not None:
            changes["stop"] = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if self.stop_token_ids is not None:
            changes["stop_token_ids"] = frozenset(self.stop_token_ids)
        return replace(defaults, **changes)

    def bias(self) -> dict[int, float] | None:
        """The bias with numbers for its ids."""
        return {int(token): strength for token, strength in self.logit_bias.items()} if self.logit_bias else None


class NamedSchema(WirePart):
    """A schema and what it is called."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    schema_: Schema | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextFormat(WirePart):
    """No form."""

    type: Literal["text"]


class AnyJsonFormat(WirePart):
    """Some JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(WirePart):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[TextFormat | AnyJsonFormat | JsonSchemaFormat, Field(discriminator="type")]


class StructuredOutputs(WirePart):
    """A form as vLLM spells it; one of them."""

    json_: Schema | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class TypedGrammar(WirePart):
    """A form as mistral.rs spells it."""

    type: Literal["regex", "json_schema", "lark"]
    value: Schema | str


class FormFields(BaseModel):
    """The form of an answer, in the spellings there are; at most one of them."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    grammar: Annotated[TypedGrammar | str | None, Field(description="GBNF or Lark as text, or mistral.rs' object.")] = (
        None
    )
    regex: str | None = None
    lark: str | None = None
