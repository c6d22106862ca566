"""What may change logits before a token is chosen: a grammar, a bias, a ban. It sits inside the picker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fucina.decoding.grammar.costs import MaskCosts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LogitProcessor(Protocol):
    """Changes the logits of one sequence. Every way of decoding calls it in the same order, so it constrains them all.

    Never share one between sequences that are alive together. If it raises, its sequence ends with that error.
    """

    def process(self, logits: NDArray[np.float32], history: Sequence[int]) -> None:
        """Change logits (vocab,) in place; -inf forbids a token. Both arguments are borrowed for the call only."""

    def commit(self, token: int) -> None:
        """Learn the token that was chosen: called exactly once after each process. Committed tokens never roll back.

        Of a `Forbidding` processor also after an `only_token` or `allowed` in place of process; a `take` that says yes
        is a commit.
        """

    def reset(self) -> None:
        """Become as new: called before the first process of an answer."""


@runtime_checkable
class StructuralProcessor(Protocol):
    """A processor that can look ahead. Both looks are pure: they change nothing and depend on nothing but commits."""

    def forced_tokens(self, max_tokens: int) -> Sequence[int]:
        """Tell the tokens, at most that many, that must follow because no other is allowed."""

    def valid_prefix_len(self, tokens: Sequence[int]) -> int:
        """Count how many of these tokens, from the first on, would be allowed one after the other."""


@runtime_checkable
class Forbidding(Protocol):
    """A processor that does nothing but forbid tokens, and can tell of some choices without changing logits."""

    def only_token(self) -> int | None:
        """The one token that `process` would leave; None where there are several, or that is not known."""

    def allowed(self) -> NDArray[np.uint32] | None:
        """The mask that `process` would apply, as of `RowScans.apply_bitmask`; None where there is none.

        It is valid until anything else is asked of the processor.
        """

    def take(self, token: int) -> bool:
        """Commit a token if `process` would leave it a logit above -inf; False: it would not, and nothing changed."""


@runtime_checkable
class PassListener(Protocol):
    """A processor with work of its own, which it can do while the model computes."""

    def prepare(self, drafts: Sequence[int]) -> None:
        """Take note that a pass begins: the next token will be chosen behind it, and those behind right drafts."""


@runtime_checkable
class Constraining(Protocol):
    """A processor that holds an answer to a form. Such an answer ends, so it cannot ignore the model's end tokens."""

    @property
    def mask_costs(self) -> MaskCosts | None:
        """What the masks of this answer took so far; None where there are none."""

    def is_satisfied(self, *, ended: bool) -> bool | None:
        """Whether what was committed is a whole answer; None: nothing is asked of it.

        `ended`: the last token only ended the answer, and is no part of it.
        """
