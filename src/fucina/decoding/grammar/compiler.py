"""Constraints to matchers: compiled once per content, under limits of time and memory."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict

import llguidance
import numpy as np

from fucina.decoding.grammar.checking import CheckedSchema
from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.contract import Matcher
from fucina.decoding.grammar.keys_left import KeysLeftMatcher
from fucina.decoding.grammar.lark_text import JSON_FORM, engine_lark
from fucina.decoding.grammar.matcher import GrammarMatcher
from fucina.decoding.grammar.open_objects import has_other_keys, has_patterns_for_keys
from fucina.decoding.grammar.schema import checked_schema
from fucina.decoding.grammar.suspects import culprit
from fucina.decoding.grammar.trial import FREE_LIMITS, SCHEMA_LIMITS, Limits, Trial, tried
from fucina.decoding.grammar.unique_keys import UniqueKeysMatcher
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.errors import BadGrammar, BadSchema, ConstraintError, ConstraintFailed, ConstraintTooLarge

#: How the engine words that a limit was reached.
_TOO_LARGE = re.compile(r"too (?:big|large|many|deep|complex)|limit|max is|fuel|Unable to determine if regex is empty")


class Compiler:
    """Gives matchers for one vocabulary. Any number of threads may call; what was compiled lately is kept."""

    def __init__(self, vocabulary: GrammarVocabulary, *, max_kept: int = 64, max_kept_text: int = 4 << 20) -> None:
        """Keep at most so many compiled constraints, and so many characters of their texts."""
        self._vocabulary = vocabulary
        self._max_kept, self._max_kept_text = max_kept, max_kept_text
        self._lock = threading.Lock()
        self._kept: OrderedDict[Constraint, Matcher] = OrderedDict()

    def matcher(self, constraint: Constraint) -> Matcher:
        """Give a matcher at the start of the constraint. Objects of a schema have each of their keys once.

        Compiles on the caller's thread, some milliseconds for a usual schema and two seconds at most, after a trial in
        a process of its own. Raises BadSchema, BadGrammar and ConstraintTooLarge.
        """
        with self._lock:
            found = self._kept.get(constraint)
            if found is not None:
                self._kept.move_to_end(constraint)
                return found.copy()
        compiled = self._compile(constraint)
        with self._lock:
            self._kept[constraint] = compiled
            self._kept.move_to_end(constraint)
            while len(self._kept) > 1 and (
                len(self._kept) > self._max_kept or sum(len(c.text) for c in self._kept) > self._max_kept_text
            ):
                self._kept.popitem(last=False)
            return compiled.copy()

    def _compile(self, constraint: Constraint) -> Matcher:
        limits = FREE_LIMITS if constraint.kind in ("regex", "lark") else SCHEMA_LIMITS
        grammar, schemas = _engine_grammar(constraint)
        trial = tried(grammar, limits)
        if trial.reason:
            raise _typed(constraint, trial, limits)
        state = llguidance.LLMatcher(
            self._vocabulary.trie, grammar, log_level=0, limits=llguidance.LLParserLimits(**asdict(limits))
        )
        if state.is_error():
            raise _typed(constraint, Trial("compile", state.get_error()), limits)
        matcher = GrammarMatcher(state, self._vocabulary)
        try:  # the first step is taken here, so that what cannot be followed at all is known at once
            matcher.masks((), np.empty((1, matcher.n_words), np.uint32))
            matcher.forced_tokens()
        except ConstraintFailed as error:
            raise _typed(constraint, Trial("step", str(error)), limits) from error
        return self._with_unique_keys(schemas, matcher)

    def _with_unique_keys(self, schemas: Sequence[CheckedSchema], matcher: GrammarMatcher) -> Matcher:
        """A matcher that keeps keys unique where the grammar of a schema does not."""
        if not any(map(has_other_keys, schemas)):
            return matcher
        unique = UniqueKeysMatcher(matcher, self._vocabulary)
        return KeysLeftMatcher(unique) if any(map(has_patterns_for_keys, schemas)) else unique


def _engine_grammar(constraint: Constraint) -> tuple[str, Sequence[CheckedSchema]]:
    """The constraint in the engine's own form, and the schemas whose objects are all the braces in its texts."""
    if constraint.kind == "regex":
        return llguidance.LLMatcher.grammar_from_regex(constraint.text), ()
    if constraint.kind == "json_schema":
        schema = checked_schema(constraint.text)
        return _schema_grammar(schema.for_engine()), (schema,)
    text, schemas = engine_lark(constraint.text)
    return llguidance.LLMatcher.grammar_from_lark(text), schemas if constraint.kind == "json_lark" else ()


def _schema_grammar(schema: object) -> str:
    text = json.dumps(schema if isinstance(schema, dict) else {"allOf": [schema]}, ensure_ascii=False)
    return llguidance.LLMatcher.grammar_from_json_schema(text, overrides=JSON_FORM)


def _typed(constraint: Constraint, trial: Trial, limits: Limits) -> ConstraintError:
    """The error for what the engine said, without the schema's text in it."""
    reason = trial.reason.partition("\n<non-verbose/>")[0].strip()
    too_large = bool(_TOO_LARGE.search(reason))
    if trial.stage == "step" and not too_large:
        reason = f"no text fits it ({reason})"
    reason = reason if len(reason) <= 300 else f"{reason[:300]}..."
    if constraint.kind != "json_schema":
        return ConstraintTooLarge(reason) if too_large else BadGrammar(f"{constraint.kind}: {reason}")
    path, keyword = culprit(
        checked_schema(constraint.text), lambda schema: tried(_schema_grammar(schema), limits), spent_s=trial.cpu_s
    )
    if too_large:
        return ConstraintTooLarge(f"schema at {path}{'' if keyword is None else f', {keyword!r}'}: {reason}")
    return BadSchema(reason, path=path, keyword=keyword)
