"""What a model has for constraints on its answers: its tokens as a trie, compiled constraints, a processor each."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import cached_property
from threading import Lock

from fucina.decoding.grammar.compiler import Compiler
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.processor import GrammarProcessor, Thinking
from fucina.decoding.grammar.schema import unbounded_paths
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.decoding.processors.chain import ProcessorChain
from fucina.decoding.processors.contract import LogitProcessor
from fucina.decoding.scans import open_scans
from fucina.engine.events import Event, FinishEvent
from fucina.engine.thoughts import Thoughts
from fucina.engine.wording import Codec
from fucina.errors import ConfigError


class UnboundedAnswerWarning(UserWarning):
    """An answer ran out of tokens in a place where its schema would have let it go on forever."""


class Constraints:
    """Gives each constrained request its processor. Any number of threads may use it; nothing here waits for a step."""

    def __init__(self, tokenizer: Codec) -> None:
        self._tokenizer = tokenizer
        self._lock = Lock()
        self._compiler: Compiler | None = None
        self._scans = open_scans()

    def prepare(self) -> None:
        """Build now what the first constrained request would build: 0.2 s for 50,000 tokens, 1.6 s for 260,000.

        The interpreter is busy meanwhile, so a server does it before it serves. Raises ConfigError for a model without
        an end token.
        """
        self._prepared()

    def processor(
        self, constraint: Constraint | None, prompt_ids: Sequence[int], own: LogitProcessor | None
    ) -> LogitProcessor | None:
        """Give what holds the answer to a prompt to its constraint, behind the caller's own processor.

        Compiles on the caller's thread. Raises BadSchema, BadGrammar, ConstraintTooLarge and ConfigError.
        """
        if constraint is None:
            return own
        if not isinstance(constraint, Constraint):
            raise ConfigError(
                "constraint", got=constraint, expected="one that Constraint.json_schema, .regex, .lark gave"
            )
        grammar = GrammarProcessor(
            self._prepared().matcher(constraint),
            self._scans,
            end_ids=self._tokenizer.eog_ids,
            thinking=self.thinking(prompt_ids),
        )
        return grammar if own is None else ProcessorChain(own, grammar)

    def thinking(self, prompt_ids: Sequence[int]) -> Thinking | None:
        """How an answer to this prompt may begin to think: None where its model does not, or the prompt says it has.

        Needs nothing of what `prepare` builds.
        """
        return self._thoughts.after(prompt_ids)

    def answer_text(self, prompt_ids: Sequence[int], ids: Sequence[int], text: str) -> str:
        """The part of an answer that its constraint is about: its text, without thoughts before it."""
        return self._thoughts.answer(prompt_ids, ids, text)

    @cached_property
    def _thoughts(self) -> Thoughts:
        return Thoughts(self._tokenizer)

    def _prepared(self) -> Compiler:
        with self._lock:
            if self._compiler is None:
                self._compiler = Compiler(GrammarVocabulary(self._tokenizer))
            return self._compiler


def watched(events: Generator[Event, None, None], constraint: Constraint | None) -> Generator[Event, None, None]:
    """Pass events on; warn where they end with an answer that its constraint let go on without end."""
    if constraint is None:
        yield from events
        return
    with closing(events):
        for event in events:
            if isinstance(event, FinishEvent) and event.reason == "length" and event.satisfied is False:
                _warn(constraint)
            yield event


def remedy(constraint: Constraint) -> str:
    """What to do about an answer that ran out of tokens: the open places of its schema, and how to bound them."""
    paths = unbounded_paths(constraint)
    if not paths:
        return "raise max_tokens"
    shown = ", ".join(paths[:_SHOWN_PATHS]) + (f" and {len(paths) - _SHOWN_PATHS} more" if paths[_SHOWN_PATHS:] else "")
    return (
        f"nothing bounds {shown}, so bound it (text by maxLength, whole numbers by minimum and maximum, others by "
        "multipleOf too, arrays by maxItems, objects by additionalProperties: false) or raise max_tokens"
    )


_SHOWN_PATHS = 8


def _warn(constraint: Constraint) -> None:
    if unbounded_paths(constraint):
        message = f"an answer ran out of tokens before it was whole: {remedy(constraint)}"
        warnings.warn(message, UnboundedAnswerWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """How many frames above `_warn` the caller's code begins."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fucina":
        level, frame = level + 1, frame.f_back
    return level
