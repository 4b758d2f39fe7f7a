"""Means and thresholds of scores, without what floating point adds to them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

_ROUNDING = 1e-9
"""Scores are told to a few digits; what lies closer than this differs by its arithmetic alone."""


def mean(scores: Sequence[float]) -> float:
    """Return the exact mean, rounded once: that of equal scores is that very score."""
    return float(statistics.mean(scores))


def meets(score: float, threshold: float) -> bool:
    """Tell whether a score reaches the threshold."""
    return score >= threshold - _ROUNDING
