"""An arm, and a candidate against its baseline, as named numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from ..report import Arm, Comparison, Contrast
from ..report.comparison import ArmSummary, Estimate
from ..scorecard import Score

_DIGITS = 4
_COLUMNS = ("scenario", "fault", "also", "n", "passed", "not_measured", "copies")


def arm_scores(comparison: Comparison, arm: Arm) -> list[Score]:
    """List the numbers of an arm over the cells that were compared, under the names that a cell's numbers have."""
    summary = next(row for row in comparison.arms if row.name == arm.name)
    return _defined(_of_an_arm(summary, sum(record["outcome"] == "errored" for record in arm.records())))


def _of_an_arm(summary: ArmSummary, errored: int) -> Iterator[tuple[str, float | None]]:
    yield from _estimate("pass_rate", summary.pass_rate, "pass_rate_ci")
    yield "pass_rate_pop_ci_low", summary.population.low
    yield "pass_rate_pop_ci_high", summary.population.high
    yield "pass_rate_errors_fail", summary.pass_rate_errors_fail
    yield from ((f"pass_hat_k {k}", value) for k, value in enumerate(summary.pass_hat_k, 1))
    yield "scenarios_held", summary.held
    if summary.safety.assertions:
        yield "safety_violations", summary.safety.failed
        yield "safety_failure_rate_upper", summary.safety.rate_upper
    yield "trials_asked", summary.asked
    yield "trials_judged", summary.trials
    yield "trials_errored", errored
    yield "intra_scenario_rho", summary.rho
    yield "judge_mean", summary.judge_mean
    yield "latency_p50_s", summary.latency_s
    yield "tokens_mean", summary.tokens
    # As in a cell's numbers: where nothing cost anything, there is nothing to show.
    yield "cost_usd_by/bot", summary.cost_usd or None
    yield "cost_usd_per_pass", summary.cost_usd_per_pass or None


def contrast_scores(contrast: Contrast, trials: int) -> list[Score]:
    """List what was found of a candidate: `pass_rate/diff`, its intervals, its p-values, and what was detectable.

    `trials` are those of both arms. The same under `judge_mean/`, as far as it is known there. What is undefined is
    left out; nothing is there for arms that cannot be compared.
    """
    return _defined(_of_a_contrast(contrast, trials)) if contrast.diff is not None else []


def _of_a_contrast(contrast: Contrast, trials: int) -> Iterator[tuple[str, float | None]]:
    yield from _difference("pass_rate", contrast.suite, contrast.population)
    yield "pass_rate/p_value", contrast.p
    yield "pass_rate/p_mid", contrast.p_mid
    yield "pass_rate/p_worse", contrast.p_worse
    yield "pass_rate/p_holm", contrast.p_holm
    yield "pass_rate/n_scenarios", contrast.scenarios
    yield "pass_rate/n_trials", trials
    yield "pass_rate/mde", contrast.mde
    yield "pass_rate/trials_needed", contrast.trials_needed
    if contrast.judge is not None:
        yield from _difference("judge_mean", contrast.judge.suite, contrast.judge.population)
        yield "judge_mean/p_value", contrast.judge.p


def _difference(name: str, suite: Estimate, population: Estimate) -> Iterator[tuple[str, float | None]]:
    yield from _estimate(f"{name}/diff", suite, f"{name}/ci")
    yield f"{name}/pop_ci_low", population.low
    yield f"{name}/pop_ci_high", population.high


def _estimate(name: str, estimate: Estimate, interval: str) -> Iterator[tuple[str, float | None]]:
    yield name, estimate.value
    yield f"{interval}_low", estimate.low
    yield f"{interval}_high", estimate.high


def _defined(named: Iterable[tuple[str, float | None]]) -> list[Score]:
    """Drop what is no number; a number behind a name is the step on its curve."""
    found = []
    for name, value in named:
        if value is not None and math.isfinite(value):
            plain, _, step = name.partition(" ")
            found.append(Score(plain, round(float(value), _DIGITS), int(step or 0)))
    return found


def counts(arm: Arm) -> dict[str, Any]:
    """Tabulate what any statistic can be computed from again."""
    rows = [[*key, cell.n, cell.passes, cell.not_measured, cell.copies] for key, cell in arm.cells.items()]
    return {"columns": list(_COLUMNS), "data": rows}
