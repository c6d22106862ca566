"""Every lie of the catalog costs exactly its error, soon, and with little memory."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from fucina.errors import FucinaError
from fucina.storage.gguf import open_gguf
from fucina.testing.hostile_gguf import LIES, Lie

#: Of CPU, with its memory traced: some 1 s at most. benchmarks/hostile_headers.py prints what it takes untraced.
MOST_SECONDS = 30.0
MOST_BYTES = 50 * 2**20


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_costs_its_error(tmp_path: Path, lie: Lie) -> None:
    path = lie.build(tmp_path)
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(FucinaError) as caught:
            open_gguf(path)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert type(caught.value) is lie.error
    assert len(str(caught.value)) < 400 + len(str(path))
    assert peak_bytes < MOST_BYTES
    assert time.process_time() - start < MOST_SECONDS
