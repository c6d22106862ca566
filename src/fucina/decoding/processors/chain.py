"""Several processors as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from fucina.decoding.processors.contract import (
    Constraining,
    LogitProcessor,
    PassListener,
    StructuralProcessor,
)
from fucina.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fucina.decoding.grammar.costs import MaskCosts


class ProcessorChain:
    """Runs processors one after the other, as one.

    At most one of them may be structural (a grammar). Wherever it stands it runs last, so that its mask is final, and
    the chain looks ahead as it does.
    """

    def __new__(cls, *processors: LogitProcessor) -> Self:
        """A chain that looks ahead where one of its processors does: an absent look is information."""
        if any(isinstance(processor, StructuralProcessor) for processor in processors) and cls is ProcessorChain:
            return object.__new__(_StructuralChain)  # type: ignore[return-value]
        return object.__new__(cls)

    def __init__(self, *processors: LogitProcessor) -> None:
        """Raises ConfigError for several structural ones, and for one that stands there twice."""
        if len({id(processor) for processor in processors}) < len(processors):
            raise ConfigError("processors", got=processors, expected="each of them once: it learns every token once")
        structural = [processor for processor in processors if isinstance(processor, StructuralProcessor)]
        if len(structural) > 1:
            raise ConfigError("processors", got=structural, expected="at most one that is structural, as grammars are")
        self._processors = [
            *(processor for processor in processors if not isinstance(processor, StructuralProcessor)),
            *structural,
        ]
        self._structural = structural[0] if structural else None
        self._listeners = [processor for processor in processors if isinstance(processor, PassListener)]

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:
        """Let each change the logits in turn."""
        for processor in self._processors:
            processor.process(logits, history)

    def commit(self, token: int) -> None:
        """Tell each."""
        for processor in self._processors:
            processor.commit(token)

    def reset(self) -> None:
        """Make each as new."""
        for processor in self._processors:
            processor.reset()

    def prepare(self, drafts: Sequence[int]) -> None:
        """Tell each that listens that a pass begins."""
        for listener in self._listeners:
            listener.prepare(drafts)


class _StructuralChain(ProcessorChain):
    """A chain whose last processor looks ahead."""

    def forced_tokens(self, max_tokens: int) -> Sequence[int]:
        """What the structural processor says must follow."""
        assert self._structural is not None
        return self._structural.forced_tokens(max_tokens)

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:
        """How many of the tokens the structural processor allows."""
        assert self._structural is not None
        return self._structural.valid_prefix_len(tokens)

    @property
    def mask_costs(self) -> MaskCosts | None:
        """What the structural processor's masks took."""
        return self._structural.mask_costs if isinstance(self._structural, Constraining) else None

    def is_satisfied(self, *, ended: bool) -> bool | None:
        """Whether the structural processor has a whole answer."""
        return self._structural.is_satisfied(ended=ended) if isinstance(self._structural, Constraining) else None
