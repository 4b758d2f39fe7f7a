"""How far the mean over scenarios may be off: on these scenarios, and on others like these.

`passes` counts per scenario; `n` is the trials per scenario, one number or one each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .counts import Counts, mean, rates_of, trials_of, variance
from .estimates import pass_at_k, pass_hat_k
from .intervals import Interval, normal_quantile, wilson


def student_quantile(confidence: float, df: float) -> float:
    """Return t such that Student's distribution has `confidence` of its mass within ±t."""
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + confidence / 2))


def suite_noise_variance(passes: Sequence[int], n: Counts) -> float | None:
    """Estimate the trial noise of the macro mean of exactly these scenarios: S^-2 sum p_s(1-p_s)/(n_s-1), unbiased.

    None when a scenario has fewer than two trials: one says nothing about its own noise.
    """
    rates, trials = rates_of(passes, n), trials_of(passes, n)
    if rates is None or min(trials) < 2:
        return None
    return sum(p * (1 - p) / (k - 1) for p, k in zip(rates, trials, strict=True)) / len(rates) ** 2


def suite_effective_n(passes: Sequence[int], n: Counts) -> float:
    """Return the size of one binomial sample as noisy as the suite's macro mean.

    max(N, m(1-m)/V+), where V+ adds one discordant trial to the noise so that it is never 0. The floor N holds since
    a sum of unequal Bernoullis spreads less than the binomial of the same mean (Hoeffding 1956).
    """
    rates, total = rates_of(passes, n), sum(trials_of(passes, n))
    noise = suite_noise_variance(passes, n)
    if rates is None or noise is None:
        return float(total)
    m = mean(rates)
    return max(float(total), m * (1 - m) / (noise + 1 / total**2))


def suite_wilson_ci(passes: Sequence[int], n: Counts, confidence: float = 0.95) -> Interval | None:
    """Return the interval of the macro mean on exactly these scenarios: Wilson's on the effective n."""
    rates = rates_of(passes, n)
    return wilson(mean(rates), suite_effective_n(passes, n), confidence=confidence) if rates else None


def clustered_standard_error(passes: Sequence[int], n: Counts) -> float | None:
    """Return the standard error of the mean when scenarios are a sample, trials of one hanging together.

    sqrt(sum_s (sum_j (x_sj - mean))^2 * S/(S-1)) / N (Miller 2024, arXiv 2411.00640, with the factor for few
    clusters); for equal n the standard error of the scenario rates. None below two scenarios.
    """
    trials = trials_of(passes, n)
    scenarios, total = len(trials), sum(trials)
    if scenarios < 2 or not total:
        return None
    pooled = sum(passes) / total
    spread = sum((c - k * pooled) ** 2 for c, k in zip(passes, trials, strict=True))
    return math.sqrt(spread * scenarios / (scenarios - 1)) / total


def population_t_ci(passes: Sequence[int], n: Counts, confidence: float = 0.95) -> Interval | None:
    """Return the t interval of the scenario rates; may leave 0..1, and covers too little near them.

    None below two scenarios.
    """
    rates = rates_of(passes, n)
    if rates is None or len(rates) < 2:
        return None
    half = student_quantile(confidence, len(rates) - 1) * math.sqrt(variance(rates) / len(rates))
    return Interval(mean(rates) - half, mean(rates) + half)


def population_wilson_ci(passes: Sequence[int], n: Counts, confidence: float = 0.95) -> Interval | None:
    """Return the interval of the mean over scenarios like these; None below two scenarios.

    Wilson's on the effective n of the clustered error, cut by (z/t)^2 for the few scenarios (after Korn and Graubard
    1998); the effective n is the number of scenarios when they all agree.
    """
    rates, error = rates_of(passes, n), clustered_standard_error(passes, n)
    if rates is None or error is None:
        return None
    m, scenarios = mean(rates), len(rates)
    effective = m * (1 - m) / error**2 if error > 1e-12 else float(scenarios)
    cut = normal_quantile(confidence) / student_quantile(confidence, scenarios - 1)
    return wilson(m, effective * cut**2, confidence=confidence)


def intra_scenario_correlation(passes: Sequence[int], n: Counts) -> float | None:
    """Return how alike trials of one scenario are: (MSB-MSW) / (MSB+(n-1)MSW), the ANOVA estimate.

    With unequal n the mean group size of Donner (1986). None when every trial agrees, or without repeats.
    """
    trials = trials_of(passes, n)
    rates, scenarios, total = rates_of(passes, n), len(trials), sum(trials)
    if rates is None or scenarios < 2 or total <= scenarios:
        return None
    pooled = sum(passes) / total
    between = sum(k * (p - pooled) ** 2 for p, k in zip(rates, trials, strict=True)) / (scenarios - 1)
    within = sum(k * p * (1 - p) for p, k in zip(rates, trials, strict=True)) / (total - scenarios)
    size = (total - sum(k * k for k in trials) / total) / (scenarios - 1)
    whole = between + (size - 1) * within
    return (between - within) / whole if whole > 0 else None


def macro_pass_hat_k(passes: Sequence[int], n: Counts) -> list[float]:
    """List the mean of pass^k' over scenarios, as far as every one of them has trials."""
    return [_macro(pass_hat_k(k, c, size) for c, k in _pairs(passes, n)) for size in _sizes(passes, n)]


def macro_pass_at_k(passes: Sequence[int], n: Counts) -> list[float]:
    """List the mean of pass@k' over scenarios, as far as every one of them has trials."""
    return [_macro(pass_at_k(k, c, size) for c, k in _pairs(passes, n)) for size in _sizes(passes, n)]


def macro_pass_hat_k_ci(passes: Sequence[int], n: Counts, k: int, confidence: float = 0.95) -> Interval | None:
    """Return the interval of macro pass^k: Wilson's on as many verdicts as there are scenarios; None when k > n.

    Right for scenarios like these, and wider than needed for exactly these.
    """
    curve = macro_pass_hat_k(passes, n)
    return wilson(curve[k - 1], len(passes), confidence=confidence) if 1 <= k <= len(curve) else None


def _pairs(passes: Sequence[int], n: Counts) -> list[tuple[int, int]]:
    return list(zip(passes, trials_of(passes, n), strict=True))


def _sizes(passes: Sequence[int], n: Counts) -> range:
    return range(1, min(trials_of(passes, n), default=0) + 1)


def _macro(values: Iterable[float | None]) -> float:
    return mean([value for value in values if value is not None])


def beta_binomial_mle(passes: Sequence[int], n: Counts) -> list[float] | None:
    """Fit Beta(a, b) to the scenario rates by maximum likelihood; None when the likelihood has no top inside.

    For sorting scenarios by how broken they are and for pass^k beyond n, not for verdicts.
    """
    trials = trials_of(passes, n)
    if not trials or sum(passes) in (0, sum(trials)):
        return None
    import numpy as np
    from scipy.optimize import minimize
    from scipy.special import betaln

    passed, failed = np.array(passes), np.array(trials) - np.array(passes)

    def loss(logs: Sequence[float]) -> float:
        a, b = np.exp(logs)
        return -float(np.sum(betaln(a + passed, b + failed) - betaln(a, b)))

    options = {"xatol": 1e-11, "fatol": 1e-13, "maxiter": 10_000, "maxfev": 10_000}
    found = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options=options)
    # Scenarios that spread no more than chance pull both parameters to infinity.
    return [float(value) for value in np.exp(found.x)] if np.all(np.abs(found.x) < 12) else None


def shrunk_rates(passes: Sequence[int], n: Counts, alpha: float, beta: float) -> list[float]:
    """Return each scenario's rate drawn to the common one: (c+a) / (n+a+b)."""
    return [(c + alpha) / (k + alpha + beta) for c, k in _pairs(passes, n)]
