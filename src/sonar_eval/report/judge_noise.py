"""Whether a difference in the judge's scores is more than the judge's own noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..stats import mean, normal_quantile, variance
from .arm import Arm, CellKey
from .comparison import Contrast, ScoreDifference


def recorded_variance(arms: Iterable[Arm]) -> float | None:
    """Return how much a trial's score varies by the judge alone, where it was asked several times; None elsewhere."""
    found = []
    for arm in arms:
        for record in arm.records():
            scores = (record.get("grader") or {}).get("scores") or ()
            if len(scores) > 1:
                # The score of the trial is the mean of these answers.
                found.append(variance(scores) / len(scores))
    return mean(found) if found else None


def with_noise(
    contrast: Contrast, arms: tuple[Arm, Arm], keys: Sequence[CellKey], judge_variance: float | None
) -> Contrast:
    """Say how far the difference of judge's means may come from the judge alone (95%)."""
    if contrast.judge is None or judge_variance is None:
        return contrast
    sizes = [[_graded(arm.cells[key].counted) for arm in arms] for key in keys]
    paired = [row for row in sizes if all(row)]
    of_means = sum(judge_variance / n for row in paired for n in row) / len(paired) ** 2
    noise = normal_quantile(0.95) * math.sqrt(of_means)
    return replace(contrast, judge=replace(contrast.judge, judge_sd=math.sqrt(judge_variance), noise=noise))


def _graded(records: Sequence[Mapping[str, Any]]) -> int:
    return sum((record.get("grader") or {}).get("score") is not None for record in records)


def noise_warnings(contrasts: Iterable[Contrast]) -> list[str]:
    """List the differences in the judge's scores that asking the judge again could have made."""
    return [
        _warning(contrast.candidate, contrast.judge)
        for contrast in contrasts
        if contrast.judge is not None and _inside(contrast.judge)
    ]


def _inside(judge: ScoreDifference) -> bool:
    if not judge.noise or judge.suite.value is None:
        return False
    return abs(judge.suite.value) <= judge.noise


def _warning(candidate: str, judge: ScoreDifference) -> str:
    return (
        f"{candidate}: the judge differs from itself by ±{judge.noise:.3f} in this mean (±{judge.judge_sd:.3f} on one "
        f"conversation); the difference of {judge.suite.value:+.3f} is inside that"
    )
