"""Every error a caller of Fucina can meet. Each says what was wrong, where, and what to do next.

FucinaError
├── ConfigError               an option or argument that cannot be
│   ├── UnknownModel          no file and no pulled model of that name
│   ├── EmptyBatch            a batch of nothing
│   ├── BatchLengthMismatch   not one of something for each of a batch
│   ├── MixedBatchModels      conversations of several models in one batch
│   ├── DuplicateBatchConversation  a conversation twice in one batch
│   ├── SharedBatchProcessor  a processor twice in one batch
│   └── CannotRewind          drafts for a family whose cache cannot give positions back
├── ModelFileError            the file is not what it claims to be (carries .path)
│   ├── NotGguf               wrong magic, byte order or version
│   ├── TruncatedFile         a declared length runs past the end of the file
│   ├── BadHeader             a count, key, value, alignment or duplicate that cannot be
│   ├── BadTensor             a tensor's type, dimensions, offset or range cannot be
│   ├── MissingTensor         a tensor this family needs is absent
│   ├── MissingKey            a metadata key this family needs is absent or has the wrong type
│   ├── MissingPart           a split model without one of its files
│   └── ExpertReadError       an expert that stayed on disk could not be read; the next pass tries again
├── ConversationFileError     a file that a conversation cannot be kept in (carries .path)
├── UnsupportedModel          a sound file that we refuse rather than compute wrongly
│   ├── UnsupportedFamily     unknown general.architecture
│   ├── UnsupportedFormat     a tensor format without kernels
│   └── UnsupportedTokenizer  a tokenizer model or pre-tokenizer we do not know
├── ShapeError                a caller's arrays do not fit
├── CapacityError             no room now: retry later, or ask for less
│   ├── ContextFull           the prompt does not fit the context window
│   └── KvPoolFull            no free KV block
├── DeadlineExceeded          a request had not ended by its deadline
├── TemplateError             a chat template is absent, failed, or refused the messages
├── ConstraintError           a constraint on answers that cannot be honoured
│   ├── BadSchema             a JSON schema that is none, or asks for what cannot be enforced (carries .path, .keyword)
│   ├── BadGrammar            a regular expression or grammar that is none
│   ├── ConstraintTooLarge    beyond a limit of size, depth, time or memory
│   └── ConstraintFailed      the engine for grammars gave up in the middle of an answer
├── IncompleteAnswer          an answer was cut off before its constraint was satisfied (carries .completion)
├── BadLogits                 a model or a processor gave NaN or infinite logits
├── AllTokensMasked           the processors left no token to choose
├── InvalidDecodeState        history and cache disagree: a bug, never a caller's fault
├── SpeculationError          an index that drafts come from refused tokens; what is generated does not depend on it
│   ├── TokenOutOfRange       a token that is no unsigned 32-bit number
│   ├── StreamTooLong         more tokens than an index holds
│   ├── IndexDegraded         an append failed, now or before, and the index holds nothing any more
│   └── IndexFrozen           an append to an index that cursors read
├── PullError                 a model could not be fetched or its checksum differs
└── Closed                    the model, engine or sequence was closed before
"""

from __future__ import annotations

from os import PathLike

__all__ = [
    "AllTokensMasked",
    "BadGrammar",
    "BadHeader",
    "BadLogits",
    "BadSchema",
    "BadTensor",
    "BatchLengthMismatch",
    "CannotRewind",
    "CapacityError",
    "Closed",
    "ConfigError",
    "ConstraintError",
    "ConstraintFailed",
    "ConstraintTooLarge",
    "ContextFull",
    "ConversationFileError",
    "DeadlineExceeded",
    "DuplicateBatchConversation",
    "EmptyBatch",
    "ExpertReadError",
    "FucinaError",
    "IncompleteAnswer",
    "IndexDegraded",
    "IndexFrozen",
    "InvalidDecodeState",
    "KvPoolFull",
    "MissingKey",
    "MissingPart",
    "MissingTensor",
    "MixedBatchModels",
    "ModelFileError",
    "NotGguf",
    "PullError",
    "ShapeError",
    "SharedBatchProcessor",
    "SpeculationError",
    "StreamTooLong",
    "TemplateError",
    "TokenOutOfRange",
    "TruncatedFile",
    "UnknownModel",
    "UnsupportedFamily",
    "UnsupportedFormat",
    "UnsupportedModel",
    "UnsupportedTokenizer",
]


def _shown(value: object) -> str:
    """Show a value in a message: its repr, cut where it is long; Python refuses to print some integers."""
    try:
        text = repr(value)
    except ValueError:
        return f"a {type(value).__name__} too long to print"
    return text if len(text) <= 200 else f"{text[:200]}..."


class FucinaError(Exception):
    """The root: catch this to catch everything Fucina raises on purpose."""


class ConfigError(FucinaError):
    """An option or argument that cannot be."""

    def __init__(self, option: str, *, got: object, expected: str) -> None:
        super().__init__(f"{option}: got {_shown(got)}, expected {expected}")
        self.option, self.got, self.expected = option, got, expected


class UnknownModel(ConfigError):
    """Neither a file nor the name of a model that can be pulled."""


class EmptyBatch(ConfigError):
    """A batch of nothing."""


class BatchLengthMismatch(ConfigError):
    """Not one of something for each of a batch."""


class MixedBatchModels(ConfigError):
    """Conversations of several models in one batch: only those of one model compute together."""


class DuplicateBatchConversation(ConfigError):
    """A conversation twice in one batch: it takes one turn at a time."""


class SharedBatchProcessor(ConfigError):
    """A processor twice in one batch: it follows one answer at a time."""


class CannotRewind(ConfigError):
    """Drafts for a family whose cache cannot give positions back, as it must after a wrong one."""

    def __init__(self, option: str, *, family: str) -> None:
        expected = (
            f"none for a model of family '{family}': its cache cannot be cut back after a wrong draft; load it with "
            "speculation=False (--no-spec)"
        )
        super().__init__(option, got="drafts", expected=expected)
        self.family = family


class ModelFileError(FucinaError):
    """The file is not what it claims to be."""

    def __init__(self, path: str | PathLike[str], what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path, self.what = path, what


class NotGguf(ModelFileError):
    """Wrong magic, byte order or version."""


class TruncatedFile(ModelFileError):
    """A declared length runs past the end of the file."""


class BadHeader(ModelFileError):
    """A count, key, value, alignment or duplicate that cannot be."""


class BadTensor(ModelFileError):
    """A tensor's type, dimensions, offset or range cannot be."""


class MissingTensor(ModelFileError):
    """A tensor this family needs is absent."""


class MissingKey(ModelFileError):
    """A metadata key this family needs is absent or has the wrong type."""


class MissingPart(ModelFileError):
    """A split model without one of its files."""


class ExpertReadError(ModelFileError):
    """An expert that stayed on disk could not be read. Nothing was computed without it; the next pass tries again."""


class ConversationFileError(FucinaError):
    """A file that a conversation cannot be kept in: something else, another model's, damaged, or in use."""

    def __init__(self, path: str | PathLike[str], what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path, self.what = path, what


class UnsupportedModel(FucinaError):
    """A sound file that we refuse rather than compute wrongly."""


class UnsupportedFamily(UnsupportedModel):
    """Unknown general.architecture."""


class UnsupportedFormat(UnsupportedModel):
    """A tensor format without kernels."""


class UnsupportedTokenizer(UnsupportedModel):
    """A tokenizer model or pre-tokenizer we do not know."""


class ShapeError(FucinaError):
    """A caller's arrays do not fit."""

    def __init__(self, what: str, *, expected: object, got: object) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")
        self.expected, self.got = expected, got


class CapacityError(FucinaError):
    """No room now: retry later, or ask for less."""


class ContextFull(CapacityError):
    """The prompt does not fit the context window."""


class KvPoolFull(CapacityError):
    """No free KV block."""


class DeadlineExceeded(FucinaError):
    """A request had not ended by its deadline; what it gave until then stays."""


class TemplateError(FucinaError):
    """A chat template is absent, failed, or refused the messages."""


class ConstraintError(FucinaError):
    """A constraint on answers that cannot be honoured."""


class BadSchema(ConstraintError):
    """A JSON schema that is none, or that asks for what cannot be enforced; `path` and `keyword` say where."""

    def __init__(self, what: str, *, path: str = "$", keyword: str | None = None) -> None:
        super().__init__(f"schema at {path}{'' if keyword is None else f', {keyword!r}'}: {what}")
        self.path, self.keyword = path, keyword


class BadGrammar(ConstraintError):
    """A regular expression or grammar that is none."""


class ConstraintTooLarge(ConstraintError):
    """Beyond a limit of size, depth, time or memory."""


class ConstraintFailed(ConstraintError):
    """The engine for grammars gave up in the middle of an answer."""


class IncompleteAnswer(FucinaError):
    """An answer was cut off before its constraint was satisfied; `completion` holds what there is."""

    def __init__(self, what: str, *, completion: object) -> None:
        super().__init__(what)
        self.completion = completion


class BadLogits(FucinaError):
    """A model or a processor gave NaN or infinite logits, so no token can be chosen."""


class AllTokensMasked(FucinaError):
    """The processors left no token to choose."""


class InvalidDecodeState(FucinaError):
    """History and cache disagree: a bug in Fucina, never a caller's fault. Please report it."""


class SpeculationError(FucinaError):
    """An index that drafts come from refused tokens. What is generated does not depend on it, only how fast."""


class TokenOutOfRange(SpeculationError):
    """A token that is no unsigned 32-bit number."""


class StreamTooLong(SpeculationError):
    """More tokens than an index holds."""


class IndexDegraded(SpeculationError):
    """An append failed, now or before, and the index holds nothing any more."""


class IndexFrozen(SpeculationError):
    """An append to an index that cursors read."""


class PullError(FucinaError):
    """A model could not be fetched, or its checksum differs."""


class Closed(FucinaError):
    """The model, engine or sequence was closed before."""
