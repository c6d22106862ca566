"""Options that several verbs share, each spelled once. Their defaults stand in the verbs' signatures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from fucina.cli.configured import read_config

_SAMPLING = "Choosing tokens"
_MACHINE = "The machine"

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A .gguf file, a pulled model's name, or hf:owner/repo/file.gguf.")
]
Prompt = Annotated[
    str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="The prompt; without it, standard input is read.")
]
Logprobs = Annotated[
    int | None, typer.Option("--logprobs", metavar="K", help="With --json: log-probabilities, and the top K.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]

MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        "-n",
        metavar="N",
        help="End after this many tokens, if the model did not before.",
        rich_help_panel=_SAMPLING,
    ),
]
Temperature = Annotated[
    float, typer.Option("--temp", metavar="X", help="0 always takes the likeliest token.", rich_help_panel=_SAMPLING)
]
TopK = Annotated[
    int | None,
    typer.Option("--top-k", metavar="K", help="Choose among the K likeliest tokens.", rich_help_panel=_SAMPLING),
]
TopP = Annotated[
    float,
    typer.Option(
        "--top-p",
        metavar="P",
        help="Choose among the likeliest tokens that make up this share of probability.",
        rich_help_panel=_SAMPLING,
    ),
]
MinP = Annotated[
    float,
    typer.Option(
        "--min-p",
        metavar="P",
        help="Drop tokens less probable than this share of the likeliest one's.",
        rich_help_panel=_SAMPLING,
    ),
]
RepeatPenalty = Annotated[
    float,
    typer.Option(
        "--repeat-penalty", metavar="X", help="Above 1: say again less of what was said.", rich_help_panel=_SAMPLING
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="The same seed gives the same text; a fresh one is reported.",
        rich_help_panel=_SAMPLING,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop", metavar="TEXT", help="End before this text would appear. May be repeated.", rich_help_panel=_SAMPLING
    ),
]

System = Annotated[
    str | None, typer.Option("--system", metavar="TEXT", help="The system message that precedes the conversation.")
]

KvSave = Annotated[
    Path | None,
    typer.Option(
        "--kv-save",
        metavar="FILE",
        help="Keep the conversation in this file, and go on with what is in it, without reading it again.",
    ),
]

_FORM = "The form of the answer"

JsonSchema = Annotated[
    str | None,
    typer.Option(
        "--json-schema",
        metavar="J|@FILE",
        help="Answer with JSON that fits this schema, given here or in a file. true takes any JSON.",
        rich_help_panel=_FORM,
    ),
]
Regex = Annotated[
    str | None,
    typer.Option(
        "--regex",
        metavar="P|@FILE",
        help="Answer with a text that this regular expression matches as a whole.",
        rich_help_panel=_FORM,
    ),
]
Lark = Annotated[
    str | None,
    typer.Option(
        "--lark",
        metavar="G|@FILE",
        help="Answer with a text that follows this Lark grammar from its rule `start`.",
        rich_help_panel=_FORM,
    ),
]

_SPECULATION = "Speculation"

Spec = Annotated[
    bool,
    typer.Option(
        "--spec/--no-spec",
        help="Draft tokens from what was said before and verify them together, where that is faster; the same text.",
        rich_help_panel=_SPECULATION,
    ),
]
SpecRef = Annotated[
    list[Path] | None,
    typer.Option(
        "--spec-ref",
        metavar="FILE",
        help="A text that the answer may quote: drafts come from it too. May be repeated.",
        rich_help_panel=_SPECULATION,
    ),
]

Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="N", help="CPU threads; without it, all this process may use.", rich_help_panel=_MACHINE
    ),
]
Tier = Annotated[
    str | None,
    typer.Option(
        "--tier",
        metavar="NAME",
        help="Instruction tier of the compiled kernels; `fucina inspect --machine` lists them.",
        rich_help_panel=_MACHINE,
    ),
]
Backend = Annotated[
    Literal["auto", "native", "reference"] | None,
    typer.Option(
        "--backend",
        help="Compiled kernels, or the NumPy reference (slow).",
        show_default=False,
        rich_help_panel=_MACHINE,
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        metavar="N",
        help="Positions to make room for; without it, what the model was made for.",
        rich_help_panel=_MACHINE,
    ),
]
KvFormat = Annotated[
    Literal["f16", "q8_0", "f32"],
    typer.Option("--kv-format", help="How the cache stores keys and values.", rich_help_panel=_MACHINE),
]
_CACHE = "What was said before"

KvMemory = Annotated[
    str | None,
    typer.Option(
        "--kv-memory",
        metavar="SIZE",
        help="Memory for keys and values, running and kept: 512M, 4G. Without it, what four full contexts take, within "
        "half of what is free.",
        rich_help_panel=_CACHE,
    ),
]
KvCacheDir = Annotated[
    Path | None,
    typer.Option(
        "--kv-cache-dir",
        metavar="DIR",
        help="Where keys and values go that memory has no room for, and are found again after a restart.",
        rich_help_panel=_CACHE,
    ),
]
KvDisk = Annotated[
    str, typer.Option("--kv-disk", metavar="SIZE", help="Space to take in that folder.", rich_help_panel=_CACHE)
]
_experts = partial(typer.Option, rich_help_panel="Mixtures of experts")

MoeStream = Annotated[
    bool | None,
    _experts(
        "--moe-stream/--no-moe-stream",
        help="Leave routed experts in the file and read them when needed; the same text. Without it, where the "
        "model is larger than the memory that is free.",
        show_default=False,
    ),
]
MoeCache = Annotated[
    str | None,
    _experts("--moe-cache", metavar="SIZE", help="Memory for such experts. Without it, half of what is free."),
]
MoePin = Annotated[
    str | None,
    _experts("--moe-pin", metavar="SIZE", help="Of it, for the experts that earlier runs used most. Without it, half."),
]
MoeLearn = Annotated[
    bool,
    _experts("--moe-learn/--moe-no-learn", help="Remember beside the model which experts are used."),
]
MoePilot = Annotated[
    bool | None,
    _experts(
        "--moe-pilot/--no-moe-pilot",
        help="Ask the next layer's router ahead of time, and read what it would choose first; the same text. On where "
        "the experts are larger than the memory that is free.",
    ),
]
MoeExpertTopP = Annotated[
    float | None,
    _experts(
        "--moe-expert-top-p",
        metavar="F",
        help="LOSSY, and the only option that is: of a token's experts compute only those that weigh most, the fewest "
        "that have this share of the weight of all. Faster, and another text; from 1 on nothing is left out.",
    ),
]
Repack = Annotated[
    bool | None,
    typer.Option(
        "--repack/--no-repack",
        help="Copy weights into the layout of the kernels, or compute from the mapped file: less memory, slower, the "
        "same text.",
        show_default=False,
        rich_help_panel=_MACHINE,
    ),
]
PrefillChunk = Annotated[
    int,
    typer.Option(
        "--prefill-chunk",
        metavar="N",
        help="Prompt tokens per pass, fewer beside running answers; changes speed only.",
        rich_help_panel=_MACHINE,
    ),
]

_server = partial(typer.Option, rich_help_panel="The server")

ServedModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        envvar="FUCINA_SERVE_MODEL",
        show_envvar=False,
        help="A .gguf file, a pulled model's name, or hf:owner/repo/file.gguf.",
    ),
]
Config = Annotated[
    Path | None,
    _server("--config", metavar="FILE", help="A TOML file with options.", is_eager=True, callback=read_config),
]
Host = Annotated[str, _server("--host", metavar="ADDRESS", help="Where to listen; 0.0.0.0 for all.")]
Port = Annotated[int, _server("--port", metavar="N", help="0 takes a free one.")]
Alias = Annotated[list[str] | None, _server("--alias", metavar="NAME", help="Another name of the model. Repeatable.")]
ApiKey = Annotated[list[str] | None, _server("--api-key", metavar="KEY", help="Who sends it may ask. Repeatable.")]
ApiKeyFile = Annotated[
    Path | None,
    _server("--api-key-file", metavar="FILE", help="More keys, one a line: no list of processes shows them."),
]
Cors = Annotated[
    list[str] | None, _server("--cors", metavar="ORIGIN", help="Pages of this origin may ask. Repeatable.")
]
HostName = Annotated[
    list[str] | None, _server("--host-name", metavar="NAME", help="A name that the server goes by. Repeatable.")
]
Parallel = Annotated[int, _server("--parallel", metavar="N", help="Requests that run together.")]
Queue = Annotated[int, _server("--queue", metavar="N", help="Requests that may wait; more are told to come back.")]
MaxBody = Annotated[str, _server("--max-body", metavar="SIZE", help="The largest request.")]
Deadline = Annotated[float, _server("--deadline", metavar="SECONDS", help="The longest that an answer may take.")]
Drain = Annotated[float, _server("--drain", metavar="SECONDS", help="What running answers have at the end.")]
LogFormat = Annotated[Literal["text", "json"], _server("--log-format", help="Lines for people, or for programs.")]
