"""How large the difference of two rates is; always b - a, or first - second."""

from __future__ import annotations

import math

from .intervals import Interval, normal_quantile, wilson


def square_and_add(
    rate_b: float, n_b: float, rate_a: float, n_a: float, *, correlation: float = 0.0, confidence: float = 0.95
) -> Interval:
    """Join the Wilson intervals of two rates to one of their difference (Newcombe 1998).

    The sizes may be effective ones; `correlation` is that of paired arms.
    """
    b, a = wilson(rate_b, n_b, confidence=confidence), wilson(rate_a, n_a, confidence=confidence)
    down, up = (rate_b - b.low, a.high - rate_a), (b.high - rate_b, rate_a - a.low)
    diff = rate_b - rate_a
    return Interval(diff - _joined(*down, correlation), diff + _joined(*up, correlation))


def _joined(x: float, y: float, correlation: float) -> float:
    return math.sqrt(max(0.0, x * x - 2 * correlation * x * y + y * y))


def newcombe_diff_ci(passes_b: int, n_b: int, passes_a: int, n_a: int, confidence: float = 0.95) -> Interval | None:
    """Return the interval of a difference between independent arms (Newcombe 1998, method 10); None without trials."""
    if not n_a or not n_b:
        return None
    return square_and_add(passes_b / n_b, n_b, passes_a / n_a, n_a, confidence=confidence)


def agresti_caffo_diff_ci(passes_b: int, n_b: int, passes_a: int, n_a: int, confidence: float = 0.95) -> Interval:
    """Return Wald's interval after a pass and a failure are added to each arm (Agresti and Caffo 2000)."""
    b, a = (passes_b + 1) / (n_b + 2), (passes_a + 1) / (n_a + 2)
    half = normal_quantile(confidence) * math.sqrt(b * (1 - b) / (n_b + 2) + a * (1 - a) / (n_a + 2))
    return Interval(b - a - half, b - a + half)


def agresti_min_paired_diff_ci(
    both: int, only_first: int, only_second: int, neither: int, confidence: float = 0.95
) -> Interval:
    """Return Wald's interval for matched pairs after 1/2 is added to each cell (Agresti and Min 2005)."""
    n = both + only_first + only_second + neither + 2
    first, second = only_first + 0.5, only_second + 0.5
    half = normal_quantile(confidence) * math.sqrt(first + second - (first - second) ** 2 / n) / n
    return Interval((first - second) / n - half, (first - second) / n + half)


def newcombe_paired_diff_ci(
    both: int, only_first: int, only_second: int, neither: int, confidence: float = 0.95
) -> Interval | None:
    """Return the interval of a difference between matched arms (Newcombe 1998, paired method 10); None without any."""
    n = both + only_first + only_second + neither
    if not n:
        return None
    first, second = both + only_first, both + only_second
    margins = first * (n - first) * second * (n - second)
    agreement = both * neither - only_first * only_second
    if agreement > 0:
        agreement_corrected = max(agreement - n / 2, 0.0)
    else:
        agreement_corrected = float(agreement)
    correlation = agreement_corrected / math.sqrt(margins) if margins else 0.0
    return square_and_add(first / n, n, second / n, n, correlation=correlation, confidence=confidence)
