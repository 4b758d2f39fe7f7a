"""Several arms in order, and how sure that order is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..stats import mean, rank_intervals
from .arm import Arm
from .comparison import RankedArm

_FEWEST_ARMS = 3
_FEWEST_SCENARIOS = 2
RESAMPLES = 2000


def rank_arms(arms: Sequence[Arm]) -> list[RankedArm]:
    """Rank arms by their macro rate over the scenarios that all of them measured; empty for fewer than three arms.

    An arm has a rank only where its interval is that one rank.
    """
    rates = list(_rates(arms))
    if len(arms) < _FEWEST_ARMS or len(rates) < _FEWEST_SCENARIOS:
        return []
    by_arm = [list(row) for row in zip(*rates, strict=True)]
    ranked = [
        RankedArm(arm.name, mean(row), found.low if found.low == found.high else None, *found)
        for arm, row, found in zip(arms, by_arm, rank_intervals(by_arm, RESAMPLES), strict=True)
    ]
    return sorted(ranked, key=lambda one: -one.rate)


def _rates(arms: Sequence[Arm]) -> Iterator[list[float]]:
    """Yield, scenario by scenario, the rate of each arm over the cells that all arms measured."""
    common = [key for key in arms[0].cells if all(key in arm.cells and arm.cells[key].n for arm in arms)]
    usable = [key for key in common if not any(arm.cells[key].stopped for arm in arms)]
    for scenario in dict.fromkeys(key.scenario for key in usable):
        keys = [key for key in usable if key.scenario == scenario]
        yield [mean([arm.cells[key].passes / arm.cells[key].n for key in keys]) for arm in arms]
