"""A model's speculation behind the engine's lock: what sequences need of it, and what may be asked of it as a whole."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from fucina.engine.dispatch import Dispatcher
from fucina.engine.engine import Engine
from fucina.engine.speculation import Drafting, Speculation
from fucina.engine.wording import Codec
from fucina.errors import ConfigError, KvPoolFull

#: Tokens of a reference document: more than any context, few enough for its index to fit in memory.
REFERENCE_LIMIT = 1 << 22


class Drafts:
    """What a model does to answer faster than token by token. None of it changes an answer."""

    def __init__(
        self, speculation: Speculation | None, engine: Engine, dispatcher: Dispatcher, tokenizer: Codec, vocab: int
    ) -> None:
        self._speculation, self._engine, self._dispatcher = speculation, engine, dispatcher
        self._tokenizer, self._vocab = tokenizer, vocab

    def open(self, references: Sequence[str | Sequence[int]] = (), *, salt: str = "") -> Drafting | None:
        """Sources and gate for one more sequence; None without speculation, or while there is no room to price it.

        It learns from sequences of the same salt only, and teaches no others.
        Raises ConfigError for references that cannot be, or that nobody would read.
        """
        if references:
            self._checked()
        documents = [self._document(reference) for reference in references]
        if self._speculation is None:
            return None
        with self._dispatcher.exclusive():
            try:
                self._engine.learn_costs(self._speculation.costs)
            except KvPoolFull:
                return None
            drafting = self._speculation.drafting(salt)
        for document in documents:
            drafting.cascade.add_reference(document)
        return drafting

    def add_reference(self, drafting: Drafting | None, reference: str | Sequence[int]) -> None:
        """Let a sequence's drafts come from a document too. Raises ConfigError."""
        self._checked()
        document = self._document(reference)
        if drafting is not None:
            with self._dispatcher.exclusive():
                drafting.cascade.add_reference(document)

    def clear_references(self, drafting: Drafting | None) -> None:
        """Take a sequence's documents away again. Raises ConfigError without speculation."""
        self._checked()
        if drafting is not None:
            with self._dispatcher.exclusive():
                drafting.cascade.clear_references()

    def measure_costs(self) -> tuple[tuple[int, float], ...]:
        """Measure anew, and keep, what passes of several rows cost: (rows, time in passes of one row).

        Raises ConfigError without speculation, and KvPoolFull.
        """
        speculation = self._checked()
        with self._dispatcher.exclusive():
            return speculation.measure_costs().points

    def forget(self) -> None:
        """Forget what earlier answers taught the sources of drafts. It only ever made later ones faster."""
        if self._speculation is not None:
            with self._dispatcher.exclusive():
                self._speculation.forget()

    def _checked(self) -> Speculation:
        if self._speculation is None:
            raise ConfigError("speculation", got="a model without it", expected="one loaded with it")
        return self._speculation

    def _document(self, reference: str | Sequence[int]) -> list[int]:
        """The tokens of a document. Raises ConfigError."""
        ids = self._tokenizer.encode(reference) if isinstance(reference, str) else reference
        try:
            tokens = list(map(operator.index, ids))
        except TypeError:
            raise ConfigError("reference", got=ids, expected="a text, or whole numbers") from None
        if not 1 <= len(tokens) <= REFERENCE_LIMIT:
            raise ConfigError("reference", got=f"{len(tokens)} tokens", expected=f"1 to {REFERENCE_LIMIT}")
        bad = next((token for token in tokens if not 0 <= token < self._vocab), None)
        if bad is not None:
            raise ConfigError("reference", got=bad, expected=f"token ids from 0 to {self._vocab - 1}")
        return tokens
