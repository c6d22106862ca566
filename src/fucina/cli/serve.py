"""`fucina serve`: one model over HTTP, for OpenAI's, Anthropic's and Ollama's clients."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import typer

import fucina
from fucina.cli import options, terminal
from fucina.cli.configured import Configured
from fucina.cli.exits import exit_code
from fucina.cli.given import given_keys
from fucina.cli.groups import Computing, Experts, Keeping, grouped
from fucina.cli.logs import logged_progress, set_up_logs
from fucina.cli.opening import load_options
from fucina.cli.progress import shown_progress
from fucina.core.units import format_bytes, parse_bytes
from fucina.decoding.params import SamplingParams
from fucina.errors import FucinaError
from fucina.server.launch import serve
from fucina.server.listening import is_loopback
from fucina.server.loading import loaded_model
from fucina.server.options import ServerOptions
from fucina.server.state import Loaded
from fucina.storage.models import Progress, resolve_model

_LOG = logging.getLogger("fucina.server")

#: Ways to show that something takes its time.
Show = Callable[[], AbstractContextManager[Progress]]

app = typer.Typer(add_completion=False)


class Serve(Configured):
    """The verb; what ends it is logged where logs are for programs."""

    spelled: ClassVar[Mapping[str, str]] = {
        "drain_s": "drain",
        "deadline_s": "deadline",
        "api_keys": "api_key",
        "temperature": "temp",
    }

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except FucinaError as error:
            if ctx.params["log_format"] != "json":
                raise
            _LOG.critical("%s", error)
            raise typer.Exit(exit_code(error)) from None


_EPILOG = (
    "Every option may stand in the environment too, --kv-memory as FUCINA_SERVE_KV_MEMORY, several values of one with "
    "spaces between them; and in the table [serve] of a TOML file (--config), spelled as here without the dashes: "
    'kv-memory = "4G"; MODEL is model there. A flag wins over the environment, that over the file. '
    "How to choose tokens holds for requests that do not say. Ctrl-C lets running answers finish; twice ends at once."
)


@app.command(cls=Serve, context_settings={"auto_envvar_prefix": "FUCINA_SERVE"}, epilog=_EPILOG)
@grouped
def command(
    model: options.ServedModel,
    *,
    config: options.Config = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8080,
    alias: options.Alias = None,
    api_key: options.ApiKey = None,
    api_key_file: options.ApiKeyFile = None,
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
    computing: Computing,
    keeping: Keeping,
    experts: Experts,
) -> None:
    """Serve a model over HTTP, for OpenAI's, Anthropic's and Ollama's clients, with a chat page at /.

    Examples:
      fucina serve model.gguf --port 9000 --api-key-file keys.txt --kv-cache-dir ~/.cache/fucina/kv
      FUCINA_SERVE_PORT=9000 fucina serve smollm2
      fucina serve --config server.toml
    """
    del config  # its callback has read it
    served = ServerOptions(
        host=host,
        port=port,
        api_keys=(*(api_key or ()), *given_keys(api_key_file)),
        origins=tuple(cors or ()),
        hosts=tuple(host_name or ()),
        queue=queue,
        parallel=parallel,
        max_body=parse_bytes(max_body, "max_body"),
        deadline_s=deadline,
        drain_s=drain,
        defaults=SamplingParams(temperature=temp, top_k=top_k, top_p=top_p, min_p=min_p),
    )
    given = load_options(computing, keeping, experts) | {"speculation": spec}
    _serve(model, alias or [], served, given, _show_with(log_format))


def _show_with(log_format: str) -> Show:
    """Begin to log; the way of showing progress that goes with it."""
    set_up_logs(log_format)
    return logged_progress if log_format == "json" else shown_progress


def _serve(word: str, aliases: Sequence[str], served: ServerOptions, given: dict[str, Any], show: Show) -> None:
    with show() as progress:
        path = resolve_model(word, progress=progress)

    def load() -> Loaded:
        names = tuple(dict.fromkeys((Path(word).stem, *aliases)))
        with show() as progress:
            return loaded_model(
                lambda: fucina.load(path, **given, max_running=served.parallel, progress=progress), path, names
            )

    if not (served.api_keys or is_loopback(served.host)):
        _LOG.warning("who reaches this machine may ask without a key: --api-key-file asks for one")
    serve(served, load, _announce, _leave)


def _leave(code: int) -> None:
    """End the process at once, and leave a terminal as it was, which a bar that is still shown would not."""
    logging.shutdown()
    terminal.stderr().show_cursor()
    os._exit(code)


def _announce(loaded: Loaded, address: str) -> None:
    """One line on what is served, where, and with how much memory."""
    model = loaded.model
    told = {
        "model": loaded.name,
        "address": address,
        "context": model.context,
        "kv_tokens": model.kv_tokens,
        "kv_bytes": model.kv_bytes,
        "kv_rule": model.kv_rule,
    }
    _LOG.info(
        "%s (%s, %s) at %s: context %d, keys and values of %d tokens in %s at most (%s; --kv-memory changes it)",
        loaded.name,
        loaded.facts.family,
        loaded.facts.format,
        address,
        model.context,
        model.kv_tokens,
        format_bytes(model.kv_bytes),
        model.kv_rule,
        extra={"fields": told},
    )
