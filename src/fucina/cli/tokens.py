"""`fucina tokenize`: the ids of a text and what each stands for."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fucina.cli import options, report, terminal
from fucina.cli.given import given_text
from fucina.cli.progress import find_model
from fucina.storage.gguf import open_gguf
from fucina.text.tokenizer import Tokenizer

app = typer.Typer(add_completion=False)


@app.command()
def command(
    model: options.Model,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="Without it, standard input is read.", show_default=False)
    ] = None,
    special: Annotated[
        bool, typer.Option("--special", help="Take markers such as <|im_start|> as the tokens they name.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show the token ids of a text and the bytes each stands for.

    Examples:
      fucina tokenize smollm2 "Hello, world!"
      fucina tokenize smollm2 "<|im_start|>user" --special
      fucina tokenize smollm2 --json < letter.txt

    Bytes that are no UTF-8 by themselves, such as half an emoji, are shown as \\xNN.
    """
    path = find_model(model)
    with open_gguf(path) as gguf:
        tokenizer = Tokenizer.from_metadata(gguf.metadata, path=path)
    ids = tokenizer.encode(given_text("TEXT", text), special=special)
    pieces = [tokenizer.token_bytes(token).decode(errors="backslashreplace") for token in ids]
    if as_json:
        print(json.dumps({"ids": ids, "pieces": pieces}, ensure_ascii=False))
        return
    report.columns(terminal.stdout(), ((str(token), repr(piece)) for token, piece in zip(ids, pieces, strict=True)))
    terminal.note(f"{len(ids)} tokens")
