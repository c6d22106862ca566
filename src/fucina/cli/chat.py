"""`fucina chat`: a conversation in the terminal."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fucina.cli import answer, options, terminal
from fucina.cli.given import given_references
from fucina.cli.groups import Computing, Experts, Form, Keeping, Sampling, grouped
from fucina.cli.opening import open_model
from fucina.cli.signals import soft_interrupt
from fucina.decoding.params import SamplingParams
from fucina.errors import FucinaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fucina.decoding.grammar.constraint import Constraint
    from fucina.engine.conversation import Conversation

app = typer.Typer(add_completion=False)

HELP = """\
/reset   forget the conversation
/stats   statistics after each answer, on or off
/help    this list
/bye     leave (so does Ctrl-D)
Ctrl-C stops an answer."""


@app.command()
@grouped
def command(
    model: options.Model,
    *,
    system: options.System = None,
    kv_save: options.KvSave = None,
    max_tokens: options.MaxTokens = None,
    sampling: Sampling,
    form: Form,
    spec: options.Spec = True,
    spec_ref: options.SpecRef = None,
    computing: Computing,
    keeping: Keeping,
    experts: Experts,
) -> None:
    """Talk with a model. Ctrl-C stops an answer, Ctrl-D or /bye leaves, /help lists the rest.

    Examples:
      fucina chat smollm2
      fucina chat smollm2 --system "You answer in one short sentence." --temp 0.7
      printf 'Name a river.\\nAnd a mountain.\\n' | fucina chat smollm2
      fucina chat smollm2 --spec-ref manual.txt
      fucina chat smollm2 --system "$(cat rules.txt)" --kv-cache-dir ~/.cache/fucina/kv
      fucina chat smollm2 --kv-save holiday.chat
      fucina chat smollm2 --json-schema '{"type": "object", "properties": {"answer": {"type": "string"}}}' -n 200

    A form (--json-schema, --regex, --lark) is that of every answer.
    """
    params = sampling.params(max_tokens)
    references = given_references(spec_ref, speculation=spec)
    constraint = form.constraint()
    answer.expect_cuts()
    with (
        open_model(model, computing, keeping, experts, speculation=spec) as loaded,
        loaded.conversation(system, file=kv_save) as conversation,
    ):
        if kv_save is not None:
            terminal.note(resumed(conversation, kv_save))
        Talk(conversation, params, references, constraint, lambda: answer.expert_lines(loaded)).run()


def resumed(conversation: Conversation, file: Path) -> str:
    """Tell what a conversation goes on with."""
    n_turns = sum(message["role"] == "user" for message in conversation.messages)
    return f"{file}: {n_turns} turns resumed, {conversation.cached_tokens} tokens of them ready"


class Talk:
    """The loop: read a line, obey it or answer it, until the person leaves."""

    def __init__(
        self,
        conversation: Conversation,
        params: SamplingParams,
        references: list[str],
        constraint: Constraint | None = None,
        more_statistics: Callable[[], list[str]] = list,
    ) -> None:
        self._more_statistics = more_statistics
        self._params, self._constraint = params, constraint
        self._conversation = conversation
        for reference in references:
            self._conversation.add_reference(reference)
        self._interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._show_statistics = False

    def run(self) -> None:
        """Talk until /bye or the end of input."""
        if self._interactive:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # gives input() its line editing and history
            terminal.note("/help lists what you can do; Ctrl-D leaves.")
        while (line := self._read_line()) is not None:
            if line.startswith("/"):
                if line in ("/bye", "/exit", "/quit"):
                    return
                self._obey(line)
            elif line:
                self._answer(line)

    def _read_line(self) -> str | None:
        """The next line, or None at the end; Ctrl-C empties the line."""
        try:
            return input(">>> " if self._interactive else "").strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            print()
            terminal.note("Ctrl-D or /bye leaves.")
            return ""

    def _obey(self, line: str) -> None:
        if line == "/reset":
            self._conversation.reset()
            terminal.note("forgotten")
        elif line == "/stats":
            self._show_statistics = not self._show_statistics
            terminal.note(f"statistics {'on' if self._show_statistics else 'off'}")
        else:
            terminal.stderr().print(HELP, markup=False)

    def _answer(self, line: str) -> None:
        """One turn. What goes wrong in it is told to a person, and the conversation goes on; a pipe gets the error."""
        finish = None
        try:
            with soft_interrupt() as interrupt:
                events = self._conversation.stream(line, self._params, constraint=self._constraint)
                finish = answer.speak(events, interrupt)
            if finish is not None:
                answer.check_whole(finish, self._constraint)
        except KeyboardInterrupt:  # the second one: the prompt was still being read
            print(flush=True)
        except FucinaError as error:
            if not self._interactive:
                raise
            terminal.say_error(str(error))
            return
        if finish is None:
            terminal.note("(stopped)")
        elif self._show_statistics:
            lines = answer.statistics(finish, sampled=not self._params.is_greedy)
            for statistic in (*lines, *self._more_statistics()):
                terminal.note(statistic)
