"""Texts a verb works on or with: given on the command line, in files, or piped into standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fucina.decoding.grammar.constraint import Constraint
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
    return [_contents("--spec-ref", str(file), file) for file in files or ()]


def given_constraint(json_schema: str | None, regex: str | None, lark: str | None) -> Constraint | None:
    """The form that an answer must have; a word that starts with @ names a file that holds it.

    Raises ConfigError for several of them and for files that cannot be read, ConstraintError for what they hold.
    """
    forms = {"--json-schema": json_schema, "--regex": regex, "--lark": lark}
    given = {name: word for name, word in forms.items() if word is not None}
    if len(given) > 1:
        raise ConfigError(" and ".join(given), got="both" if len(given) == 2 else "all", expected="one of them")
    for name, word in given.items():
        text = _contents(name, word, Path(word[1:])) if word.startswith("@") else given_text(name, word)
        if name == "--json-schema":
            return Constraint.json_schema(text)
        # the line end that closes a file is no part of a pattern
        return Constraint.regex(text.removesuffix("\n")) if name == "--regex" else Constraint.lark(text)
    return None


def given_keys(file: Path | None) -> list[str]:
    """The keys in a file, one a line. Raises ConfigError for one that cannot be read or has none."""
    if file is None:
        return []
    keys = [line.strip() for line in _contents("api_key_file", str(file), file).splitlines() if line.strip()]
    if not keys:
        # without a key everybody may ask, which is not what was meant
        raise ConfigError("api_key_file", got=str(file), expected="a file with one key a line; this one has none")
    return keys


def _contents(name: str, word: str, file: Path) -> str:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(name, got=word, expected=f"a text file in UTF-8 ({error})") from None
    if not text:
        raise ConfigError(name, got=word, expected="a file with a text in it; this one is empty")
    return text
