"""`fucina run`: one prompt, one answer, friendly to pipes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fucina.cli import answer, options, terminal
from fucina.cli.given import given_references, given_text
from fucina.cli.groups import Computing, Experts, Form, Keeping, Sampling, grouped
from fucina.cli.opening import open_model
from fucina.decoding.params import SamplingParams
from fucina.errors import ConfigError

if TYPE_CHECKING:
    from fucina.decoding.grammar.constraint import Constraint
    from fucina.engine.model import Model

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def command(
    model: options.Model,
    *,
    prompt: options.Prompt = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")] = False,
    system: options.System = None,
    max_tokens: options.MaxTokens = 512,
    sampling: Sampling,
    logprobs: options.Logprobs = None,
    as_json: options.Json = False,
    form: Form,
    spec: options.Spec = True,
    spec_ref: options.SpecRef = None,
    computing: Computing,
    keeping: Keeping,
    experts: Experts,
) -> None:
    """Answer one prompt: the text goes to stdout as it is made, statistics go to stderr.

    Examples:
      fucina run smollm2 -p "Name three primary colors."
      cat letter.txt | fucina run smollm2 --system "Summarize in one sentence."
      fucina run smollm2 -p "What is gravity?" --json --logprobs 3 | python -m json.tool
      fucina run smollm2 -p "Describe a cat." --json-schema @animal.json

    Without --temp the likeliest token is always taken, so the same prompt gives the same text.
    An answer that is cut off before it has its form is printed all the same; the exit code is 10 then.
    """
    params = sampling.params(max_tokens, logprobs)
    asked = _asked(given_text("--prompt", prompt), system, raw)
    references = given_references(spec_ref, speculation=spec)
    question = _Question(asked, params, references, form.constraint())
    with open_model(model, computing, keeping, experts, speculation=spec) as loaded:
        _tell(model, loaded, question, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked: a text to continue, or messages to answer."""

    asked: str | list[dict[str, str]]
    params: SamplingParams
    references: list[str]
    constraint: Constraint | None


def _asked(text: str, system: str | None, raw: bool) -> str | list[dict[str, str]]:
    if raw and system is not None:
        raise ConfigError("--system", got=system, expected="no --raw: without a template there is no system message")
    return text if raw else answer.messages(system, text)


def _tell(name: str, model: Model, question: _Question, *, as_json: bool) -> None:
    answer.expect_cuts()
    if as_json:
        _print_object(name, model, question)
    else:
        _speak(model, question)


def _print_object(name: str, model: Model, question: _Question) -> None:
    asked, constraint = question.asked, question.constraint
    if isinstance(asked, str):
        completion = model.generate(asked, question.params, references=question.references, constraint=constraint)
    else:
        completion = model.chat(asked, question.params, references=question.references, constraint=constraint)
    told = answer.as_object(name, completion) | {
        "experts": answer.experts_object(model.experts),
        "experts_left_out": answer.left_out_object(model.experts_left_out),
    }
    print(json.dumps(told, ensure_ascii=False), flush=True)
    answer.check_whole(completion, constraint)


def _speak(model: Model, question: _Question) -> None:
    asked, constraint = question.asked, question.constraint
    if isinstance(asked, str):
        events = model.stream(asked, question.params, references=question.references, constraint=constraint)
    else:
        events = model.stream_chat(asked, question.params, references=question.references, constraint=constraint)
    finish = answer.speak(events)
    if finish is not None:
        lines = answer.statistics(finish, sampled=not question.params.is_greedy)
        for line in (*lines, *answer.expert_lines(model)):
            terminal.note(line)
        answer.check_whole(finish, constraint)
