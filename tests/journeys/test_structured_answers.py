"""Real models answer in the form that was asked for: JSON that validates, its keys in order, markers as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pydantic
import pytest

import fucina
from fucina import Constraint, Model, SamplingParams

pytestmark = pytest.mark.model

GREEDY = SamplingParams(max_tokens=400)
SAMPLED = SamplingParams(max_tokens=400, temperature=1.0, seed=17)

TREE: dict[str, Any] = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 12},
                "children": {"type": "array", "items": {"$ref": "#/$defs/leaf"}, "maxItems": 2},
            },
            "required": ["name", "children"],
            "additionalProperties": False,
        },
        "leaf": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "$ref": "#/$defs/node",
}


def an_object(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


#: Every one of these is bounded, so every answer can and must come to its end.
SCHEMAS: dict[str, dict[str, Any]] = {
    "keys in the order of the client": an_object(
        zeta={"type": "string", "maxLength": 20}, alpha={"type": "boolean"}, mid={"type": "null"}
    ),
    "numbers within bounds": an_object(
        age={"type": "integer", "minimum": 0, "maximum": 130}, even={"type": "integer", "minimum": 10, "maximum": 20}
    ),
    "enumeration of a thousand": an_object(word={"enum": [f"word-{i}" for i in range(1000)]}),
    "constants": an_object(kind={"const": "cat"}, legs={"const": 4}, deep={"const": {"b": [1, None], "a": True}}),
    "nested": an_object(who=an_object(first={"type": "string", "maxLength": 9}, born=an_object(year={"enum": [1, 2]}))),
    "list": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 2, "maxItems": 4},
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "boolean"}, {"type": "string", "maxLength": 8}],
        "items": False,
        "minItems": 2,
    },
    "either": {"anyOf": [an_object(a={"type": "boolean"}), an_object(b={"type": "string", "maxLength": 10})]},
    "pattern": an_object(code={"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"}),
    "format": an_object(day={"type": "string", "format": "date"}, at={"type": "string", "format": "time"}),
    "references": TREE,
}


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    with fucina.load(request.getfixturevalue(f"{request.param}_path"), context=1024) as model:
        model.constraints.prepare()
        yield model


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_every_answer_fits_its_schema(model: Model, params: SamplingParams) -> None:
    prompts = [f"Here is a JSON document about a cat ({name}):\n" for name in SCHEMAS]
    rules = [Constraint.json_schema(schema) for schema in SCHEMAS.values()]
    answers = model.generate_batch(prompts, params, constraints=rules)
    for (name, schema), completion in zip(SCHEMAS.items(), answers, strict=True):
        assert (completion.finish_reason, completion.satisfied) == ("stop", True), (name, completion.text)
        assert completion.ids[-1] in model.tokenizer.eog_ids
        value = json.loads(completion.text, parse_constant=pytest.fail)
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)
        if isinstance(value, dict) and "properties" in schema:
            assert [*value] == [*schema["properties"]], name


class Pet(pydantic.BaseModel):
    kind: Literal["cat", "dog", "bird"]
    legs: int = pydantic.Field(ge=0, le=8)
    names: list[Literal["Tom", "Rex", "Kim"]] = pydantic.Field(min_length=1, max_length=2)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_chat_gives_an_instance_and_a_schema_the_same_value(smollm2_path: Path, params: SamplingParams) -> None:
    with fucina.load(smollm2_path, context=512) as model:
        check_chat(model, params)


def check_chat(model: Model, params: SamplingParams) -> None:
    pet = model.chat("Describe a pet.", params, schema=Pet)
    assert isinstance(pet, Pet)
    assert model.chat("Describe a pet.", params, schema=Pet.model_json_schema()) == pet.model_dump()
    with model.conversation() as talk:
        assert talk.send("Describe a pet.", params, schema=Pet) == pet
        assert Pet.model_validate_json(talk.messages[-1]["content"]) == pet


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_regular_expressions_and_grammars(model: Model, params: SamplingParams) -> None:
    number = model.generate("A phone number: ", params, constraint=Constraint.regex(r"\+[0-9]{2} [0-9]{3}-[0-9]{4}"))
    assert re.fullmatch(r"\+[0-9]{2} [0-9]{3}-[0-9]{4}", number.text)
    assert number.satisfied
    lark = 'start: term " + " term\nterm: /[1-9]/ | "(" /[1-9]/ " * " /[1-9]/ ")"'
    total = model.generate("A sum: ", params, constraint=Constraint.lark(lark))
    assert re.fullmatch(r"([1-9]|\([1-9] \* [1-9]\)) \+ ([1-9]|\([1-9] \* [1-9]\))", total.text)


@pytest.mark.parametrize("params", [GREEDY, replace(SAMPLED, temperature=1.5)], ids=["greedy", "sampled"])
def test_the_text_of_control_tokens_in_a_string_ends_no_turn(model: Model, params: SamplingParams) -> None:
    said = "a<|im_end|>b<end_of_turn>c<eos><|endoftext|></s>d"
    schema = an_object(quote={"const": said}, after={"enum": ["<|im_start|>", "<start_of_turn>"]})
    completion = model.generate("A quotation as JSON:\n", params, constraint=Constraint.json_schema(schema))
    assert (completion.finish_reason, completion.satisfied) == ("stop", True)
    value: Mapping[str, str] = json.loads(completion.text)
    assert value["quote"] == said
    assert value["after"] in ("<|im_start|>", "<start_of_turn>")
    assert not model.tokenizer.eog_ids & {*completion.ids[:-1]}
    # the text is made of text tokens: written out by their bytes it is what was decoded
    texts = model.tokenizer.text_bytes()
    assert b"".join(texts[token] for token in completion.ids[:-1]).decode() == completion.text


def test_a_model_that_would_end_at_once_may_not(smollm2_path: Path) -> None:
    """Right after its own answer a model wants to end its turn; the grammar asks for one more word."""
    with fucina.load(smollm2_path, context=512) as model:
        whole = model.chat("Name three primary colors.", GREEDY)
        prompt = [*whole.prompt_ids, *whole.ids[:-1]]
        assert model.generate(prompt, GREEDY).ids == whole.ids[-1:]
        held = model.generate(prompt, GREEDY, constraint=Constraint.regex(" [a-z]{3}"))
        assert re.fullmatch(" [a-z]{3}", held.text)
        assert held.satisfied
