"""How to choose tokens and when to stop: what a caller may ask, checked at birth. See docs/reference/sampling.md."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

from fucina.errors import ConfigError

#: The most that may be asked of an option that counts tokens.
COUNT_LIMIT = 2**31 - 1
#: Temperature and penalties stay within this, so that no logit overflows.
STRENGTH_LIMIT = 1000.0
#: Alternatives that can be reported per token.
LOGPROBS_LIMIT = 1024
#: Stop strings of one request, and characters of each.
STOP_COUNT_LIMIT, STOP_LENGTH_LIMIT = 256, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one answer is chosen and ended. Every field is checked; ConfigError names the one that cannot be.

    temperature        0 takes the most probable token (greedy); else logits are divided by it.
    top_k              keep only that many most probable tokens; None keeps all.
    top_p              keep the fewest most probable tokens that hold this share of the probability; 1 keeps all.
    min_p              keep tokens at least this share as probable as the most probable one; 0 keeps all.
    repeat_penalty     above 1: divide positive and multiply negative logits of tokens seen in the window.
    frequency_penalty  subtracted from a token's logit for each time it was seen in the window.
    presence_penalty   subtracted once from the logit of a token seen in the window.
    penalty_window     how many last tokens, prompt included, the penalties look at; 0 is off, None is all of them.
    seed               any integer of at most 64 bits; None takes a fresh one, which the result reports.
    max_tokens         how many tokens to give at most; None: until a stop, or the context is full.
    stop               texts that end the answer; they are not part of its text.
    stop_token_ids     tokens that end the answer, besides the model's own end tokens.
    ignore_eos         go on after the model's own end tokens.
    logprobs           K: report each token's log-probability and the K most probable; 0: only its own; None: nothing.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_window: int | None = 64
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _number(self, "temperature", 0.0, STRENGTH_LIMIT)
        _number(self, "top_p", 0.0, 1.0, above_low=True)
        _number(self, "min_p", 0.0, 1.0)
        _number(self, "repeat_penalty", 0.0, STRENGTH_LIMIT, above_low=True)
        _number(self, "frequency_penalty", -STRENGTH_LIMIT, STRENGTH_LIMIT)
        _number(self, "presence_penalty", -STRENGTH_LIMIT, STRENGTH_LIMIT)
        _whole(self, "top_k", 1, COUNT_LIMIT)
        _whole(self, "penalty_window", 0, COUNT_LIMIT)
        _whole(self, "seed", -(2**63), 2**64 - 1)
        _whole(self, "max_tokens", 1, COUNT_LIMIT)
        _whole(self, "logprobs", 0, LOGPROBS_LIMIT)
        if not isinstance(self.ignore_eos, bool):
            raise ConfigError("ignore_eos", got=self.ignore_eos, expected="True or False")
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "stop_token_ids", checked_token_ids("stop_token_ids", self.stop_token_ids))

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken, with no draw."""
        return self.temperature == 0.0

    @property
    def penalizes(self) -> bool:
        """Whether any penalty can change a logit."""
        neutral = self.repeat_penalty == 1.0 and self.frequency_penalty == 0.0 and self.presence_penalty == 0.0
        return not neutral and self.penalty_window != 0


def _number(params: SamplingParams, name: str, low: float, high: float, *, above_low: bool = False) -> None:
    """Check a real number and store it as a float."""
    value = getattr(params, name)
    expected = f"a number {'above' if above_low else 'from'} {low:g} {'up ' if above_low else ''}to {high:g}"
    number = real_of(value)
    # NaN is not between anything
    if number is None or not low <= number <= high or (above_low and number == low):
        raise ConfigError(name, got=value, expected=expected)
    object.__setattr__(params, name, number)


def real_of(value: object) -> float | None:
    """Turn a number into a float; None for anything else, bool and what no float can hold included."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def integer_of(value: object) -> int | None:
    """Turn a whole number of any kind into an int; None for anything else, bool included."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def _whole(params: SamplingParams, name: str, low: int, high: int) -> None:
    """Check a whole number, or None."""
    value = getattr(params, name)
    if value is None:
        return
    number = integer_of(value)
    if number is None or not low <= number <= high:
        raise ConfigError(name, got=value, expected=f"None or a whole number from {low} to {high}")
    object.__setattr__(params, name, number)


def _stop_strings(stop: object) -> tuple[str, ...]:
    """Check the stop strings; a single string, a list or a tuple is taken."""
    expected = f"at most {STOP_COUNT_LIMIT} strings of 1 to {STOP_LENGTH_LIMIT} characters"
    texts = (stop,) if isinstance(stop, str) else stop
    if not isinstance(texts, tuple | list) or len(texts) > STOP_COUNT_LIMIT:
        raise ConfigError("stop", got=stop, expected=expected)
    for text in texts:
        if not isinstance(text, str) or not 1 <= len(text) <= STOP_LENGTH_LIMIT:
            raise ConfigError("stop", got=text, expected=expected)
    return tuple(texts)


def checked_token_ids(option: str, ids: object) -> frozenset[int]:
    """Give token ids as a set; any set, list or tuple of them is taken. Raises ConfigError, which names `option`."""
    expected = f"a set, list or tuple of token ids from 0 to {COUNT_LIMIT}"
    if not isinstance(ids, frozenset | set | tuple | list):
        raise ConfigError(option, got=ids, expected=expected)
    tokens = [integer_of(token) for token in ids]
    for got, token in zip(ids, tokens, strict=True):
        if token is None or not 0 <= token <= COUNT_LIMIT:
            raise ConfigError(option, got=got, expected=expected)
    return frozenset(token for token in tokens if token is not None)
