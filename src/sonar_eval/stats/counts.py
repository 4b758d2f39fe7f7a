"""Trial counts per scenario, the input of everything about a suite."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

Counts = int | Sequence[int]


def trials_of(passes: Sequence[int], n: Counts) -> list[int]:
    """Spell the trials per scenario out: one number stands for all of them."""
    # numpy counts are integers too, and must not leak into what is computed from them.
    trials = [int(n)] * len(passes) if isinstance(n, (int, Integral)) else [int(asked) for asked in n]
    if len(trials) != len(passes):
        raise ValueError(f"{len(passes)} scenarios have passes, but {len(trials)} have trials")
    for passed, asked in zip(passes, trials, strict=True):
        if not 0 <= passed <= asked:
            raise ValueError(f"passes must lie in 0..{asked}, got {passed}")
    return trials


def rates_of(passes: Sequence[int], n: Counts) -> list[float] | None:
    """Return the pass rate of each scenario; None when there is none, or one without a trial."""
    trials = trials_of(passes, n)
    if not trials or not all(trials):
        return None
    return [int(passed) / asked for passed, asked in zip(passes, trials, strict=True)]


def mean(values: Sequence[float]) -> float:
    """Return the plain mean."""
    return sum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """Return the unbiased sample variance; needs two values."""
    centre = mean(values)
    return sum((value - centre) ** 2 for value in values) / (len(values) - 1)
