"""How many trials and scenarios a question needs, and what those at hand can answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from .counts import Counts, mean, rates_of, trials_of


def _factor(alpha: float, power: float) -> float:
    """Return (z_(1-alpha/2) + z_power)^2, the price of two-sided alpha and power in a normal approximation."""
    normal = NormalDist()
    return (normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)) ** 2


def n_per_arm_two_proportions(p_a: float, p_b: float, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return trials per arm to tell two independent rates apart, unpooled (Fleiss 1981); None when equal."""
    if p_a == p_b:
        return None
    return _factor(alpha, power) * (p_a * (1 - p_a) + p_b * (1 - p_b)) / (p_a - p_b) ** 2


def n_per_arm_cohen_h(p_a: float, p_b: float, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return trials per arm by Cohen's h, both tails counted (Cohen 1988); None when the rates are equal."""
    h = abs(2 * math.asin(math.sqrt(p_b)) - 2 * math.asin(math.sqrt(p_a)))
    if not h:
        return None
    normal, z = NormalDist(), NormalDist().inv_cdf(1 - alpha / 2)

    def reached(n: float) -> float:
        shift = h * math.sqrt(n / 2)
        return normal.cdf(shift - z) + normal.cdf(-shift - z)

    low, high = 0.0, 2 * _factor(alpha, max(power, 0.5)) / h**2 + 1
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) < power else (low, middle)
    return (low + high) / 2


def trials_per_scenario_needed(
    var_a: float, var_b: float, scenarios: int, delta: float, alpha: float = 0.05, power: float = 0.8
) -> list[float] | None:
    """Return [trials per scenario, trials per arm before rounding] that reveal a difference on these scenarios.

    `var` is the mean over scenarios of p(1-p). N = (z+z)^2 (var_a+var_b) / delta^2, made N/4 (1+sqrt(1+4/(N delta)))^2
    for the continuity of exact tests (Casagrande, Pike and Smith 1978). None for a difference of 0.
    """
    if not delta or scenarios < 1:
        return None
    root = math.sqrt(_factor(alpha, power) * (var_a + var_b)) / abs(delta)
    total = ((root + math.sqrt(root**2 + 4 / abs(delta))) / 2) ** 2
    # A quotient that is whole but for rounding must not be rounded up once more.
    return [max(1, math.ceil(total / scenarios - 1e-9)), total]


def minimum_detectable_effect(
    var_a: float, var_b: float, scenarios: int, k: int, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Return the difference that S x k trials per arm reveal, by the plain normal approximation; None without."""
    return math.sqrt(_factor(alpha, power) * (var_a + var_b) / (scenarios * k)) if scenarios * k > 0 else None


def detectable_difference(
    var_a: float, var_b: float, trials: float, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Return the difference that so many trials per arm reveal; inverts `trials_per_scenario_needed`."""
    if trials <= 0:
        return None
    return min(1.0, (1 + math.sqrt(_factor(alpha, power) * (var_a + var_b) * trials)) / trials)


def trial_variance(passes: Sequence[int], n: Counts) -> float | None:
    """Estimate the mean over scenarios of p(1-p), unbiased: p(1-p) n/(n-1); None without repeats."""
    rates, trials = rates_of(passes, n), trials_of(passes, n)
    if rates is None or min(trials) < 2:
        return None
    return mean([p * (1 - p) * k / (k - 1) for p, k in zip(rates, trials, strict=True)])


def typical_variance(rate: float, rho: float = 0.5) -> float:
    """Return the mean over scenarios of p(1-p) when trials of a scenario correlate by `rho`.

    0.5 is what public leaderboards of tau2-bench show (median .53).
    """
    inside = min(1.0, max(0.0, rate))
    return (1 - rho) * inside * (1 - inside)


def scenarios_needed(effect_sd: float, delta: float, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Return the scenarios below which no number of trials reveals a difference across scenarios; None for 0.

    `effect_sd` is the standard deviation of the true difference over scenarios: (z+z)^2 sd^2 / delta^2 (Miller 2024).
    """
    return max(2, math.ceil(_factor(alpha, power) * effect_sd**2 / delta**2)) if delta else None


def mcnemar_pairs_needed(discordant_rate: float, delta: float, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return the matched pairs that reveal a difference (Connor 1987); None for a difference of 0."""
    if not delta:
        return None
    normal = NormalDist()
    wide = normal.inv_cdf(1 - alpha / 2) * math.sqrt(discordant_rate)
    narrow = normal.inv_cdf(power) * math.sqrt(max(0.0, discordant_rate - delta**2))
    return ((wide + narrow) / delta) ** 2


def one_scenario_drop_p(k: int, before: int, after: int) -> float:
    """Return the one-sided exact p of a drop from `before` to `after` of k in one scenario (Fisher 1935)."""
    passed, ways = before + after, math.comb(2 * k, before + after)
    return sum(math.comb(k, c) * math.comb(k, passed - c) for c in range(after + 1) if passed - c <= k) / ways
