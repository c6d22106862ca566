"""How routed experts are held: what may be asked of `fucina.load`, understood."""

from __future__ import annotations

from typing import TypedDict

from fucina.core.units import byte_count
from fucina.errors import ConfigError
from fucina.models.streaming import exceeds_memory
from fucina.storage.experts.options import StreamOptions
from fucina.storage.gguf import GgufFile


class ExpertOptions(TypedDict, total=False):
    """Options of `fucina.load` for mixtures of experts. Each may be left out; only the last changes what is computed.

    moe_stream  routed experts stay in the file and are read when a pass needs them, into memory that holds those used
                most. None: where moe_cache or moe_pin is given, or the model is larger than the memory that is free.
    moe_cache   bytes, or a size such as '4G', for experts in memory, at least one a layer; None: half of what is free.
    moe_pin     of these for the experts that earlier runs used most, which stay there; None: half.
    moe_learn   remembers which experts are used, in a small file beside the model, or in FUCINA_HOME. True.
    moe_pilot   asks the next layer's router ahead of time, and reads what it would choose first. None: where the
                experts are larger than the memory that is free, so that reading them means waiting for the disk.

    moe_expert_top_p  LOSSY, the only option that is: of the experts that a token chooses, only those with the greatest
                      weights are computed, the fewest that have this share of the weight of all. Less is read and
                      computed, and other text comes out. From 1 on, and by default, nothing is left out.
    """

    moe_stream: bool | None
    moe_cache: int | str | None
    moe_pin: int | str | None
    moe_learn: bool
    moe_pilot: bool | None
    moe_expert_top_p: float | None


def expert_top_p(given: ExpertOptions) -> float | None:
    """The share of their weight for which a token's experts are computed; None where all are. Raises ConfigError."""
    share = given.get("moe_expert_top_p")
    if share is None:
        return None
    if isinstance(share, bool) or not isinstance(share, int | float) or not share > 0.0:
        raise ConfigError("moe_expert_top_p", got=share, expected="more than 0; from 1 on nothing is left out")
    return float(share) if share < 1.0 else None


def stream_options(gguf: GgufFile, given: ExpertOptions) -> StreamOptions | None:
    """How experts are read when they are needed; None: all are held.

    Raises ConfigError for options that contradict each other, and TypeError for one that does not exist.
    """
    if unknown := sorted(given.keys() - ExpertOptions.__annotations__.keys()):
        raise TypeError(f"load() has no option '{unknown[0]}'")
    wanted, cache, pin = given.get("moe_stream"), given.get("moe_cache"), given.get("moe_pin")
    sizes = {name: size for name, size in (("moe_cache", cache), ("moe_pin", pin)) if size is not None}
    if wanted is False and sizes:
        name, size = sizes.popitem()
        raise ConfigError(name, got=size, expected="no moe_stream=False: all experts are in memory then")
    if wanted is False or (wanted is None and not sizes and not exceeds_memory(gguf)):
        return None
    return StreamOptions(
        cache_bytes=None if cache is None else byte_count(cache, "moe_cache"),
        pin_bytes=None if pin is None else byte_count(pin, "moe_pin"),
        learn=given.get("moe_learn", True),
        pilot=given.get("moe_pilot"),
    )
