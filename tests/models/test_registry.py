"""The table of families and the folder of families say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from fucina.errors import UnsupportedFamily
from fucina.models import families
from fucina.models.registry import FAMILIES, family


def test_table_and_folder_agree() -> None:
    folder = Path(families.__file__).parent
    assert {path.stem for path in folder.glob("[a-z]*.py")} == set(FAMILIES)


def test_an_unknown_family_is_refused_with_the_list_of_what_runs() -> None:
    with pytest.raises(
        UnsupportedFamily, match=r"'foo' is not implemented.*gemma3, llama, qwen2, qwen2moe, qwen3, qwen3moe"
    ):
        family("m.gguf", "foo")
