"""The table of verbs, and the one place where a failure becomes a line on stderr and an exit code.

A verb's module is imported when the verb is used, so that `fucina --help` costs no NumPy.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import fucina
from fucina.cli import terminal
from fucina.cli.exits import INTERRUPTED, UNREADABLE, exit_code
from fucina.errors import ConfigError, FucinaError

#: verb -> (module with its `app`, one line for the list)
VERBS = {
    "run": ("fucina.cli.run", "Answer one prompt: text on stdout, statistics on stderr."),
    "chat": ("fucina.cli.chat", "Talk with a model."),
    "pull": ("fucina.cli.pull", "Fetch a model by name."),
    "inspect": ("fucina.cli.describe", "Show what a GGUF file holds, or what this machine offers."),
    "tokenize": ("fucina.cli.tokens", "Show the token ids and pieces of a text."),
    "serve": ("fucina.cli.serve", "Serve a model over HTTP: OpenAI, Anthropic and Ollama clients, and a chat page."),
    "bench": ("fucina.cli.bench", "Measure prefill and decode, beside what the memory allows."),
}


class Verb(TyperCommand):
    """A verb known by name and one line; the real command is imported when it is called."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command."""
        return load_verb(str(self.name)).make_context(info_name, args, parent, **extra)


class Verbs(TyperGroup):
    """The verbs in the table's order; FucinaError and a closed pipe end here."""

    def __init__(self, **attrs: Any) -> None:
        verbs = {name: Verb(name, help=line) for name, (_, line) in VERBS.items()}
        super().__init__(**attrs | {"commands": verbs})

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; a failure is one line on stderr and an exit code, never a traceback."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("once", UserWarning)
                warnings.showwarning = terminal.say_warning
                return super().invoke(ctx)
        except FucinaError as error:
            terminal.say_error(str(error))
            raise typer.Exit(exit_code(error)) from None
        except BrokenPipeError:  # the reader left, as `| head` does: nobody to tell
            leave_stdout()
            raise typer.Exit(1) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            terminal.say_error(f"{where}{error.strerror or error}")
            raise typer.Exit(UNREADABLE) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(cls=Verbs, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fucina {fucina.__version__}")
        raise typer.Exit


@app.callback()
def fucina_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Run language models on ordinary CPUs: GGUF in, text out.

    Examples:
      fucina run smollm2 -p "Name three primary colors."
      fucina chat smollm2
      fucina inspect model.gguf

    A MODEL is a path to a .gguf file or the name of a pulled model; smollm2 is pulled on first use.
    `fucina VERB --help` shows a verb's options and examples.
    """


def load_verb(name: str) -> Any:
    """Import the module of the verb `name` and give its command. Raises ConfigError where a package is missing."""
    try:
        module = importlib.import_module(VERBS[name][0])
    except ModuleNotFoundError as error:
        expected = f"the extra 'server', which `fucina {name}` needs: pip install 'fucina[server]'"
        raise ConfigError("packages", got=f"no '{error.name}'", expected=expected) from None
    command = typer.main.get_command(module.app)
    command.name = name
    return command


def leave_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush cannot fail on a closed pipe."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def main() -> None:
    """The console script `fucina`."""
    terminal.prepare_streams()
    app()
