"""The size of an effect on other scales than percentage points; b is the candidate, a the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .counts import mean, variance
from .intervals import Interval
from .suite import student_quantile


def cohen_h(p_b: float, p_a: float) -> float:
    """Return 2 asin sqrt(p_b) - 2 asin sqrt(p_a) (Cohen 1988)."""
    return 2 * math.asin(math.sqrt(p_b)) - 2 * math.asin(math.sqrt(p_a))


def prob_superiority_a12(b: Sequence[float], a: Sequence[float]) -> float | None:
    """Return the chance that a value of b exceeds one of a, ties by half (Vargha and Delaney 2000)."""
    if not len(a) or not len(b):
        return None
    return sum((y > x) + 0.5 * (y == x) for y in b for x in a) / (len(a) * len(b))


def cliffs_delta(b: Sequence[float], a: Sequence[float]) -> float | None:
    """Return P(b > a) - P(b < a) (Cliff 1993)."""
    chance = prob_superiority_a12(b, a)
    return None if chance is None else 2 * chance - 1


def cohen_dz(b: Sequence[float], a: Sequence[float]) -> float | None:
    """Return the mean paired difference in units of its standard deviation; None when that is 0."""
    diffs = _paired(b, a)
    spread = math.sqrt(variance(diffs)) if len(diffs) > 1 else 0.0
    return mean(diffs) / spread if spread > 1e-15 else None


def paired_t_ci(b: Sequence[float], a: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the t interval of the mean paired difference; None below two pairs."""
    return mean_t_ci(_paired(b, a), confidence)


def mean_t_ci(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the t interval of a mean (Student 1908); None below two values."""
    if len(values) < 2:
        return None
    half = student_quantile(confidence, len(values) - 1) * math.sqrt(variance(values) / len(values))
    return Interval(mean(values) - half, mean(values) + half)


def _paired(b: Sequence[float], a: Sequence[float]) -> list[float]:
    return [y - x for y, x in zip(b, a, strict=True)]


def geometric_mean_ratio_ci(b: Sequence[float], a: Sequence[float], confidence: float = 0.95) -> list[float | None]:
    """Return how many times b is a, and its interval: the t interval of paired log ratios, taken back.

    For latency, tokens and cost. The interval is None below two pairs, the ratio without one, and both when a value is
    not positive.
    """
    if any(value <= 0 for value in (*b, *a)):
        return [None, None, None]
    logs = [math.log(y / x) for y, x in zip(b, a, strict=True)]
    interval = mean_t_ci(logs, confidence)
    ratio = math.exp(mean(logs)) if logs else None
    return [ratio, *(map(math.exp, interval) if interval else (None, None))]


def median_ci_order_statistics(x: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the interval of a median between two order statistics, whatever the distribution (Thompson 1936).

    None with too few values for that confidence.
    """
    n, ordered = len(x), sorted(x)
    tail, below = 0.0, 0
    while below < n // 2:
        tail += math.comb(n, below) / 2**n
        if tail > (1 - confidence) / 2:
            break
        below += 1
    return Interval(ordered[below - 1], ordered[n - below]) if below else None


def prob_b_beats_a(passes_a: int, n_a: int, passes_b: int, n_b: int, prior: Sequence[float] = (1.0, 1.0)) -> float:
    """Return the posterior chance that b has the higher rate in one scenario, each rate with the same Beta prior.

    A finite sum for whole parameters (Miller 2015), else an integral. Never to be multiplied over scenarios.
    """
    a1, b1 = prior[0] + passes_a, prior[1] + n_a - passes_a
    a2, b2 = prior[0] + passes_b, prior[1] + n_b - passes_b
    from scipy.special import betainc, betaln

    if float(a2).is_integer():
        logs = (betaln(a1 + i, b1 + b2) - math.log(b2 + i) - betaln(1 + i, b2) - betaln(a1, b1) for i in range(int(a2)))
        return float(sum(math.exp(value) for value in logs))
    from scipy.integrate import quad
    from scipy.stats import beta

    density = beta(a2, b2)
    # By quantiles of b: the density may have poles at both ends, its quantile function has none.
    return float(quad(lambda q: betainc(a1, b1, density.ppf(q)), 0.0, 1.0, epsabs=1e-11, epsrel=1e-11, limit=400)[0])
