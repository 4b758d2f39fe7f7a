"""What a judge measures by: a text, or named criteria that are judged one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .errors import ConfigError


@dataclass(frozen=True)
class Criterion:
    """One thing to be judged by itself; `weight` is its share in the score, beside the others'."""

    name: str
    text: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        for key in ("name", "text"):
            value = getattr(self, key)
            if not isinstance(value, str) or not value.strip():
                raise ConfigError(f"criterion {self.name!r}: {key} must be a text, got {value!r}")
        weight = self.weight
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not (math.isfinite(weight) and weight > 0)
        ):
            raise ConfigError(f"criterion {self.name!r}: weight must be a number above 0, got {weight!r}")


Rubric = str | Sequence[Criterion | Mapping[str, Any]]
"""A text, or criteria; a criterion may be written as a mapping of its fields."""


def criteria_of(rubric: Rubric | None) -> tuple[Criterion, ...]:
    """Read the criteria of a rubric; none for one that is a text.

    Raises `ConfigError` for a list that is empty, holds anything else, or has two criteria of one name.
    """
    if rubric is None or isinstance(rubric, str):
        return ()
    if not isinstance(rubric, Sequence) or not rubric:
        raise ConfigError(f"rubric must be a text or a list of criteria (name, text, weight), got {rubric!r}")
    criteria = tuple(_criterion(place, row) for place, row in enumerate(rubric, 1))
    names = [normal(criterion.name) for criterion in criteria]
    doubled = sorted({criterion.name for criterion in criteria if names.count(normal(criterion.name)) > 1})
    if doubled:
        raise ConfigError(
            f"rubric: two criteria are named {', '.join(map(repr, doubled))}; give each a name of its own"
        )
    return criteria


def normal(name: str) -> str:
    """Fold what a judge may change in a name when repeating it: case, blanks, hyphens and underscores."""
    return " ".join(name.replace("_", " ").replace("-", " ").casefold().split())


def _criterion(place: int, row: Any) -> Criterion:
    if isinstance(row, Criterion):
        return row
    known = [entry.name for entry in fields(Criterion)]
    if not isinstance(row, Mapping):
        raise ConfigError(f"rubric, criterion {place}: expected {', '.join(known)}, got {row!r}")
    missing = [key for key in ("name", "text") if key not in row]
    unknown = [str(key) for key in row if key not in known]
    if missing or unknown:
        said = [f"missing {', '.join(missing)}"] if missing else []
        said += [f"unknown {', '.join(unknown)}"] if unknown else []
        raise ConfigError(f"rubric, criterion {place}: {'; '.join(said)}; expected {', '.join(known)}")
    return Criterion(**row)
