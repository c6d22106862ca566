"""Where one sequence stands in a grammar: what the processor needs of an engine for grammars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Matcher(Protocol):
    """The state of one sequence in its grammar. One thread at a time; whatever fails raises ConstraintFailed.

    A mask is (n_words,) uint32: bit id % 32 of word id // 32 says whether token id may come next. Tokens that end an
    answer may come exactly where the grammar accepts.
    """

    @property
    def n_words(self) -> int:
        """Words of a mask: enough for every token of the vocabulary."""

    @property
    def is_accepting(self) -> bool:
        """Whether the answer may end here."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing but an end may follow."""

    def masks(self, drafts: Sequence[int], out: NDArray[np.uint32]) -> int:
        """Write the mask of the next token, and of the one after each draft; give how many were written.

        out (len(drafts) + 1, n_words). Masks end at the first draft that is not allowed. Changes nothing; the GIL is
        free meanwhile.
        """

    def take(self, token: int) -> bool:
        """Go on by one token if the mask allows it. False: it does not, and nothing changed."""

    def consume(self, token: int) -> None:
        """Go on by one token that the mask allows. Raises ConstraintFailed for any other, which changes nothing."""

    def forced_tokens(self) -> Sequence[int]:
        """Tell the tokens that must follow because each is the only one allowed; of very many, the first.

        Changes nothing.
        """

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:
        """Count how many of these tokens, from the first on, may follow. Changes nothing."""

    def copy(self) -> Matcher:
        """A matcher of its own in the same state."""
