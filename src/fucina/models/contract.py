"""What the rest of the house knows of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fucina.models.pooling import Pooling
from fucina.ops.batch import Batch
from fucina.storage.kv.geometry import KvGeometry
from fucina.storage.kv.pool import KvPool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class CausalLM(Protocol):
    """A causal language model bound to an Ops backend and to one KV pool.

    The law: a row of logits, or of hidden states, is a pure function of (model file, tokens up to that row), the same
    bits for every batch.
    """

    @property
    def family(self) -> str:
        """What the family is called in files: their general.architecture."""

    @property
    def can_rewind(self) -> bool:
        """Whether its cache can be cut back to any earlier length. A state that runs along with the tokens cannot."""

    @property
    def vocab(self) -> int:
        """Width of a row of logits, padding ids included."""

    @property
    def d_model(self) -> int:
        """Width of a row of hidden states."""

    @property
    def pooling(self) -> Pooling | None:
        """How the file wants the hidden states of a text made into one vector; None where it does not say."""

    @property
    def context_length(self) -> int:
        """Positions the model was made for."""

    @property
    def max_rows(self) -> int:
        """Rows that one pass can take."""

    @property
    def kv_geometry(self) -> KvGeometry:
        """What one position costs in the cache."""

    @property
    def kv_pool(self) -> KvPool:
        """The pool whose blocks a Batch may name."""

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Compute every row of `batch`, writing K and V into the pool.

        Returns logits (batch.n_logits, vocab) f32, borrowed until the next forward. The caller has checked that token
        ids lie in the vocabulary and that the blocks are the sequence's own. Raises ShapeError for too many rows.
        """

    def forward_hidden(self, batch: Batch) -> NDArray[np.float32]:
        """Compute every row of `batch` like `forward`, up to where logits would be made from it.

        Returns the hidden states behind the last norm, (batch.n_rows, d_model) f32, of all rows, whatever logits the
        spans want; borrowed until the next forward of either kind. Raises ShapeError for too many rows.
        """
