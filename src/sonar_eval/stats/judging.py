"""How far a judge can be trusted, and what its verdicts are worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .counts import mean, variance
from .intervals import Interval
from .significance import mcnemar_exact

Table = Sequence[Sequence[float]]
Ratings = Sequence[Sequence[float | None]]


def cohen_kappa(table: Table) -> float | None:
    """Return the agreement of two raters beyond chance (Cohen 1960); None when chance alone would be perfect."""
    return _kappa(table, lambda i, j: float(i != j))


def cohen_kappa_quadratic(table: Table) -> float | None:
    """Return Cohen's kappa with disagreements weighted by their squared distance (Cohen 1968)."""
    return _kappa(table, lambda i, j: float((i - j) ** 2))


def kappa_bootstrap_ci(
    table: Table, n_resamples: int = 2000, seed: int = 0, confidence: float = 0.95
) -> Interval | None:
    """Return the percentile interval of `cohen_kappa`, the items drawn again with replacement (Efron 1979).

    None when kappa is undefined, or when it was in half of the draws.
    """
    if cohen_kappa(table) is None:
        return None
    import numpy as np

    counts = np.asarray(table, dtype=float)
    total = int(counts.sum())
    drawn = np.random.default_rng(seed).multinomial(total, counts.ravel() / total, n_resamples)
    draws = drawn.reshape(n_resamples, *counts.shape)
    agree = np.trace(draws, axis1=1, axis2=2) / total
    by_chance = (draws.sum(axis=2) * draws.sum(axis=1)).sum(axis=1) / total**2
    defined = by_chance < 1
    if defined.sum() * 2 < n_resamples:
        return None
    kappas = (agree[defined] - by_chance[defined]) / (1 - by_chance[defined])
    low, high = np.quantile(kappas, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def _kappa(table: Table, weight: Callable[[int, int], float]) -> float | None:
    total = sum(map(sum, table))
    rows, columns = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    places = [(i, j) for i in range(len(rows)) for j in range(len(columns))]
    seen = sum(weight(i, j) * table[i][j] for i, j in places)
    by_chance = sum(weight(i, j) * rows[i] * columns[j] for i, j in places)
    return 1 - seen * total / by_chance if by_chance else None


def krippendorff_alpha_nominal(ratings: Ratings) -> float | None:
    """Return the agreement of any number of raters on categories, missing ratings allowed (Krippendorff 1970).

    One row per rater, one column per unit.
    """
    return _alpha(ratings, lambda x, y: float(x != y))


def krippendorff_alpha_interval(ratings: Ratings) -> float | None:
    """Return Krippendorff's alpha with disagreements weighted by their squared distance."""
    return _alpha(ratings, lambda x, y: (x - y) ** 2)


def _alpha(ratings: Ratings, distance: Callable[[float, float], float]) -> float | None:
    units = [[value for value in unit if value is not None] for unit in zip(*ratings, strict=True)]
    paired = [unit for unit in units if len(unit) > 1]
    values = [value for unit in paired for value in unit]
    observed = sum(sum(distance(x, y) for x in unit for y in unit) / (len(unit) - 1) for unit in paired)
    expected = sum(distance(x, y) for x in values for y in values)
    return 1 - (len(values) - 1) * observed / expected if expected else None


def rogan_gladen(observed: float, sensitivity: float, specificity: float) -> float | None:
    """Correct a judged pass rate for the judge's errors (Rogan and Gladen 1978); None for a judge that guesses.

    Not clipped: outside 0..1, the calibration and the observation disagree.
    """
    power = sensitivity + specificity - 1
    return (observed + specificity - 1) / power if abs(power) > 1e-12 else None


def rogan_gladen_se(
    observed: float, n: int, sensitivity: float, n_positive: int, specificity: float, n_negative: int
) -> float | None:
    """Return the standard error of `rogan_gladen`, calibration noise included (Lang and Reiczigel 2014).

    None for a judge that guesses, and without trials or labels of either kind.
    """
    true = rogan_gladen(observed, sensitivity, specificity)
    if true is None or min(n, n_positive, n_negative) < 1:
        return None
    noise = (
        observed * (1 - observed) / n
        + true**2 * sensitivity * (1 - sensitivity) / n_positive
        + (1 - true) ** 2 * specificity * (1 - specificity) / n_negative
    )
    return math.sqrt(noise) / abs(sensitivity + specificity - 1)


def ppi_mean(
    human: Sequence[float], judge_on_human: Sequence[float], judge_unlabelled: Sequence[float]
) -> list[float | None]:
    """Return [estimate, standard error] of a mean from many judged and few labelled (Angelopoulos et al. 2023).

    The error is None below two of either, the estimate without one.
    """
    if min(len(human), len(judge_unlabelled)) < 1:
        return [None, None]
    errors = [y - f for y, f in zip(human, judge_on_human, strict=True)]
    estimate = mean(judge_unlabelled) + mean(errors)
    if min(len(errors), len(judge_unlabelled)) < 2:
        return [estimate, None]
    return [
        estimate,
        math.sqrt(variance(judge_unlabelled) / len(judge_unlabelled) + variance(errors) / len(errors)),
    ]


def ppi_plus_plus_mean(
    human: Sequence[float], judge_on_human: Sequence[float], judge_unlabelled: Sequence[float]
) -> list[float]:
    """Return [weight, estimate]: as `ppi_mean`, the judge weighted by how well it agrees (PPI++, arXiv 2311.01453).

    The labels alone, at weight 0, where there are fewer than two or nothing else was judged.
    """
    m, n = len(human), len(judge_unlabelled)
    if m < 2 or not n:
        return [0.0, mean(human)]
    pooled = variance([*judge_on_human, *judge_unlabelled])
    labels, judged = mean(human), mean(judge_on_human)
    joint = sum((y - labels) * (f - judged) for y, f in zip(human, judge_on_human, strict=True)) / (m - 1)
    weight = joint / ((1 + m / n) * pooled) if pooled else 0.0
    return [weight, labels + weight * (mean(judge_unlabelled) - judged)]


def ppi_plus_plus_se(
    human: Sequence[float], judge_on_human: Sequence[float], judge_unlabelled: Sequence[float]
) -> float:
    """Return the standard error of `ppi_plus_plus_mean`: s²(wf)/N + s²(y - wf)/m, its weight w taken as known."""
    weight, _ = ppi_plus_plus_mean(human, judge_on_human, judge_unlabelled)
    errors = [y - weight * f for y, f in zip(human, judge_on_human, strict=True)]
    from_judge = weight**2 * variance(judge_unlabelled) / len(judge_unlabelled)
    return math.sqrt(from_judge + variance(errors) / len(errors))


def optimum_repeats(judge_variance: float, trial_variance: float, cost_ratio: float = 1.0) -> int | None:
    """Return how often a trial should be judged for the smallest error at a given cost; None when trials never differ.

    sqrt(judge variance / trial variance * cost of a trial / cost of a judgement), the variances of single judgements
    and of trials within a scenario; `cost_ratio` is the last factor.
    """
    if trial_variance <= 0:
        return None if judge_variance > 0 else 1
    return max(1, round(math.sqrt(judge_variance / trial_variance * cost_ratio)))


def repeat_judge_variance(scores: Sequence[Sequence[float]]) -> list[float | None]:
    """Return [judge variance, trial variance, ICC(1)], a row per judged trial (Shrout and Fleiss 1979).

    None each below two trials, or when a trial was judged once.
    """
    if len(scores) < 2 or min(map(len, scores)) < 2:
        return [None, None, None]
    repeats = len(scores[0])
    within = mean([variance(row) for row in scores])
    between = repeats * variance([mean(row) for row in scores])
    whole = between + (repeats - 1) * within
    return [within, (between - within) / repeats, (between - within) / whole if whole else None]


def position_bias(first_wins: int, second_wins: int) -> list[float | None]:
    """Return [share won by the answer shown first, exact two-sided p], both orders of every pair judged."""
    total = first_wins + second_wins
    return [first_wins / total if total else None, mcnemar_exact(first_wins, second_wins)]
