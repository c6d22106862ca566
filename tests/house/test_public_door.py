"""`import fucina`: what it offers, and what it must not drag in."""

import subprocess
import sys
import types

import pytest

import fucina
from fucina import errors


def test_every_name_is_there_and_sorted() -> None:
    assert fucina.__all__ == sorted(fucina.__all__)
    for name in fucina.__all__:
        assert getattr(fucina, name) is not None
    assert set(fucina.__all__) <= set(dir(fucina))


def test_nothing_public_is_left_out() -> None:
    public = {
        name
        for name, value in vars(fucina).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public - set(fucina.__all__) <= {"annotations", "TYPE_CHECKING"}


def test_every_error_is_exported() -> None:
    assert set(errors.__all__) <= set(fucina.__all__)
    for name in errors.__all__:
        assert getattr(fucina, name) is getattr(errors, name)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fucina.nonsense  # noqa: B018


def test_import_is_light() -> None:
    """Nothing heavy, and fast: the least of several runs, since a busy machine can only make it slower."""
    program = (
        "import sys, time; start = time.perf_counter(); import fucina; took = time.perf_counter() - start; "
        "print(took, *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(5)
    ]
    assert min(float(took) for took, *_ in runs) < 0.1
    assert not {"numpy", "tokenizers", "minijinja", "typer", "rich", "asyncio"} & set(runs[0])
