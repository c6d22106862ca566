"""The one door to the compiled extension. Nobody else imports `_native`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

#: Raised with every change of what crosses the boundary; a stale build is then refused instead of misread.
EXPECTED_ABI = 1


@dataclass(frozen=True, slots=True)
class Native:
    """The extension, loaded and of the right ABI."""

    module: ModuleType


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no usable extension, and why."""

    reason: str


def open_native() -> Native | Absent:
    """The extension if it can be used, else an `Absent` that explains itself. Never compiles anything."""
    try:
        module = importlib.import_module("fucina._native")
    except ImportError as error:
        return Absent(f"the compiled extension is not there ({error})")
    if module.ABI != EXPECTED_ABI:
        return Absent(f"the compiled extension speaks ABI {module.ABI}, this package needs {EXPECTED_ABI}; reinstall")
    return Native(module)
