"""Trying a grammar in a process of its own before this one compiles it."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from fucina.core.worker import Worker, WorkerDied
from fucina.errors import ConstraintTooLarge


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one grammar may cost the engine; see `llguidance.LLParserLimits`."""

    max_items_in_row: int
    step_max_items: int
    initial_lexer_fuel: int = 1_000_000
    step_lexer_fuel: int = 200_000
    max_lexer_states: int = 100_000
    max_grammar_size: int = 500_000
    verbose_errors: bool = False


#: Grammars of schemas are not ambiguous, so that long rows cost little; free grammars may be ever so ambiguous.
SCHEMA_LIMITS = Limits(max_items_in_row=2000, step_max_items=50_000)
FREE_LIMITS = Limits(max_items_in_row=500, step_max_items=10_000)


@dataclass(frozen=True, slots=True)
class Trial:
    """What the engine has against a grammar, while compiling it (stage "compile") or in the first steps ("step").

    `reason` is empty for a grammar that it takes; `cpu_s` is the time it took.
    """

    stage: str
    reason: str
    cpu_s: float = 0.0


def tried(grammar: str, limits: Limits) -> Trial:
    """Try a grammar in the engine's form. Raises ConstraintTooLarge for one that ends the process over it."""
    request = json.dumps({"grammar": grammar, "limits": asdict(limits)}).encode()
    try:
        answer = json.loads(_shared_worker().ask(request))
    except WorkerDied as error:
        raise ConstraintTooLarge(f"the constraint was stopped while it was tried: {error}") from error
    return Trial(answer.get("stage", ""), answer.get("error", ""), answer["cpu_s"])


@functools.cache
def _shared_worker() -> Worker:
    """The worker of this process, in which all constraints take turns."""
    return Worker(Path(__file__).with_name("trial_worker.py"), "llguidance")
