import math

import pytest

from fucina.decoding.params import SamplingParams
from fucina.errors import ConfigError


def test_defaults_are_greedy_and_neutral() -> None:
    params = SamplingParams()
    assert params.is_greedy
    assert not params.penalizes
    assert params.stop == ()
    assert params.stop_token_ids == frozenset()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", True),
        ("temperature", "1"),
        ("temperature", None),
        ("temperature", 10**400),
        pytest.param("temperature", 10**5000, id="temperature-too-long-to-print"),
        ("top_p", 0.0),
        ("top_p", 1.0000001),
        ("top_p", math.nan),
        ("top_k", 0),
        ("top_k", -1),
        ("top_k", True),
        ("top_k", 40.0),
        ("top_k", 2**31),
        ("top_k", 10**30),
        ("min_p", -1e-9),
        ("min_p", 1.1),
        ("repeat_penalty", 0.0),
        ("repeat_penalty", math.inf),
        ("repeat_penalty", -1.0),
        ("frequency_penalty", math.nan),
        ("frequency_penalty", -math.inf),
        ("presence_penalty", 1e308),
        ("penalty_window", -1),
        ("penalty_window", False),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("seed", 1.0),
        ("seed", True),
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("max_tokens", 2**31),
        ("max_tokens", math.nan),
        ("stop", ("",)),
        ("stop", ("a", "")),
        ("stop", (1,)),
        ("stop", 7),
        ("stop", ("x" * 4097,)),
        ("stop", ("x",) * 257),
        ("stop", {"a": 1}),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [1.5]),
        ("stop_token_ids", [True]),
        ("stop_token_ids", 3),
        ("stop_token_ids", "12"),
        ("ignore_eos", 1),
        ("ignore_eos", None),
        ("logprobs", -1),
        ("logprobs", True),
        ("logprobs", 1025),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: got ") as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert caught.value.option == field
    assert len(str(caught.value)) < 600


def test_strangers_are_refused() -> None:
    with pytest.raises(TypeError):
        SamplingParams(temprature=1.0)  # type: ignore[call-arg]


def test_values_are_normalized() -> None:
    params = SamplingParams(temperature=1, stop="end", stop_token_ids=[3, 3, 5], seed=2**64 - 1)  # type: ignore[arg-type]
    assert isinstance(params.temperature, float)
    assert params.stop == ("end",)
    assert params.stop_token_ids == frozenset({3, 5})
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]


def test_penalties_are_off_without_a_window() -> None:
    assert SamplingParams(repeat_penalty=1.1).penalizes
    assert SamplingParams(presence_penalty=-1.0).penalizes
    assert not SamplingParams(repeat_penalty=1.1, penalty_window=0).penalizes
    assert SamplingParams(frequency_penalty=0.1, penalty_window=None).penalizes


def test_params_are_frozen() -> None:
    with pytest.raises(AttributeError):
        SamplingParams().temperature = 1.0  # type: ignore[misc]
