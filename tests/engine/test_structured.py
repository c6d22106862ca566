"""Constraints and schemas on the Model facade: what is asked for, read back, and said of what is cut off."""

from __future__ import annotations

import dataclasses
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pydantic
import pytest

import fucina
from fucina import Constraint, SamplingParams, UnboundedAnswerWarning
from fucina.decoding.processors.banned import BannedTokens
from fucina.engine.constraints import Constraints
from fucina.engine.events import FinishEvent
from fucina.engine.model import Model
from fucina.engine.structured import Wanted
from fucina.errors import BadSchema, ConfigError, ConstraintError, IncompleteAnswer
from fucina.testing.byte_tokenizer import ASSISTANT, EOS, ByteTokenizer
from fucina.testing.scripted_model import ScriptedModel

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "legs": {"type": "integer", "minimum": 0, "maximum": 8},
    },
    "required": ["name", "legs"],
    "additionalProperties": False,
}
CAT = '{"name": "cat", "legs": 4}'
PARAMS = SamplingParams(max_tokens=80)


class Animal(pydantic.BaseModel):
    name: str
    legs: int


@dataclasses.dataclass
class Plain:
    name: str
    legs: int


class Even(pydantic.BaseModel):
    legs: int

    @pydantic.field_validator("legs")
    @classmethod
    def is_even(cls, legs: int) -> int:
        if legs % 2:
            raise ValueError("odd legs")
        return legs


def saying(text: str, tokenizer: ByteTokenizer | None = None) -> Model:
    """A model that wants to answer any chat, or what follows a newline, with a text, and then to go on for ever."""
    tokenizer = tokenizer or ByteTokenizer()
    wished = tokenizer.encode(text, special=True)

    def script(prefix: Sequence[int]) -> int | None:
        start = 1 + max((i for i, token in enumerate(prefix) if token in (ASSISTANT, 10)), default=-1)
        said = len(prefix) - start
        return wished[said] if list(prefix[start:]) == wished[:said] and said < len(wished) else None

    return Model(ScriptedModel(script=script), tokenizer)


def test_a_constraint_holds_and_a_result_tells() -> None:
    with saying("maybe") as model:
        rule = Constraint.regex("(yes|no)!")
        completion = model.chat("Is it?", PARAMS, constraint=rule)
        assert completion.text in ("yes!", "no!")
        assert (completion.finish_reason, completion.stop, completion.satisfied) == ("stop", EOS, True)
        assert model.generate("Is it?\n", PARAMS, constraint=rule).text in ("yes!", "no!")
        *_, finish = model.stream("Is it?\n", PARAMS, constraint=rule)
        assert isinstance(finish, FinishEvent)
        assert finish.satisfied is True
        assert "".join(event.text for event in model.stream_chat("Is it?", PARAMS, constraint=rule)) == completion.text
        with model.conversation() as talk:
            assert talk.send("Is it?", PARAMS, constraint=rule).text == completion.text
            assert "".join(event.text for event in talk.stream("Is it?", PARAMS, constraint=rule)) in ("yes!", "no!")
        assert model.chat("Is it?", SamplingParams(max_tokens=5)).satisfied is None


def test_a_batch_may_have_one_constraint_for_each() -> None:
    with saying("maybe") as model:
        rules = [Constraint.regex("[ab]{3}"), None, Constraint.lark('start: "x" /[0-9]/')]
        prompts = ["one\n", "two\n", "three\n"]
        alone = [model.generate(prompt, PARAMS, constraint=rule) for prompt, rule in zip(prompts, rules, strict=True)]
        together = model.generate_batch(prompts, PARAMS, constraints=rules)
        assert [completion.ids for completion in together] == [completion.ids for completion in alone]
        assert [completion.satisfied for completion in together] == [True, None, True]
        same = model.generate_batch(prompts, PARAMS, constraints=rules[0])
        assert all(set(completion.text) <= {"a", "b"} and len(completion.text) == 3 for completion in same)
        with pytest.raises(ConfigError, match=r"^constraints: got '2 of them'"):
            model.generate_batch(prompts, PARAMS, constraints=rules[:2])
        with pytest.raises(ConfigError, match=r"^constraint"):
            model.generate_batch(prompts, PARAMS, constraints=["[ab]"] * 3)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (Animal, Animal(name="cat", legs=4)),
        (Plain, Plain("cat", 4)),
        (SCHEMA, {"name": "cat", "legs": 4}),
        (pydantic.TypeAdapter(Animal).json_schema(), {"name": "cat", "legs": 4}),
        (
            '{"type": "object", "required": ["name"], "properties": {"name": {"const": "cat"}}}',
            {"name": "cat", "legs": 4},
        ),
    ],
    ids=["pydantic", "dataclass", "mapping", "schema of a type", "text"],
)
def test_an_answer_comes_as_a_value(schema: Any, expected: object) -> None:
    with saying(CAT + "<eos>") as model:
        value = model.chat("A cat?", PARAMS, schema=schema)
        assert value == expected
        assert type(value) is type(expected)
        with model.conversation() as talk:
            assert talk.send("A cat?", PARAMS, schema=schema) == expected
            assert talk.messages[-1] == {"role": "assistant", "content": CAT}


def test_other_types_than_objects() -> None:
    with saying("[1, 2]<eos>") as model:
        assert model.chat("Count.", PARAMS, schema=list[int]) == [1, 2]
    with saying("12<eos>") as model:
        assert model.chat("Count.", PARAMS, schema=int) == 12


@pytest.mark.parametrize("schema", [5, 1.5, True, ["a"], object(), Constraint.regex("x"), lambda: None])
def test_what_is_no_schema(schema: Any) -> None:
    with saying("") as model, pytest.raises(ConfigError, match=r"^schema"):
        model.chat("hi", schema=schema)


@pytest.mark.parametrize("schema", [Plain, list[int]])
def test_without_pydantic_types_cannot_be_asked_for(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with saying(CAT + "<eos>") as model:
        with pytest.raises(ConfigError, match="the extra 'structured': pip install pydantic"):
            model.chat("hi", schema=schema)
        assert model.chat("A cat?", PARAMS, schema=SCHEMA) == {"name": "cat", "legs": 4}


def test_a_schema_is_a_constraint_already() -> None:
    with saying("") as model:
        rule = Constraint.regex("x")
        with pytest.raises(ConfigError, match="a constraint beside it"):
            model.chat("hi", schema=Animal, constraint=rule)
        with model.conversation() as talk, pytest.raises(ConfigError, match="a constraint beside it"):
            talk.send("hi", schema=Animal, constraint=rule)
        for wrong in ("x", {"type": "string"}, Animal):
            with pytest.raises(ConfigError, match=r"expected one that Constraint\."):
                model.chat("hi", constraint=wrong)  # type: ignore[arg-type]
        with pytest.raises(BadSchema):
            model.chat("hi", schema="{not json")
        assert model.counters.requests == 0


def test_what_was_cut_off_is_never_a_value() -> None:
    with saying(CAT + "<eos>") as model:
        with pytest.raises(IncompleteAnswer, match=r"ran out of tokens after 9.*raise max_tokens") as cut:
            model.chat("A cat?", SamplingParams(max_tokens=9), schema=SCHEMA)
        assert isinstance(cut.value.completion, fucina.Completion)
        assert cut.value.completion.text == CAT[:9]
        assert cut.value.completion.satisfied is False
        with pytest.raises(IncompleteAnswer, match=r"the stop string 'legs' cut the answer off.*drop it"):
            model.chat("A cat?", SamplingParams(max_tokens=80, stop=("legs",)), schema=SCHEMA)
        with pytest.raises(IncompleteAnswer, match=r"the stop string '}' cut"):
            model.chat("A cat?", SamplingParams(max_tokens=80, stop=("}",)), schema=SCHEMA)
        with pytest.raises(IncompleteAnswer, match=r"the stop token 58 cut the answer off.*drop it"):
            model.chat("A cat?", SamplingParams(max_tokens=80, stop_token_ids=frozenset({ord(":")})), schema=SCHEMA)
        # whole at the very last token: nothing is missing but the end token
        assert model.chat("A cat?", SamplingParams(max_tokens=len(CAT)), schema=SCHEMA) == {"name": "cat", "legs": 4}
    with saying("123<eos>") as model:
        with pytest.raises(IncompleteAnswer):
            model.chat("Count.", SamplingParams(max_tokens=2), schema={"type": "integer"})
        assert model.chat("Count.", SamplingParams(max_tokens=4), schema={"type": "integer"}) == 123


def test_a_conversation_keeps_what_was_cut_off() -> None:
    with saying(CAT + "<eos>") as model, model.conversation() as talk:
        with pytest.raises(IncompleteAnswer):
            talk.send("A cat?", SamplingParams(max_tokens=9), schema=SCHEMA)
        assert talk.messages[-1] == {"role": "assistant", "content": CAT[:9]}
        assert talk.send("A cat?", PARAMS, schema=Animal).legs == 4


def test_a_type_may_refuse_what_its_schema_allows() -> None:
    with saying('{"legs": 3}<eos>') as model:
        with pytest.raises(ConstraintError, match="odd legs") as refused:
            model.chat("Legs?", PARAMS, schema=Even)
        assert isinstance(refused.value.__cause__, pydantic.ValidationError)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r'\{"a": 1, "a": 2\}', "the key 'a' stands there twice"),
        ("NaN", "NaN is no JSON"),
        ("-Infinity", "-Infinity is no"),
        ("x", "JSON"),
    ],
)
def test_reading_is_strict(pattern: str, said: str) -> None:
    with saying("") as model:
        rule = Constraint.regex(pattern)
        wanted: Wanted[object] = Wanted(rule, lambda _, value: value)
        with pytest.raises(ConstraintError, match=said):
            wanted.read(model.chat("hi", PARAMS, constraint=rule), model.constraints)


def test_a_processor_of_ones_own_comes_before_the_grammar() -> None:
    with saying("yes") as model:
        rule = Constraint.regex("yes|no")
        assert model.chat("Is it?", PARAMS, constraint=rule).text == "yes"
        assert model.chat("Is it?", PARAMS, constraint=rule, processor=BannedTokens({ord("y")})).text == "no"
        with pytest.raises(ConfigError, match="ignore_eos"):
            model.chat("Is it?", SamplingParams(max_tokens=9, ignore_eos=True), constraint=rule)


class Counted(ByteTokenizer):
    """Counts how often its tokens are asked for, slowly enough for a race."""

    def __init__(self) -> None:
        self.n_asked = 0
        self.together = threading.Barrier(2)

    def text_bytes(self) -> list[bytes]:
        self.n_asked += 1
        return super().text_bytes()


def test_the_vocabulary_is_built_once_by_whoever_comes_first() -> None:
    tokenizer = Counted()
    constraints = Constraints(tokenizer)
    assert tokenizer.n_asked == 0
    rule, errors = Constraint.regex("a"), []

    def ask() -> None:
        tokenizer.together.wait()
        try:
            assert constraints.processor(rule, [1], None) is not None
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    constraints.prepare()
    assert (tokenizer.n_asked, errors) == (1, [])


def test_a_request_is_prepared_while_others_compute() -> None:
    with saying("yes") as model, model._dispatcher.exclusive():
        prepared = threading.Thread(target=model.stream, args=("hi",), kwargs={"constraint": Constraint.regex("a")})
        prepared.start()
        prepared.join(timeout=30)
        assert not prepared.is_alive()


def test_nothing_is_built_without_a_constraint() -> None:
    tokenizer = Counted()
    with Model(ScriptedModel(), tokenizer) as model:
        model.generate("x", SamplingParams(max_tokens=2))
        assert tokenizer.n_asked == 0
        model.constraints.prepare()
        assert tokenizer.n_asked == 1


OPEN = Constraint.json_schema({"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]})


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, params: model.chat("hi", params, constraint=OPEN),
        lambda model, params: model.generate("hi\n", params, constraint=OPEN),
        lambda model, params: list(model.stream("hi\n", params, constraint=OPEN)),
        lambda model, params: list(model.stream_chat("hi", params, constraint=OPEN)),
        lambda model, params: model.generate_batch(["hi\n"], params, constraints=OPEN),
        lambda model, params: model.conversation().send("hi", params, constraint=OPEN),
        lambda model, params: list(model.conversation().stream("hi", params, constraint=OPEN)),
    ],
    ids=["chat", "generate", "stream", "stream_chat", "generate_batch", "send", "conversation stream"],
)
def test_an_answer_without_bound_that_runs_out_of_tokens_is_warned_of_once(ask: Callable[..., Any]) -> None:
    with saying('{"note": "' + "very " * 100) as model:
        with pytest.warns(UnboundedAnswerWarning, match=r"\$\.properties\.note.*maxLength.*max_tokens") as caught:
            ask(model, SamplingParams(max_tokens=30))
        assert len(caught) == 1
        assert caught[0].filename == __file__


def test_what_is_bounded_or_ends_is_not_warned_of() -> None:
    with saying('{"name": "' + "very " * 100) as model, warnings.catch_warnings():
        warnings.simplefilter("error")
        cut = model.chat("hi", SamplingParams(max_tokens=15), constraint=Constraint.json_schema(SCHEMA))
        assert (cut.finish_reason, cut.satisfied) == ("length", False)
        cut = model.chat("hi", SamplingParams(max_tokens=1), constraint=Constraint.regex("a{9}"))
        assert (cut.finish_reason, cut.satisfied) == ("length", False)
    with saying('{"note": "short"}<eos>') as model:
        assert model.chat("hi", PARAMS, constraint=OPEN).satisfied


def test_with_a_schema_the_error_says_what_the_warning_would() -> None:
    with (
        saying('{"note": "' + "very " * 100) as model,
        pytest.raises(IncompleteAnswer, match=r"\$\.properties\.note.*maxLength"),
    ):
        model.chat("hi", SamplingParams(max_tokens=30), schema=OPEN.text)


def test_a_control_token_written_out_in_a_string_ends_no_turn() -> None:
    """The text of a marker is text: its bytes are other tokens than the marker's own."""
    with saying('{"name": "a<eos>b", "legs": 4}') as model:
        script_said = model.chat("Say it.", SamplingParams(max_tokens=200), constraint=Constraint.json_schema(SCHEMA))
        assert script_said.stop == EOS
    wished = list(b'{"name": "a<eos>b<assistant>", "legs": 4}')

    def script(prefix: Sequence[int]) -> int | None:
        said = len(prefix) - 1 - max(i for i, token in enumerate(prefix) if token == ASSISTANT)
        return wished[said] if said < len(wished) else None

    with Model(ScriptedModel(script=script), ByteTokenizer()) as model:
        completion = model.chat("Say it.", SamplingParams(max_tokens=200), constraint=Constraint.json_schema(SCHEMA))
        assert completion.ids == [*wished, EOS]
        assert completion.satisfied


THINK, THOUGHT = 261, 262


class Thinker(ByteTokenizer):
    """Two more tokens: <think> and </think>."""

    vocab_size = 263

    def encode(self, text: str, special: bool = False, *, at_start: bool = True) -> list[int]:
        if special and text in ("<think>", "</think>"):
            return [THINK if text == "<think>" else THOUGHT]
        return super().encode(text, special, at_start=at_start)

    def token_bytes(self, token: int) -> bytes:
        return super().token_bytes(token) if token < THINK else b""


class Opening(Thinker):
    """Its template opens the thoughts."""

    def chat_ids(self, messages: Sequence[Any], **variables: Any) -> list[int]:
        return [*super().chat_ids(messages, **variables), THINK]


class Hasty(Thinker):
    """Its template says that there was nothing to think of."""

    def chat_ids(self, messages: Sequence[Any], **variables: Any) -> list[int]:
        return [*super().chat_ids(messages, **variables), THINK, 10, 10, THOUGHT, 10, 10]


def thinking(tokenizer: Thinker, wished: list[int]) -> Model:
    def script(prefix: Sequence[int]) -> int | None:
        n_prompt = len(tokenizer.chat_ids([{"role": "user", "content": "A cat?"}]))
        said = len(prefix) - n_prompt
        return wished[said] if said < len(wished) else None

    return Model(ScriptedModel(script=script), tokenizer)


@pytest.mark.parametrize(
    ("tokenizer", "thoughts"),
    [
        (Thinker(), []),
        (Thinker(), [THINK, *b"A {cat} has 4.", THOUGHT]),
        (Opening(), [*b'It is {"name": "dog"}?', THOUGHT]),
        (Hasty(), []),
    ],
    ids=["none", "its own", "opened by the template", "ended by the template"],
)
def test_thoughts_are_no_part_of_the_value(tokenizer: Thinker, thoughts: list[int]) -> None:
    with thinking(tokenizer, [*thoughts, *CAT.encode(), EOS]) as model:
        completion = model.chat("A cat?", PARAMS, constraint=Constraint.json_schema(Animal))
        assert completion.ids == [*thoughts, *CAT.encode(), EOS]
        assert completion.satisfied
        assert model.chat("A cat?", PARAMS, schema=Animal) == Animal(name="cat", legs=4)


def test_no_thoughts_where_the_template_ended_them() -> None:
    with thinking(Hasty(), [THINK, *CAT.encode()]) as model:
        assert model.chat("A cat?", SamplingParams(max_tokens=1), constraint=Constraint.json_schema(SCHEMA)).text == "{"


def test_thoughts_that_run_out_of_tokens_are_no_answer() -> None:
    with thinking(Opening(), [*b"Well, a cat is "]) as model, pytest.raises(IncompleteAnswer):
        model.chat("A cat?", SamplingParams(max_tokens=12), schema=Animal)
