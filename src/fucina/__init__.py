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
    BatchLengthMismatch,
    CannotRewind,
    CapacityError,
    Closed,
    ConfigError,
    ConstraintError,
    ConstraintFailed,
    ConstraintTooLarge,
    ContextFull,
    ConversationFileError,
    DeadlineExceeded,
    DuplicateBatchConversation,
    EmptyBatch,
    ExpertReadError,
    FucinaError,
    IncompleteAnswer,
    IndexDegraded,
    IndexFrozen,
    InvalidDecodeState,
    KvPoolFull,
    MissingKey,
    MissingPart,
    MissingTensor,
    MixedBatchModels,
    ModelFileError,
    NotGguf,
    PullError,
    ShapeError,
    SharedBatchProcessor,
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
    from fucina.decoding.grammar.constraint import Constraint
    from fucina.decoding.params import SamplingParams
    from fucina.decoding.processors.banned import BannedTokens
    from fucina.decoding.processors.bias import LogitBias
    from fucina.decoding.processors.chain import ProcessorChain
    from fucina.decoding.processors.contract import LogitProcessor
    from fucina.decoding.processors.minimum import MinTokens
    from fucina.decoding.speculation.options import SpeculationOptions
    from fucina.decoding.speculation.stats import SpeculationStats
    from fucina.engine.assemble import load
    from fucina.engine.completion import Completion, TokenLogprob
    from fucina.engine.constraints import UnboundedAnswerWarning
    from fucina.engine.conversation import Conversation
    from fucina.engine.embedding import Embeddings
    from fucina.engine.events import FinishEvent, Timings, TokenEvent, Usage
    from fucina.engine.model import Model
    from fucina.storage.experts.stats import ExpertsLeftOut, ExpertStats
    from fucina.storage.experts.usage import ExpertUsageWarning
    from fucina.storage.kv.archive.conversation_file import ConversationFileWarning

__version__ = "0.1.0"

__all__ = [
    "AllTokensMasked",
    "BadGrammar",
    "BadHeader",
    "BadLogits",
    "BadSchema",
    "BadTensor",
    "BannedTokens",
    "BatchLengthMismatch",
    "CannotRewind",
    "CapacityError",
    "Closed",
    "Completion",
    "ConfigError",
    "Constraint",
    "ConstraintError",
    "ConstraintFailed",
    "ConstraintTooLarge",
    "ContextFull",
    "Conversation",
    "ConversationFileError",
    "ConversationFileWarning",
    "DeadlineExceeded",
    "DuplicateBatchConversation",
    "Embeddings",
    "EmptyBatch",
    "ExpertReadError",
    "ExpertStats",
    "ExpertUsageWarning",
    "ExpertsLeftOut",
    "FinishEvent",
    "FucinaError",
    "IncompleteAnswer",
    "IndexDegraded",
    "IndexFrozen",
    "InvalidDecodeState",
    "KvPoolFull",
    "LogitBias",
    "LogitProcessor",
    "MinTokens",
    "MissingKey",
    "MissingPart",
    "MissingTensor",
    "MixedBatchModels",
    "Model",
    "ModelFileError",
    "NotGguf",
    "ProcessorChain",
    "PullError",
    "SamplingParams",
    "ShapeError",
    "SharedBatchProcessor",
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
    "UnboundedAnswerWarning",
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
    "BannedTokens": "fucina.decoding.processors.banned",
    "Completion": "fucina.engine.completion",
    "Constraint": "fucina.decoding.grammar.constraint",
    "Conversation": "fucina.engine.conversation",
    "ConversationFileWarning": "fucina.storage.kv.archive.conversation_file",
    "Embeddings": "fucina.engine.embedding",
    "ExpertStats": "fucina.storage.experts.stats",
    "ExpertsLeftOut": "fucina.storage.experts.stats",
    "ExpertUsageWarning": "fucina.storage.experts.usage",
    "FinishEvent": "fucina.engine.events",
    "LogitBias": "fucina.decoding.processors.bias",
    "LogitProcessor": "fucina.decoding.processors.contract",
    "MinTokens": "fucina.decoding.processors.minimum",
    "Model": "fucina.engine.model",
    "ProcessorChain": "fucina.decoding.processors.chain",
    "SamplingParams": "fucina.decoding.params",
    "SpeculationOptions": "fucina.decoding.speculation.options",
    "SpeculationStats": "fucina.decoding.speculation.stats",
    "Timings": "fucina.engine.events",
    "TokenEvent": "fucina.engine.events",
    "TokenLogprob": "fucina.engine.completion",
    "UnboundedAnswerWarning": "fucina.engine.constraints",
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
