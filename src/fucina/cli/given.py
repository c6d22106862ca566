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


def given_files(name: str, files: Sequence[Path] | None) -> list[str]:
    """The texts of files. Raises ConfigError for one that cannot be read or is not UTF-8."""
    texts = []
    for file in files or ():
        try:
            texts.append(file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(name, got=str(file), expected=f"a text file in UTF-8 ({error})") from None
    return texts
