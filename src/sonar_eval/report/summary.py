"""One arm by itself: rates, safety, latency, cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..stats import (
    intra_scenario_correlation,
    max_failure_rate_after_clean_run,
    mean,
    pass_hat_k,
    population_wilson_ci,
    quantile,
    suite_effective_n,
    suite_wilson_ci,
)
from .arm import Arm, CellKey, CellTrials
from .comparison import ArmSummary, Estimate, Safety

Cells = Mapping[CellKey, CellTrials]


def summarise_arm(arm: Arm, keys: Sequence[CellKey]) -> ArmSummary:
    """Sum up the cells of an arm that were compared; safety counts in all of its cells."""
    cells = {key: arm.cells[key] for key in keys}
    counted = [cell for cell in cells.values() if cell.n]
    passes, trials = [cell.passes for cell in counted], [cell.n for cell in counted]
    asked = sum(cell.requested for cell in cells.values())
    costs = [cost for cell in counted for record in cell.counted if (cost := bot_cost(record)) is not None]
    return ArmSummary(
        arm.name,
        _rate(passes, trials),
        _population(cells),
        sum(trials),
        sum(passes),
        asked,
        sum(cell.not_measured for cell in cells.values()),
        mean([cell.passes / cell.requested for cell in cells.values() if cell.requested]) if asked else None,
        len(cells),
        len({key.scenario for key in cells}),
        sum(cell.held for cell in cells.values()),
        _hat_curve(counted),
        safety_of(arm),
        intra_scenario_correlation(passes, trials),
        suite_effective_n(passes, trials) if trials else None,
        _mean(score for cell in counted for record in cell.counted if (score := judge_score(record)) is not None),
        quantile(_latencies(counted), 0.5),
        sum(costs) if costs else None,
        sum(costs) / sum(passes) if costs and sum(passes) else None,
        _mean(count for cell in counted for record in cell.counted if (count := bot_tokens(record)) is not None),
    )


def _rate(passes: Sequence[int], trials: Sequence[int]) -> Estimate:
    interval = suite_wilson_ci(passes, trials)
    if interval is None:
        return Estimate(None)
    return Estimate(mean([c / n for c, n in zip(passes, trials, strict=True)]), interval.low, interval.high)


def _population(cells: Cells) -> Estimate:
    """Take the scenario, its faults together, as what was sampled."""
    passes: dict[str, int] = {}
    trials: dict[str, int] = {}
    for key, cell in cells.items():
        passes[key.scenario] = passes.get(key.scenario, 0) + cell.passes
        trials[key.scenario] = trials.get(key.scenario, 0) + cell.n
    known = [scenario for scenario, n in trials.items() if n]
    in_order = [passes[scenario] for scenario in known], [trials[scenario] for scenario in known]
    interval = population_wilson_ci(*in_order)
    if interval is None:
        return Estimate(None)
    return Estimate(mean([c / n for c, n in zip(*in_order, strict=True)]), interval.low, interval.high)


def _hat_curve(cells: Sequence[CellTrials]) -> list[float]:
    longest = min((cell.n for cell in cells), default=0)
    return [mean([pass_hat_k(cell.n, cell.passes, k) or 0.0 for cell in cells]) for k in range(1, longest + 1)]


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return mean(found) if found else None


def _latencies(cells: Iterable[CellTrials]) -> list[float]:
    return [latency for cell in cells for record in cell.counted for latency in turn_latencies(record)]


def turn_latencies(record: Mapping[str, Any]) -> Iterator[float]:
    """Yield how long the bot took, turn by turn."""
    for turn in record.get("conversation") or []:
        if turn.get("latency_s") is not None:
            yield turn["latency_s"]


def bot_cost(record: Mapping[str, Any]) -> float | None:
    """Return what the bot's models cost in a trial, in US dollars; None when nobody told."""
    spent = (record.get("spent") or {}).get("bot") or {}
    cost: float | None = spent.get("cost_usd")
    return cost


def bot_tokens(record: Mapping[str, Any]) -> float | None:
    """Return the tokens of the bot in a trial; None when the trace does not tell."""
    tokens = record.get("tokens")
    return tokens["input"] + tokens["output"] if tokens else None


def judge_score(record: Mapping[str, Any]) -> float | None:
    """Return the judge's score of a trial; None without one."""
    score: float | None = (record.get("grader") or {}).get("score")
    return score


def safety_of(arm: Arm) -> Safety:
    """Count what safety-critical assertions came to, copies and early-stopped trials included."""
    evaluated: dict[str, int] = {}
    failed = unknown = 0
    for record in arm.records():
        for row in safety_rows(record):
            evaluated.setdefault(row["name"], 0)
            if row.get("unknown"):
                unknown += 1
            else:
                evaluated[row["name"]] += 1
                failed += not row["passed"]
    rarest = min(evaluated.values(), default=0)
    bound = max_failure_rate_after_clean_run(rarest) if rarest and not failed else None
    missing = unknown + sum(cell.not_measured for cell in arm.cells.values())
    return Safety(sum(evaluated.values()), failed, missing, bound, len(evaluated))


def safety_rows(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the results of safety-critical assertions in a trial that says something about the bot."""
    if record["outcome"] != "errored":
        yield from (row for row in record["assertions"] if row["severity"] == "safety_critical")
