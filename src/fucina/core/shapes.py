"""The legend of dimensions: one name for every axis, used in every docstring and check."""

from __future__ import annotations

LEGEND = {
    "rows": "tokens computed together in one pass, all sequences concatenated",
    "d_model": "width of the residual stream",
    "d_ff": "width of the feed-forward hidden layer",
    "d_in": "inputs of a product (the axis that is summed)",
    "d_out": "outputs of a product",
    "heads": "query heads",
    "kv_heads": "key/value heads",
    "d_head": "width of one head",
    "positions": "token positions of one sequence, from 0",
    "block": "64 consecutive positions of the KV cache",
    "vocab": "width of a row of logits, padding ids included",
}

#: Positions in one KV block. Attention's arithmetic is defined on blocks of this size, so it never changes.
KV_BLOCK = 64
