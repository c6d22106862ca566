"""Language models on ordinary CPUs: GGUF in, text out, the same bits on every schedule."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fucina.errors import (
    AllTokensMasked,
    BadGrammar,
    BadHeader,
    BadLogits,
    BadSchema,
    BadTensor,
    CapacityError,
    Closed,
    ConfigError,
    ConstraintError,
    ConstraintFailed,
    ConstraintTooLarge,
    ContextFull,
    FucinaError,
    IncompleteAnswer,
    IndexDegraded,
    IndexFrozen,
    InvalidDecodeState,
    KvPoolFull,
    MissingKey,
    MissingPart,
    MissingTensor,
    ModelFileError,
    NotGguf,
    PullError,
    ShapeError,
    SpeculationError,
    StreamTooLong,
    TemplateError,
    TokenOutOfRange,
    TruncatedFile,
    UnknownModel,
    UnsupportedFamily,
    UnsupportedFormat,
    UnsupportedModel,
    UnsupportedTokenizer,
)

if TYPE_CHECKING:
    from fucina.decoding.params import SamplingParams
    from fucina.decoding.processors.contract import LogitProcessor
    from fucina.decoding.speculation.options import SpeculationOptions
    from fucina.decoding.speculation.stats import SpeculationStats
    from fucina.engine.assemble import load
    from fucina.engine.completion import Completion, TokenLogprob
    from fucina.engine.conversation import Conversation
    from fucina.engine.events import FinishEvent, Timings, TokenEvent, Usage
    from fucina.engine.model import Model

__version__ = "0.1.0"

__all__ = [
    "AllTokensMasked",
    "BadGrammar",
    "BadHeader",
    "BadLogits",
    "BadSchema",
    "BadTensor",
    "CapacityError",
    "Closed",
    "Completion",
    "ConfigError",
    "ConstraintError",
    "ConstraintFailed",
    "ConstraintTooLarge",
    "ContextFull",
    "Conversation",
    "FinishEvent",
    "FucinaError",
    "IncompleteAnswer",
    "IndexDegraded",
    "IndexFrozen",
    "InvalidDecodeState",
    "KvPoolFull",
    "LogitProcessor",
    "MissingKey",
    "MissingPart",
    "MissingTensor",
    "Model",
    "ModelFileError",
    "NotGguf",
    "PullError",
    "SamplingParams",
    "ShapeError",
    "SpeculationError",
    "SpeculationOptions",
    "SpeculationStats",
    "StreamTooLong",
    "TemplateError",
    "Timings",
    "TokenEvent",
    "TokenLogprob",
    "TokenOutOfRange",
    "TruncatedFile",
    "UnknownModel",
    "UnsupportedFamily",
    "UnsupportedFormat",
    "UnsupportedModel",
    "UnsupportedTokenizer",
    "Usage",
    "__version__",
    "load",
]

# Names that cost an import of NumPy or more are fetched when they are first asked for.
_LAZY = {
    "Completion": "fucina.engine.completion",
    "Conversation": "fucina.engine.conversation",
    "FinishEvent": "fucina.engine.events",
    "LogitProcessor": "fucina.decoding.processors.contract",
    "Model": "fucina.engine.model",
    "SamplingParams": "fucina.decoding.params",
    "SpeculationOptions": "fucina.decoding.speculation.options",
    "SpeculationStats": "fucina.decoding.speculation.stats",
    "Timings": "fucina.engine.events",
    "TokenEvent": "fucina.engine.events",
    "TokenLogprob": "fucina.engine.completion",
    "Usage": "fucina.engine.events",
    "load": "fucina.engine.assemble",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'fucina' has no attribute '{name}'")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
