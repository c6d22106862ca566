"""What paths answer that ask nothing of the model."""

from __future__ import annotations

from typing import Literal

from fucina.server.wire.fields import WireReply


class LossyOptions(WireReply):
    """What the server was told to compute otherwise than the model means, to be faster."""

    moe_expert_top_p: float


class ModelEntry(WireReply):
    """A model by one of its names; `lossy` only where its answers are not those of its file."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int
    max_model_len: int
    lossy: LossyOptions | None = None


class ModelList(WireReply):
    """The model, by each of its names."""

    object: Literal["list"]
    data: list[ModelEntry]


class HealthReply(WireReply):
    """Answers can be had."""

    status: Literal["ok"]


class LiveReply(WireReply):
    """The process runs; `draining` tells whether it is about to end."""

    status: Literal["alive"]
    draining: bool
