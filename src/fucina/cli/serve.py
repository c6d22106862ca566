"""`fucina serve`: one model over HTTP, for OpenAI's, Anthropic's and Ollama's clients."""

from __future__ import annotations

import logging
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import fucina
from fucina.cli import options, terminal
from fucina.cli.opening import Machine
from fucina.cli.progress import find_model
from fucina.core.units import format_bytes
from fucina.decoding.params import SamplingParams
from fucina.server.launch import serve
from fucina.server.loading import loaded_model
from fucina.server.options import ServerOptions

if TYPE_CHECKING:
    from fucina.server.state import Loaded

app = typer.Typer(add_completion=False)

_option = partial(typer.Option, rich_help_panel="The server")


@app.command()
def command(
    model: options.Model,
    host: Annotated[
        str,
        _option("--host", metavar="ADDRESS", help="Where to listen; 0.0.0.0 for all."),
    ] = "127.0.0.1",
    port: Annotated[int, _option("--port", metavar="N", help="0 takes a free one.")] = 8080,
    alias: Annotated[
        list[str] | None,
        typer.Option("--alias", metavar="NAME", help="Another name of the model. May be repeated."),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option("--api-key", metavar="KEY", help="Who sends it may ask. May be repeated."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        _option("--cors", metavar="ORIGIN", help="Pages of this origin may ask."),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        _option("--host-name", metavar="NAME", help="A name that the server goes by."),
    ] = None,
    parallel: Annotated[int, _option("--parallel", metavar="N", help="Requests that run together.")] = 16,
    queue: Annotated[int, _option("--queue", metavar="N", help="Requests that may wait; more get 429.")] = 64,
    deadline: Annotated[
        float,
        _option("--deadline", metavar="SECONDS", help="The longest an answer may take."),
    ] = 3600.0,
    drain: Annotated[
        float,
        _option("--drain", metavar="SECONDS", help="For running answers at the end."),
    ] = 30.0,
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
) -> None:
    """Serve a model over HTTP, for OpenAI's, Anthropic's and Ollama's clients, and a chat page at /.

    Examples:
      fucina serve smollm2
      fucina serve model.gguf --port 9000 --api-key s3cret-key --kv-cache-dir ~/.cache/fucina/kv
    """
    served = ServerOptions(
        host=host,
        port=port,
        api_keys=tuple(api_key or ()),
        origins=tuple(cors or ()),
        hosts=tuple(host_name or ()),
        queue=queue,
        parallel=parallel,
        deadline_s=deadline,
        drain_s=drain,
        defaults=SamplingParams(temperature=temp, top_k=top_k, top_p=top_p, min_p=min_p),
    )
    machine = Machine(
        threads=threads,
        tier=tier,
        backend=backend,
        context=context,
        kv_format=kv_format,
        prefill_chunk=prefill_chunk,
        repack=repack,
        speculation=spec,
        kv_memory=kv_memory,
        kv_cache_dir=kv_cache_dir,
        kv_disk=kv_disk,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    path = find_model(model)
    names = (Path(model).stem, *(alias or ()))
    serve(
        served,
        lambda: loaded_model(lambda: fucina.load(path, **asdict(machine), max_running=parallel), path, names),
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
