"""`fucina run`: one prompt, one answer, friendly to pipes."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from fucina.cli import options, report, terminal
from fucina.cli.opening import open_model
from fucina.decoding.params import SamplingParams
from fucina.errors import ConfigError

app = typer.Typer(add_completion=False)


@app.command()
def command(
    model: options.Model,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", "-p", metavar="TEXT", help="The prompt; without it, standard input is read."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")] = False,
    system: options.System = None,
    max_tokens: options.MaxTokens = None,
    temp: options.Temperature = 0.0,
    top_k: options.TopK = None,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    repeat_penalty: options.RepeatPenalty = 1.0,
    seed: options.Seed = None,
    stop: options.Stop = None,
    logprobs: Annotated[
        int | None,
        typer.Option("--logprobs", metavar="K", min=0, help="With --json: log-probabilities, and the top K."),
    ] = None,
    as_json: options.Json = False,
    threads: options.Threads = None,
    tier: options.Tier = None,
    backend: options.Backend = None,
    context: options.Context = None,
    kv_format: options.KvFormat = "f16",
    prefill_chunk: options.PrefillChunk = 512,
) -> None:
    """Answer one prompt: the text goes to stdout as it is made, statistics go to stderr.

    Examples:
      fucina run smollm2 -p "What is the capital of France?"
      fucina run smollm2 -p "Once upon a time" --raw -n 50 --temp 0.8 --seed 7
      cat letter.txt | fucina run smollm2 --system "Summarize in one sentence."
      fucina run smollm2 -p "Name a river." --json --logprobs 3 | python -m json.tool

    Without --temp the likeliest token is always taken, so the same prompt gives the same text.
    """
    if raw and system is not None:
        raise ConfigError("--system", got=system, expected="no --raw: without a template there is no system message")
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temp,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat_penalty,
        seed=seed,
        stop=tuple(stop or ()),
        logprobs=logprobs,
    )
    text = prompt_text(prompt)
    loaded = open_model(
        model,
        threads=threads,
        tier=tier,
        backend=backend,
        context=context,
        kv_format=kv_format,
        prefill_chunk=prefill_chunk,
    )
    messages = report.messages(system, text)
    if as_json:
        completion = loaded.generate(text, params) if raw else loaded.chat(messages, params)
        print(json.dumps(report.as_object(model, completion), ensure_ascii=False), flush=True)
        return
    finish = report.speak(loaded.stream(text, params) if raw else loaded.stream_chat(messages, params))
    terminal.note(report.statistics(finish))


def prompt_text(prompt: str | None) -> str:
    """The prompt option, or standard input when something is piped into it. Raises ConfigError."""
    if prompt is None:
        if sys.stdin.isatty():
            raise ConfigError("--prompt", got=None, expected="a text after -p, or one piped into standard input")
        try:
            return sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise ConfigError("standard input", got=error.object[error.start : error.end], expected="UTF-8") from None
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise ConfigError("--prompt", got=prompt, expected="valid UTF-8 text") from None
    return prompt
