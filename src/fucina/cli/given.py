"""The text a verb works on: given on the command line, or piped into standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fucina.errors import ConfigError


def given_text(name: str, text: str | None) -> str:
    """`text`, or all of standard input when it is None and something is piped in. Raises ConfigError.

    A line end that closes the piped text is not part of it.
    """
    if text is None:
        return _piped_text(name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(name, got=text, expected="valid UTF-8") from None
    return text


def _piped_text(name: str) -> str:
    if sys.stdin.isatty():
        raise ConfigError(name, got=None, expected="a text, here or piped into standard input")
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        wrong = error.object[error.start : error.end]
        raise ConfigError("standard input", got=wrong, expected=f"UTF-8 (byte {error.start} is not)") from None


def given_references(files: Sequence[Path] | None, *, speculation: bool) -> list[str]:
    """The texts of --spec-ref. Raises ConfigError for one that cannot be read, is no UTF-8, or cannot be used."""
    if files and not speculation:
        names = ", ".join(map(str, files))
        raise ConfigError("--spec-ref", got=names, expected="no --no-spec beside it: drafts are not taken then")
    return [_reference(file) for file in files or ()]


def _reference(file: Path) -> str:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--spec-ref", got=str(file), expected=f"a text file in UTF-8 ({error})") from None
    if not text:
        raise ConfigError("--spec-ref", got=str(file), expected="a file with a text in it; this one is empty")
    return text
