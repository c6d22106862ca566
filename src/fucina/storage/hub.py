"""Files from the Hugging Face Hub, through the optional huggingface_hub: names of the form hf:owner/repo/file.gguf."""

from __future__ import annotations

import re
from pathlib import Path

from fucina.errors import PullError, UnknownModel
from fucina.storage.download import Progress

_PREFIX = "hf:"
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_MOST_PARTS = 1000


def is_hub_name(name: str) -> bool:
    """Whether `name` asks for a file on the Hub."""
    return name.startswith(_PREFIX)


def hub_path(name: str, home: Path) -> Path:
    """Where the file of 'hf:owner/repo/file.gguf' lies once it was fetched. Raises UnknownModel for a bad name."""
    owner, repo, file_name = _split(name)
    return home / "models" / "hf" / owner / repo / file_name


def pull_from_hub(name: str, home: Path, progress: Progress) -> Path:
    """Fetch the file (of a split model: all its parts) and return its path. Raises UnknownModel, PullError."""
    owner, repo, file_name = _split(name)
    try:
        import huggingface_hub
    except ImportError as error:
        raise PullError(f"{name}: this needs an optional package. Run `pip install huggingface_hub`") from error
    folder = hub_path(name, home).parents[file_name.count("/")]
    for part in _all_parts(file_name):
        progress(f"downloading {part}", 0, None)
        try:
            huggingface_hub.hf_hub_download(f"{owner}/{repo}", part, local_dir=folder)
        except Exception as error:  # the library's errors have no common root: each one means "not fetched"
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise PullError(
                f"{name}: the Hub did not give {part} ({reason}). Check the name and the connection; "
                "for a gated model log in with `hf auth login`"
            ) from error
    return hub_path(name, home)


def _split(name: str) -> tuple[str, str, str]:
    segments = name.removeprefix(_PREFIX).split("/")
    if len(segments) < 3 or not all(map(_SEGMENT.fullmatch, segments)) or not segments[-1].endswith(".gguf"):
        raise UnknownModel("model", got=name, expected="hf:owner/repo/file.gguf, each part of letters, digits, . _ -")
    return segments[0], segments[1], "/".join(segments[2:])


def _all_parts(file_name: str) -> list[str]:
    """The names of all files of a split model, or the one name."""
    found = _PART.search(file_name)
    if not found or not 1 <= int(found[2]) <= _MOST_PARTS:
        return [file_name]
    return [f"{file_name[: found.start()]}-{i:05d}-of-{found[2]}.gguf" for i in range(1, int(found[2]) + 1)]
