"""Penalties against numbers worked out by hand."""

import numpy as np
import pytest

from fucina.decoding.params import SamplingParams
from fucina.decoding.processors.penalties import Penalties
from fucina.decoding.reference_scans import ReferenceScans

HISTORY = [0, 0, 0, 1, 2, 2]


def penalized(**options: object) -> list[float]:
    logits = np.array([4.0, -4.0, 0.0, 2.0], np.float32)
    Penalties(SamplingParams(**options), ReferenceScans()).apply(logits, HISTORY)  # type: ignore[arg-type]
    return [float(x) for x in logits]


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"repeat_penalty": 2.0}, [2.0, -8.0, 0.0, 2.0]),
        ({"frequency_penalty": 0.5}, [2.5, -4.5, -1.0, 2.0]),
        ({"presence_penalty": 0.5}, [3.5, -4.5, -0.5, 2.0]),
        ({"repeat_penalty": 2.0, "frequency_penalty": 0.5, "presence_penalty": 0.25}, [0.25, -8.75, -1.25, 2.0]),
        ({"repeat_penalty": 2.0, "penalty_window": 3}, [4.0, -8.0, 0.0, 2.0]),
        ({"frequency_penalty": 1.0, "penalty_window": 1}, [4.0, -4.0, -1.0, 2.0]),
        ({"frequency_penalty": 1.0, "penalty_window": 4}, [3.0, -5.0, -2.0, 2.0]),
        ({"frequency_penalty": 1.0, "penalty_window": None}, [1.0, -5.0, -2.0, 2.0]),
        ({"presence_penalty": -1.0, "penalty_window": 100}, [5.0, -3.0, 1.0, 2.0]),
    ],
)
def test_by_hand(options: dict[str, object], want: list[float]) -> None:
    assert penalized(**options) == want


def test_the_default_window_is_the_last_64() -> None:
    logits = np.zeros(3, np.float32)
    penalties = Penalties(SamplingParams(presence_penalty=1.0), ReferenceScans())
    penalties.apply(logits, [0] + [1] * 63 + [2])
    assert logits.tolist() == [0.0, -1.0, -1.0]
