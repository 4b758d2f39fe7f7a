"""Scores in 0..1, such as a judge's: one list of scores per scenario and arm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .counts import mean, variance
from .effects import paired_t_ci
from .intervals import Interval
from .suite import student_quantile

Scores = Sequence[Sequence[float]]


def suite_mean_diff_ci(scores_a: Scores, scores_b: Scores, confidence: float = 0.95) -> list[float] | None:
    """Return [difference, low, high, df] of the macro means on exactly these scenarios.

    Variances within scenarios, degrees of freedom after Welch (1947) and Satterthwaite (1946). None when a scenario has
    fewer than two scores in an arm.
    """
    if not scores_a or min(map(len, [*scores_a, *scores_b])) < 2:
        return None
    scenarios = len(scores_a)
    diff = mean([mean(b) - mean(a) for a, b in zip(scores_a, scores_b, strict=True)])
    parts = [(variance(values) / len(values) / scenarios**2, len(values)) for values in (*scores_a, *scores_b)]
    whole = sum(part for part, _ in parts)
    lost = sum(part**2 / (n - 1) for part, n in parts)
    df = whole**2 / lost if lost else float(sum(n - 1 for _, n in parts))
    half = student_quantile(confidence, df) * math.sqrt(whole)
    return [diff, diff - half, diff + half, df]


def population_mean_diff_ci(scores_a: Scores, scores_b: Scores, confidence: float = 0.95) -> Interval | None:
    """Return the paired t interval over scenario means: the difference on scenarios like these.

    None below two scenarios, or when one lacks scores.
    """
    if not all(map(len, (*scores_a, *scores_b))):
        return None
    return paired_t_ci([mean(b) for b in scores_b], [mean(a) for a in scores_a], confidence)


def bca_mean_ci_seeded(
    x: Sequence[float], n_resamples: int = 4999, seed: int = 0, confidence: float = 0.95
) -> Interval | None:
    """Return the bias-corrected and accelerated bootstrap interval of a mean (Efron 1987).

    Covers too little below some 50 values; here to compare with tools that use it. None without two different values.
    """
    if len(set(x)) < 2:
        return None
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(x),),
        np.mean,
        n_resamples=n_resamples,
        confidence_level=confidence,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))
