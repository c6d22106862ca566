"""Reading a model's hyperparameters: by necessity, in range, leaving nothing unread that changes the mathematics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fucina.errors import BadHeader, MissingKey, UnsupportedModel

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_SCALARS = (bool, int, float, str)

#: Keys that never change a logit: sizes that tensors say better, notes of converters.
HARMLESS = frozenset({"vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "attention.layer_norm_epsilon"})

#: Keys of mathematics that is not implemented, each with the values that switch it off.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.output_scale": (0, 1),
    "attention.scale": (0,),
    "attention.shared_kv_layers": (0,),
    "attention.temperature_scale": (0,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "embedding_scale": (0, 1),
    "residual_scale": (0, 1),
    "logit_scale": (0, 1),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "full_attention_interval": (0, 1),
    "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,),
    "rope.scaling.yarn_log_multiplier": (0,),
    "swin_norm": (False,),
    "use_parallel_residual": (False,),
}


class Kind(Protocol[T_co]):
    """A type and a range that a value must have."""

    @property
    def expected(self) -> str:
        """What is allowed, for messages."""

    def read(self, value: object) -> T_co | None:
        """The value, or None if its type is wrong. Raises ValueError if it is out of range."""


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `low` to `high`."""

    low: int
    high: int

    @property
    def expected(self) -> str:
        """'an integer from 1 to 512'."""
        return f"an integer from {self.low} to {self.high}"

    def read(self, value: object) -> int | None:
        """The number, None for another type. Raises ValueError."""
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        if not self.low <= value <= self.high:
            raise ValueError
        return value


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number, greater than `above` (or equal to it where `inclusive`)."""

    above: float = 0.0
    inclusive: bool = False

    @property
    def expected(self) -> str:
        """'a finite number above 0'."""
        return f"a finite number {'of at least' if self.inclusive else 'above'} {self.above:g}"

    def read(self, value: object) -> float | None:
        """The number, None for another type. Raises ValueError."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if not math.isfinite(value) or value < self.above or (value == self.above and not self.inclusive):
            raise ValueError
        return float(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    expected: str = "true or false"

    def read(self, value: object) -> bool | None:
        """The flag, None for another type."""
        return value if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    expected: str = "a string"

    def read(self, value: object) -> str | None:
        """The string, None for another type."""
        return value if isinstance(value, str) else None


class MetadataReader:
    """The keys under `<architecture>.`, each read once and checked; `finish` refuses what nobody read."""

    def __init__(self, path: str, metadata: Mapping[str, object], architecture: str) -> None:
        self.path, self.architecture = path, architecture
        self._metadata = metadata
        self._unread = {key for key in metadata if key.startswith(f"{architecture}.")}

    def required(self, key: str, kind: Kind[T]) -> T:
        """The value of `<architecture>.<key>`. Raises MissingKey, BadHeader, UnsupportedModel (an array)."""
        value = self.optional(key, kind)
        if value is None:
            raise MissingKey(self.path, f"metadata key '{self._full(key)}' is missing, {kind.expected} is needed")
        return value

    def optional(self, key: str, kind: Kind[T]) -> T | None:
        """The same, or None when the key is absent."""
        value = self.raw(key)
        if value is None:
            return None
        try:
            read = kind.read(value)
        except ValueError:
            raise BadHeader(self.path, f"'{self._full(key)}' is {value!r}, not {kind.expected}") from None
        if read is None and not isinstance(value, _SCALARS):
            raise UnsupportedModel(
                f"{self.path}: '{self._full(key)}' differs from layer to layer, which is not implemented"
            )
        if read is None:
            raise MissingKey(self.path, f"'{self._full(key)}' is {value!r}, {kind.expected} is needed")
        return read

    def raw(self, key: str) -> object | None:
        """The value as the file has it, or None; whoever reads it checks it."""
        self._unread.discard(self._full(key))
        return self._metadata.get(self._full(key))

    def must_equal(self, key: str, *neutral: object, why: str) -> None:
        """Refuse the file unless the key is absent or has one of these values. Raises UnsupportedModel."""
        value = self.raw(key)
        if value is not None and not (isinstance(value, _SCALARS) and value in neutral):
            raise UnsupportedModel(f"{self.path}: '{self._full(key)}' is {value!r}: {why}")

    def finish(self) -> None:
        """Refuse keys that nobody read and that are not known to be harmless. Raises UnsupportedModel."""
        prefix = len(self.architecture) + 1
        strange = []
        for full in sorted(self._unread):
            key, value = full[prefix:], self._metadata[full]
            scalar = isinstance(value, _SCALARS)
            if key not in HARMLESS and not (scalar and value in NEUTRAL.get(key, ())):
                strange.append(f"{full} = {str(value)[:40]}" if scalar else full)
        if strange:
            raise UnsupportedModel(
                f"{self.path}: metadata that may change the mathematics and are not implemented: {', '.join(strange)}"
            )

    def _full(self, key: str) -> str:
        return f"{self.architecture}.{key}"
