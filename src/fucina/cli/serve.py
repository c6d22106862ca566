"""`fucina serve`: one model over HTTP, for OpenAI's, Anthropic's and Ollama's clients."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

import fucina
from fucina.cli import options, terminal
from fucina.cli.logs import set_up_logs
from fucina.cli.opening import Machine
from fucina.cli.progress import find_model
from fucina.core.units import format_bytes, parse_bytes
from fucina.decoding.params import SamplingParams
from fucina.decoding.speculation.options import SpeculationOptions
from fucina.server.launch import serve
from fucina.server.loading import loaded_model
from fucina.server.options import ServerOptions
from fucina.server.state import Loaded

app = typer.Typer(add_completion=False)


@app.command()
def command(
    model: options.Model,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8080,
    alias: options.Alias = None,
    api_key: options.ApiKey = None,
    cors: options.Cors = None,
    host_name: options.HostName = None,
    parallel: options.Parallel = 16,
    queue: options.Queue = 64,
    max_body: options.MaxBody = "16M",
    deadline: options.Deadline = 3600.0,
    drain: options.Drain = 30.0,
    log_format: options.LogFormat = "text",
    temp: options.Temperature = 0.8,
    top_k: options.TopK = None,
    top_p: options.TopP = 0.95,
    min_p: options.MinP = 0.0,
    spec: options.Spec = True,
    threads: options.Threads = None,
    tier: options.Tier = None,
    backend: options.Backend = None,
    context: options.Context = None,
    kv_format: options.KvFormat = "f16",
    prefill_chunk: options.PrefillChunk = 512,
    repack: options.Repack = None,
    kv_memory: options.KvMemory = None,
    kv_cache_dir: options.KvCacheDir = None,
    kv_disk: options.KvDisk = "8G",
    moe_stream: options.MoeStream = None,
    moe_cache: options.MoeCache = None,
    moe_pin: options.MoePin = None,
    moe_learn: options.MoeLearn = True,
) -> None:
    """Serve a model over HTTP, for OpenAI's, Anthropic's and Ollama's clients, with a chat page at /.

    Examples:
      fucina serve smollm2
      fucina serve model.gguf --port 9000 --api-key a-long-secret --kv-cache-dir ~/.cache/fucina/kv
    How to choose tokens holds for requests that do not say. Ctrl-C lets running answers finish; twice ends at once.
    """
    served = ServerOptions(
        host=host,
        port=port,
        api_keys=tuple(api_key or ()),
        origins=tuple(cors or ()),
        hosts=tuple(host_name or ()),
        queue=queue,
        parallel=parallel,
        max_body=parse_bytes(max_body),
        deadline_s=deadline,
        drain_s=drain,
        defaults=SamplingParams(temperature=temp, top_k=top_k, top_p=top_p, min_p=min_p),
    )
    kept = kv_memory, kv_cache_dir, kv_disk, moe_stream, moe_cache, moe_pin, moe_learn
    set_up_logs(log_format)
    names = Path(model).stem, *(alias or ())
    _serve(
        model, names, served, Machine(threads, tier, backend, context, kv_format, prefill_chunk, repack, spec, *kept)
    )


def _serve(word: str, names: tuple[str, ...], served: ServerOptions, machine: Machine) -> None:
    path = find_model(word)
    given = asdict(machine)
    if machine.speculation and len(served.api_keys) > 1:
        # drafts from others' answers would tell, by the time they save, what was said there
        given["speculation"] = SpeculationOptions(remember=False)
    serve(
        served,
        lambda: loaded_model(lambda: fucina.load(path, **given, max_running=served.parallel), path, names),
        _announce,
    )


def _announce(loaded: Loaded, address: str) -> None:
    """One line on what is served, where, and with how much memory."""
    model = loaded.model
    terminal.note(
        f"{loaded.name} ({loaded.facts.family}, {loaded.facts.format}) at {address}: context {model.context}, "
        f"KV cache for {model.kv_tokens} tokens in {format_bytes(model.kv_bytes)} (--kv-memory changes it); "
        f"the chat page is at {address}/"
    )
