"""How many trials a cell gets: so many, or as many as it takes to tell the arms apart."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from ..stats import LOOKS

AUTO = "auto"


def first_trials(k: Any) -> int:
    """Return with how many trials a cell begins; raises `ConfigError` for what is neither a number nor `auto`."""
    if k == AUTO:
        return int(LOOKS[0])
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ConfigError(f"task.k: expected a whole number of 1 or more, or {AUTO}; got {k!r}")
    return k


def trials_reached(asked: int) -> int:
    """Return the look that so many trials were asked for: where an interrupted sweep goes on."""
    return int(max((look for look in LOOKS if look <= asked), default=LOOKS[0]))
