"""A causal language model without weights: what it says depends on every token it reads back from its KV cache.

It writes each token of a pass into the KV blocks it was given and predicts from what it then reads there. So a wrong
block table, a wrong position, a missing truncation or a block shared by mistake changes what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fucina.core.shapes import KV_BLOCK
from fucina.errors import ShapeError
from fucina.models.pooling import Pooling
from fucina.ops.batch import Batch, Span
from fucina.storage.kv.geometry import KvGeometry, LayerGeometry
from fucina.storage.kv.pool import KvPool

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: From all tokens so far to the token that must follow, or None to let the noise decide.
Script = Callable[[Sequence[int]], int | None]

_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SCRIPTED_LOGIT = np.float32(40.0)


class ScriptedModel:
    """A CausalLM over its own KV pool. Logits are noise in [-8, 8) made of the prefix; a script may single one out.

    Hidden states are noise of the same kind, `d_model` values wide.

    `n_forwards` and `n_rows` count the passes and rows computed.
    """

    def __init__(
        self,
        *,
        vocab: int = 272,
        context_length: int = 512,
        max_rows: int = 64,
        kv_blocks: int | None = None,
        script: Script | None = None,
        pooling: Pooling | None = None,
        can_rewind: bool = True,
    ) -> None:
        self.family, self.can_rewind = "scripted", can_rewind
        self.vocab, self.context_length, self.max_rows, self.script = vocab, context_length, max_rows, script
        self.d_model, self.pooling = 8, pooling
        # one head of width 1 in f16: a key and a value of 16 bits for each position, the two halves of its token
        self.kv_geometry = KvGeometry((LayerGeometry(1, 1),))
        blocks = 8 * -(-context_length // KV_BLOCK) if kv_blocks is None else kv_blocks
        self.kv_pool = KvPool(self.kv_geometry, blocks)
        self._halves = np.frombuffer(self.kv_pool.memory, np.uint16).reshape(blocks, 2, KV_BLOCK)
        self._ids = np.arange(max(vocab, self.d_model), dtype=np.uint64) * _MIX[1]
        self._weights = _noise(np.arange(context_length + 1, dtype=np.uint64))
        self.n_forwards = self.n_rows = 0

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Write the tokens into their blocks; logits (batch.n_logits, vocab) f32. Raises ShapeError."""
        self._count(batch)
        rows = [self._span(span) for span in batch.spans]
        return np.concatenate(rows) if rows else np.empty((0, self.vocab), np.float32)

    def forward_hidden(self, batch: Batch) -> NDArray[np.float32]:
        """Write the tokens into their blocks; hidden states (batch.n_rows, d_model) f32. Raises ShapeError."""
        self._count(batch)
        rows = [self._noise_of(self._write(span), len(span.tokens), self.d_model) for span in batch.spans]
        return np.concatenate(rows) if rows else np.empty((0, self.d_model), np.float32)

    def _count(self, batch: Batch) -> None:
        if batch.n_rows > self.max_rows:
            raise ShapeError("rows of a pass", expected=f"at most {self.max_rows}", got=batch.n_rows)
        self.n_forwards += 1
        self.n_rows += batch.n_rows

    def _span(self, span: Span) -> NDArray[np.float32]:
        """Write one span and give its logits (span.n_logits, vocab)."""
        prefix = self._write(span)
        logits = self._noise_of(prefix, span.n_logits, self.vocab)
        if self.script is not None:
            for row in range(span.n_logits):
                said = self.script(prefix[: len(prefix) - span.n_logits + row + 1].tolist())
                if said is not None:
                    logits[row, said] = _SCRIPTED_LOGIT
        return logits

    def _write(self, span: Span) -> NDArray[np.uint32]:
        """Write one span and give the whole prefix that the cache holds then."""
        end = span.start + len(span.tokens)
        if not 0 <= span.n_logits <= len(span.tokens) or end > len(span.blocks) * KV_BLOCK:
            raise ShapeError("span", expected=f"tokens within {len(span.blocks)} blocks", got=f"positions to {end}")
        for position, token in enumerate(span.tokens, span.start):
            self._halves[span.blocks[position // KV_BLOCK], :, position % KV_BLOCK] = token & 0xFFFF, token >> 16
        halves = self._halves[list(span.blocks)].astype(np.uint32)
        prefix = halves[:, 0] | halves[:, 1] << np.uint32(16)
        return prefix.ravel()[:end]

    def _noise_of(self, prefix: NDArray[np.uint32], n_rows: int, width: int) -> NDArray[np.float32]:
        """Noise (n_rows, width) in [-8, 8) of the prefix's last positions."""
        end = len(prefix)
        hashes = np.cumsum(_noise(prefix.astype(np.uint64) + self._weights[:end]))[end - n_rows :]
        noise = _noise(hashes[:, None] + self._ids[:width])
        return (noise >> np.uint64(44)).astype(np.float32) / np.float32(2**16) - np.float32(8.0)


def follow(text: Sequence[int]) -> Script:
    """Script a fixed text: after its first n tokens comes its next one; after anything else, noise."""
    tokens = list(text)

    def script(prefix: Sequence[int]) -> int | None:
        n = len(prefix)
        return tokens[n] if n < len(tokens) and list(prefix) == tokens[:n] else None

    return script


def _noise(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64 bits well (the finalizer of SplitMix64; Steele, Lea and Flood, OOPSLA 2014)."""
    x = x + _MIX[0]
    x = (x ^ (x >> np.uint64(30))) * _MIX[1]
    x = (x ^ (x >> np.uint64(27))) * _MIX[2]
    return x ^ (x >> np.uint64(31))
