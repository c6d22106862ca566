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
    """A few modules, none heavy and none from elsewhere, which is what takes some 20 ms on any day."""
    program = "import sys; before = set(sys.modules); import fucina; print(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = ran.stdout.split()
    assert {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "fucina",
        "fucina.errors",
    }
    assert not {"asyncio", "ctypes", "inspect", "json", "logging", "subprocess", "threading"} & set(modules)
    assert len(modules) < 60
