"""Models in several files: NAME-00001-of-0000N.gguf, each with its own directory, the first with the metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fucina.errors import BadHeader, MissingPart
from fucina.storage.gguf.cursor import shown
from fucina.storage.gguf.values import MetadataValue

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_MOST_PARTS = 512


def n_parts(path: Path, metadata: Mapping[str, MetadataValue]) -> int:
    """How many files the model of this metadata lies in; 1 for a whole one. Raises BadHeader."""
    return _integer(path, metadata, _COUNT, 1, _MOST_PARTS) if _COUNT in metadata else 1


def part_paths(path: Path, n_files: int) -> list[Path]:
    """The paths of all parts beside `path`, which is any one of them. Raises BadHeader, MissingPart."""
    found = _NAME.fullmatch(path.name)
    if not found or int(found[3]) != n_files:
        raise BadHeader(
            path,
            f"this is one of {n_files} parts, so its name must end in -0000i-of-{n_files:05d}.gguf; rename it",
        )
    paths = [path.with_name(f"{found[1]}-{i:05d}-of-{n_files:05d}.gguf") for i in range(1, n_files + 1)]
    for i, part in enumerate(paths, 1):
        if not part.is_file():
            raise MissingPart(part, f"part {i} of {n_files} is missing; put it beside the others")
    return paths


def check_part(path: Path, metadata: Mapping[str, MetadataValue], index: int, n_files: int) -> None:
    """Check that a file is part `index` (from 0) of `n_files`, as its name says. Raises BadHeader."""
    count = n_parts(path, metadata)
    if count != n_files:
        raise BadHeader(path, f"'{_COUNT}' is {count}, but another part says {n_files}")
    number = _integer(path, metadata, _NUMBER, 0, n_files - 1)
    if number != index:
        raise BadHeader(path, f"'{_NUMBER}' is {number}, but the name says part {index + 1} of {n_files}")


def check_same_model(path: Path, metadata: Mapping[str, MetadataValue], first: Mapping[str, MetadataValue]) -> None:
    """Check that a later part contradicts no plain value of the first part. Raises BadHeader."""
    for key, value in metadata.items():
        if key == _NUMBER or key not in first or not isinstance(value, (int, float, str)):
            continue
        if repr(value) != repr(first[key]):
            raise BadHeader(path, f"{shown(key)} differs from the first part; these are not parts of the same model")


def check_tensor_count(path: Path, metadata: Mapping[str, MetadataValue], n_tensors: int) -> None:
    """Check the number of tensors over all parts against what the first part announces. Raises BadHeader."""
    announced = _integer(path, metadata, _TENSORS, 0, 2**31 - 1)
    if announced != n_tensors:
        raise BadHeader(path, f"'{_TENSORS}' is {announced}, but the parts hold {n_tensors} tensors")


def _integer(path: Path, metadata: Mapping[str, MetadataValue], key: str, least: int, most: int) -> int:
    value = metadata.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        got = "missing" if value is None else shown(str(value)) if isinstance(value, (int, float, str)) else "an array"
        raise BadHeader(path, f"'{key}' is {got}; it must be an integer from {least} to {most}")
    return value
