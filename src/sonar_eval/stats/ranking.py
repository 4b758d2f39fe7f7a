"""Which of several arms is best, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class RankInterval(NamedTuple):
    """The ranks an arm may have among the others (1 is best), and the probability that it is best."""

    low: int
    high: int
    p_best: float


def rank_intervals(
    rates: Sequence[Sequence[float]], n_resamples: int = 2000, seed: int = 0, confidence: float = 0.95
) -> list[RankInterval]:
    """Rank arms by the mean over scenarios, the scenarios drawn again and again with replacement.

    One row per arm, one column per scenario, the same scenarios for all. Arms that tie in a draw have each of the ranks
    they share in it, and share the first one.
    """
    import numpy as np

    matrix = np.asarray(rates, dtype=float)
    arms, scenarios = matrix.shape
    if not arms or not scenarios:
        raise ValueError(f"a ranking needs arms and scenarios, got {arms} and {scenarios}")
    draws = np.random.default_rng(seed).multinomial(scenarios, np.full(scenarios, 1 / scenarios), n_resamples)
    # Rounded, so that equal means are equal whatever order they were added up in.
    means = np.round(draws @ matrix.T / scenarios, 12)
    better = (means[:, None, :] > means[:, :, None]).sum(axis=2)
    not_worse = (means[:, None, :] >= means[:, :, None]).sum(axis=2)
    first = better == 0
    p_best = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)
    tail = (1 - confidence) / 2
    lows = np.quantile(better + 1, tail, axis=0, method="lower")
    highs = np.quantile(not_worse, 1 - tail, axis=0, method="higher")
    return [RankInterval(int(low), int(high), float(p)) for low, high, p in zip(lows, highs, p_best, strict=True)]
