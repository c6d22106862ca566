"""Answers that are data: an instance of a class, a word from a list, a date. The form is kept token by token."""

from typing import Literal

from pydantic import BaseModel, Field

import fucina
from fucina import Constraint, IncompleteAnswer, SamplingParams


class Animal(BaseModel):
    """What is asked for; the bounds are part of the form."""

    name: str = Field(max_length=20)
    kind: Literal["mammal", "bird", "fish", "insect"]
    legs: int = Field(ge=0, le=8)
    colors: list[Literal["black", "white", "brown", "gray", "green"]] = Field(min_length=1, max_length=3)


params = SamplingParams(max_tokens=120)

with fucina.load("smollm2") as model:
    animal = model.chat("Describe a sparrow as JSON.", params, schema=Animal)
    print(repr(animal))  # an Animal: editors and type checkers know that too
    assert isinstance(animal, Animal)

    answer = model.chat("Is the sea salty?", params, constraint=Constraint.regex("yes|no|that depends"))
    print(answer.text)

    born = model.chat(
        "When was Galileo Galilei born?", params, schema={"type": "string", "format": "date", "maxLength": 10}
    )
    print(born)

    try:  # too few tokens: an error that holds what there is, never half an Animal
        model.chat("Describe a sparrow as JSON.", SamplingParams(max_tokens=5), schema=Animal)
    except IncompleteAnswer as error:
        print(error)
