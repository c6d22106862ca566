"""Constraints to matchers: compiled once per content, under limits of time and memory."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import llguidance

from fucina.decoding.grammar.constraint import Constraint
from fucina.decoding.grammar.matcher import GrammarMatcher
from fucina.decoding.grammar.schema import checked_schema
from fucina.decoding.grammar.vocabulary import GrammarVocabulary
from fucina.errors import BadGrammar, BadSchema

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_LIMITS = llguidance.LLParserLimits(verbose_errors=False)
_JSON: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Compiler:
    """Gives matchers for one vocabulary. Any number of threads may call; what was compiled lately is kept."""

    def __init__(self, vocabulary: GrammarVocabulary, *, max_kept: int = 64, max_kept_bytes: int = 16 << 20) -> None:
        """Keep at most so many compiled constraints, and so many bytes of their texts."""
        self._vocabulary = vocabulary
        self._max_kept, self._max_kept_bytes = max_kept, max_kept_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Constraint, GrammarMatcher] = OrderedDict()

    def matcher(self, constraint: Constraint) -> GrammarMatcher:
        """Give a matcher at the start of the constraint.

        Compiles on the caller's thread, up to about a second for the worst there is. Raises BadSchema, BadGrammar and
        ConstraintTooLarge.
        """
        with self._lock:
            found = self._kept.get(constraint)
            if found is not None:
                self._kept.move_to_end(constraint)
                return found.copy()
        compiled = self._compile(constraint)
        with self._lock:
            self._kept[constraint] = compiled
            while len(self._kept) > 1 and (
                len(self._kept) > self._max_kept or sum(len(c.text) for c in self._kept) > self._max_kept_bytes
            ):
                self._kept.popitem(last=False)
            return compiled.copy()

    def _compile(self, constraint: Constraint) -> GrammarMatcher:
        state = llguidance.LLMatcher(self._vocabulary.trie, _grammar(constraint), log_level=0, limits=_LIMITS)
        if state.is_error():
            error = BadSchema if constraint.kind == "json_schema" else BadGrammar
            raise error(state.get_error())
        return GrammarMatcher(state, self._vocabulary)


def _grammar(constraint: Constraint) -> str:
    """The constraint in the engine's own form."""
    if constraint.kind == "regex":
        return llguidance.LLMatcher.grammar_from_regex(constraint.text)
    if constraint.kind == "lark":
        return llguidance.LLMatcher.grammar_from_lark(constraint.text)
    schema = json.dumps(checked_schema(constraint.text), ensure_ascii=False, separators=(",", ":"))
    return llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=_JSON)
