"""Which backend is chosen: arguments win over the environment, and the environment over the machine."""

from __future__ import annotations

import pytest

from fucina.core.nativelib import Absent, open_native
from fucina.errors import ConfigError
from fucina.ops.choose import open_ops
from fucina.ops.native import NativeOps


@pytest.mark.skipif(isinstance(open_native(), Absent), reason="the extension is not built")
@pytest.mark.parametrize(
    ("variable", "argument", "expected"),
    [
        (None, None, True),
        ("", None, True),
        ("0", None, True),
        ("1", None, False),
        ("1", True, True),
        ("0", False, False),
    ],
)
def test_repacking(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, argument: bool | None, expected: bool
) -> None:
    monkeypatch.delenv("FUCINA_NO_REPACK", raising=False)
    if variable is not None:
        monkeypatch.setenv("FUCINA_NO_REPACK", variable)
    ops = open_ops(max_rows=1, threads=1, backend="native", repack=argument)
    assert isinstance(ops, NativeOps)
    assert ops.repack is expected


@pytest.mark.parametrize("value", ["yes", "2", "true"])
def test_a_variable_that_says_neither_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("FUCINA_NO_REPACK", value)
    with pytest.raises(ConfigError, match="FUCINA_NO_REPACK"):
        open_ops(max_rows=1, threads=1)
