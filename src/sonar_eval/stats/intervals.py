"""How far the rate of one scenario may be from what was seen."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple


class Interval(NamedTuple):
    """The two ends of a confidence interval."""

    low: float
    high: float


def normal_quantile(confidence: float) -> float:
    """Return z such that the normal distribution has `confidence` of its mass within ±z."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def wilson(rate: float, n: float, *, confidence: float = 0.95) -> Interval:
    """Return the score interval for a rate seen in n trials (Wilson 1927); n may be an effective size.

    Raises `ValueError` for n of 0 or less: without a trial there is no interval.
    """
    if n <= 0:
        raise ValueError(f"an interval needs trials, got n={n}")
    z = normal_quantile(confidence)
    centre = rate + z * z / (2 * n)
    spread = z * math.sqrt(max(0.0, rate * (1 - rate)) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return Interval(max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))


def wilson_ci(c: int, n: int, confidence: float = 0.95) -> Interval | None:
    """Return the score interval for c passes of n (Wilson 1927); None without a trial."""
    _check(c, n)
    return wilson(c / n, n, confidence=confidence) if n else None


def clopper_pearson_ci(c: int, n: int, confidence: float = 0.95) -> Interval | None:
    """Return the exact interval, which never covers too little (Clopper and Pearson 1934); None without a trial.

    The quantiles B(a/2; c, n-c+1) and B(1-a/2; c+1, n-c) of beta distributions.
    """
    _check(c, n)
    if not n:
        return None
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(c, n - c + 1, tail)) if c else 0.0
    high = float(betaincinv(c + 1, n - c, 1 - tail)) if c < n else 1.0
    return Interval(low, high)


def jeffreys_ci(c: int, n: int, confidence: float = 0.95) -> Interval:
    """Return the equal-tailed interval of the posterior Beta(c+1/2, n-c+1/2) (Brown, Cai, DasGupta 2001).

    The ends at c = 0 and c = n are those of the posterior; some authors move them to 0 and 1.
    """
    _check(c, n)
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    a, b = c + 0.5, n - c + 0.5
    return Interval(float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1 - tail)))


def _check(c: int, n: int) -> None:
    if not 0 <= c <= n:
        raise ValueError(f"c must lie in 0..{n}, got {c}")


def pass_hat_k_ci_wilson(c: int, n: int, k: int, confidence: float = 0.95) -> Interval | None:
    """Carry the Wilson interval of p over to p^k; an increasing map keeps the coverage exactly."""
    return _hat(wilson_ci(c, n, confidence), k)


def pass_at_k_ci_wilson(c: int, n: int, k: int, confidence: float = 0.95) -> Interval | None:
    """Carry the Wilson interval of p over to 1-(1-p)^k."""
    return _at(wilson_ci(c, n, confidence), k)


def pass_hat_k_ci_clopper_pearson(c: int, n: int, k: int, confidence: float = 0.95) -> Interval | None:
    """Carry the exact interval of p over to p^k."""
    return _hat(clopper_pearson_ci(c, n, confidence), k)


def pass_at_k_ci_clopper_pearson(c: int, n: int, k: int, confidence: float = 0.95) -> Interval | None:
    """Carry the exact interval of p over to 1-(1-p)^k."""
    return _at(clopper_pearson_ci(c, n, confidence), k)


def _hat(interval: Interval | None, k: int) -> Interval | None:
    return Interval(interval.low**k, interval.high**k) if interval else None


def _at(interval: Interval | None, k: int) -> Interval | None:
    return Interval(1 - (1 - interval.low) ** k, 1 - (1 - interval.high) ** k) if interval else None


def max_failure_rate_after_clean_run(n: int, confidence: float = 0.95) -> float:
    """Bound the failure rate from above after n passes of n, one-sided: 1 - (1-confidence)^(1/n).

    The one-sided exact limit; 3/n is its well-known approximation (Hanley and Lippman-Hand 1983).
    """
    return -math.expm1(math.log1p(-confidence) / n) if n else 1.0


def clean_trials_needed(pass_hat_k_at_least: float, k: int = 1, confidence: float = 0.95) -> int | None:
    """Return the least n whose clean run bounds p^k from below by the target, one-sided; None when no run can."""
    if pass_hat_k_at_least >= 1:
        return None
    if pass_hat_k_at_least <= 0:
        return 0
    needed = k * math.log1p(-confidence) / math.log(pass_hat_k_at_least)
    # A quotient that is whole but for rounding must not be rounded up once more.
    return math.ceil(needed - 1e-9)
