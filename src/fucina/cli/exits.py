"""Which exit code a failure gives: one table.

0 is success; 2 is also what a wrong command line gives; 130 is Ctrl-C.
"""

from __future__ import annotations

from fucina import errors

SUCCESS = 0
INTERRUPTED = 130
UNREADABLE = 4

EXIT_CODES: dict[type[errors.FucinaError], int] = {
    errors.FucinaError: 1,
    errors.ConfigError: 2,
    errors.EmptyBatch: 2,
    errors.BatchLengthMismatch: 2,
    errors.MixedBatchModels: 2,
    errors.DuplicateBatchConversation: 2,
    errors.SharedBatchProcessor: 2,
    errors.CannotRewind: 2,
    errors.ShapeError: 2,
    errors.ConstraintError: 2,
    errors.BadSchema: 2,
    errors.BadGrammar: 2,
    errors.ConstraintTooLarge: 2,
    errors.UnknownModel: 3,
    errors.ModelFileError: UNREADABLE,
    errors.NotGguf: UNREADABLE,
    errors.TruncatedFile: UNREADABLE,
    errors.BadHeader: UNREADABLE,
    errors.BadTensor: UNREADABLE,
    errors.MissingTensor: UNREADABLE,
    errors.MissingKey: UNREADABLE,
    errors.MissingPart: UNREADABLE,
    errors.ExpertReadError: UNREADABLE,
    errors.ConversationFileError: UNREADABLE,
    errors.UnsupportedModel: 5,
    errors.UnsupportedFamily: 5,
    errors.UnsupportedFormat: 5,
    errors.UnsupportedTokenizer: 5,
    errors.CapacityError: 6,
    errors.ContextFull: 6,
    errors.KvPoolFull: 6,
    errors.DeadlineExceeded: 6,
    errors.StreamTooLong: 6,
    errors.IndexDegraded: 6,
    errors.TemplateError: 7,
    errors.PullError: 8,
    errors.AllTokensMasked: 9,
    errors.BadLogits: 9,
    errors.ConstraintFailed: 9,
    errors.IncompleteAnswer: 10,
    errors.InvalidDecodeState: 70,
    errors.SpeculationError: 70,
    errors.TokenOutOfRange: 70,
    errors.IndexFrozen: 70,
    errors.Closed: 70,
}


def exit_code(error: errors.FucinaError) -> int:
    """The code for `error`; a class that is not in the table takes its nearest ancestor's."""
    return next(EXIT_CODES[cls] for cls in type(error).__mro__ if cls in EXIT_CODES)
