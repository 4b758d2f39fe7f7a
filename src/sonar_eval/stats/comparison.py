"""One candidate against one baseline: the numbers, the verdict, the gate."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from .counts import Counts, mean, rates_of, trials_of
from .differences import square_and_add
from .effects import mean_t_ci
from .intervals import Interval
from .significance import stratified_exact_test
from .suite import suite_effective_n

ERROR_LIMIT = 0.10


def compare(
    passes_a: Sequence[int],
    n_a: Counts,
    passes_b: Sequence[int],
    n_b: Counts,
    confidence: float = 0.95,
    clusters: Sequence[Hashable] | None = None,
) -> dict[str, Any] | None:
    """Compare macro pass rates of b and a, stratum by stratum; None when a stratum lacks trials.

    The p-values are exact (`stratified_exact_test`). "suite_ci" is Newcombe's (1998) on effective sizes.
    "population_ci" is the paired t interval over the clusters' differences (each stratum its own by default), joined
    with the suite's since to generalise can only add doubt; when all differences are equal, Newcombe's on one trial
    per cluster.
    """
    rates_a, rates_b = rates_of(passes_a, n_a), rates_of(passes_b, n_b)
    if rates_a is None or rates_b is None:
        return None
    rate_a, rate_b = mean(rates_a), mean(rates_b)
    size_a, size_b = suite_effective_n(passes_a, n_a), suite_effective_n(passes_b, n_b)
    suite = square_and_add(rate_b, size_b, rate_a, size_a, confidence=confidence)
    p = stratified_exact_test(passes_a, n_a, passes_b, n_b)
    diffs = _by_cluster([b - a for a, b in zip(rates_a, rates_b, strict=True)], clusters)
    population = _across(diffs, rate_a, rate_b, confidence)
    return {
        "rate_a": rate_a,
        "rate_b": rate_b,
        "diff": rate_b - rate_a,
        "suite_ci": suite,
        "suite_ci_90": square_and_add(rate_b, size_b, rate_a, size_a, confidence=0.9),
        "p_two_sided": p["two_sided"],
        "p_worse": p["less"],
        "population_ci": Interval(min(suite.low, population.low), max(suite.high, population.high)),
    }


def _by_cluster(diffs: Sequence[float], clusters: Sequence[Hashable] | None) -> list[float]:
    grouped: dict[Hashable, list[float]] = {}
    for diff, cluster in zip(diffs, clusters if clusters is not None else range(len(diffs)), strict=True):
        grouped.setdefault(cluster, []).append(diff)
    return [mean(group) for group in grouped.values()]


def _across(diffs: Sequence[float], rate_a: float, rate_b: float, confidence: float) -> Interval:
    interval = mean_t_ci(diffs, confidence)
    if interval is None or max(diffs) - min(diffs) < 1e-12:
        return square_and_add(rate_b, len(diffs), rate_a, len(diffs), confidence=confidence)
    return interval


def verdict(
    passes_a: Sequence[int],
    n_a: Counts,
    passes_b: Sequence[int],
    n_b: Counts,
    alpha: float = 0.05,
    margin: float = 0.05,
) -> str | None:
    """Say what the trials allow to say of b against a; None when a stratum lacks trials.

    One of better, better_on_this_suite, worse, worse_on_this_suite, equivalent and no_detectable_difference.
    """
    found = compare(passes_a, n_a, passes_b, n_b, 1 - alpha)
    return verdict_of(found, found["p_two_sided"], alpha=alpha, margin=margin) if found else None


def verdict_of(found: dict[str, Any], p: float, *, alpha: float = 0.05, margin: float = 0.05) -> str:
    """Say it of numbers from `compare`; `p` may be adjusted for the number of candidates."""
    if p <= alpha and abs(found["diff"]) > 1e-12:
        low, high = found["population_ci"]
        word = "better" if found["diff"] > 0 else "worse"
        return word if low > 0 or high < 0 else f"{word}_on_this_suite"
    low, high = found["suite_ci_90"]
    return "equivalent" if -margin < low and high < margin else "no_detectable_difference"


def gate(
    passes_a: Sequence[int],
    n_a: Counts,
    passes_b: Sequence[int],
    n_b: Counts,
    confirm_p_worse: float | None = None,
    new_safety_failures: int = 0,
    error_rate_a: float = 0.0,
    error_rate_b: float = 0.0,
    no_worse_than: float | None = None,
    alpha: float = 0.05,
) -> str:
    """Decide whether b may replace a.

    `confirm_p_worse` is the p of fresh trials of both arms; `no_worse_than` a margin as a fraction, for a gate that
    wants equality shown. One of invalid, fail_safety, rerun, fail_regression, pass_unconfirmed, fail_not_shown, pass.
    """
    if max(error_rate_a, error_rate_b) > ERROR_LIMIT:
        return "invalid"
    found = compare(passes_a, trials_of(passes_a, n_a), passes_b, trials_of(passes_b, n_b))
    if found is None:
        return "invalid"
    if new_safety_failures:
        return "fail_safety"
    if found["p_worse"] <= alpha:
        if confirm_p_worse is None:
            return "rerun"
        return "fail_regression" if confirm_p_worse <= alpha else "pass_unconfirmed"
    if no_worse_than is not None and found["suite_ci_90"][0] <= -no_worse_than:
        return "fail_not_shown"
    return "pass"
