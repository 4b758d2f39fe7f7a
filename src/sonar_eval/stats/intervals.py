"""How far a rate may be from what was seen."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple


class Interval(NamedTuple):
    """The two ends of a confidence interval."""

    low: float
    high: float


def wilson(rate: float, n: float, *, confidence: float = 0.95) -> Interval:
    """Return the score interval for a rate seen in n trials (Wilson 1927); n may be an effective size.

    Raises `ValueError` for n of 0 or less: without a trial there is no interval.
    """
    if n <= 0:
        raise ValueError(f"an interval needs trials, got n={n}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    centre = rate + z * z / (2 * n)
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return Interval(max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))
