"""From a MODEL word and options to a loaded model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import fucina
from fucina.cli.groups import Computing, Experts, Keeping
from fucina.cli.progress import find_model

if TYPE_CHECKING:
    from fucina.engine.model import Model


def open_model(model: str, *groups: Computing | Keeping | Experts, speculation: bool) -> Model:
    """Find the file, pulling it if need be, and load it. Raises UnknownModel, PullError and what loading raises."""
    return fucina.load(find_model(model), speculation=speculation, **load_options(*groups))


def load_options(*groups: Computing | Keeping | Experts) -> dict[str, Any]:
    """Give what the groups say, by the names that `fucina.load` knows."""
    return {name: value for group in groups for name, value in asdict(group).items()}
