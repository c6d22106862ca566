"""How speculation is kept from losing: the numbers behind gate, budget and costs, checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fucina.errors import ConfigError

#: Least values of the whole numbers; a smaller one would make a gate that cannot judge or never comes back.
_LEAST = {
    "max_draft": 1,
    "min_draft": 1,
    "rate_window": 2,
    "min_window_drafted": 1,
    "reprobe_after": 1,
    "reprobe_max": 1,
    "probe_steps": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationOptions:
    """Speculative decoding's settings; the defaults suit everybody who has not measured otherwise.

    `max_draft`, `min_draft`: tokens of a draft; a shorter one is not tried. `rate_window`: verifies that the gate looks
    back on; it judges once there are two with `min_window_drafted` drafts. `min_speedup`: the estimated speed-up below
    which it closes. `probe_margin`: how much more it takes to open again. `reprobe_after`, `reprobe_max`: plain steps
    until the first probe, and at most, as every failed probe doubles them. `probe_steps`: verifies of a probe.
    `adapt_budget`: draft less while drafts are wrong. `remember`: what was said in sequences that have ended is drafted
    in those to come; without it nothing passes from one request to another of its salt but counts and single
    tokens.
    """

    max_draft: int = 16
    min_draft: int = 1
    rate_window: int = 16
    min_window_drafted: int = 8
    min_speedup: float = 1.0
    probe_margin: float = 0.10
    reprobe_after: int = 128
    reprobe_max: int = 1024
    probe_steps: int = 4
    adapt_budget: bool = True
    remember: bool = True

    def __post_init__(self) -> None:
        """Refuse what no gate can work with. Raises ConfigError that names the option."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _LEAST:
                least = _LEAST[field.name]
                if isinstance(value, bool) or not isinstance(value, int) or value < least:
                    raise ConfigError(field.name, got=value, expected=f"a whole number of at least {least}")
            elif field.name in ("adapt_budget", "remember"):
                if not isinstance(value, bool):
                    raise ConfigError(field.name, got=value, expected="True or False")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1e6:
                raise ConfigError(field.name, got=value, expected="a number of at least 0")
        for low, high in (("min_draft", "max_draft"), ("reprobe_after", "reprobe_max")):
            if getattr(self, low) > getattr(self, high):
                raise ConfigError(low, got=getattr(self, low), expected=f"at most {high}, {getattr(self, high)}")
