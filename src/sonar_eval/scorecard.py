"""The numbers of one scenario, under the names that tracker, report and gate share."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from .metrics import AssertionMetric, ScenarioReport, first_held
from .stats import pass_at_k, pass_hat_k, quantile, wilson
from .usage import Role, Spend, total_cost

HEADLINES = tuple(
    "pass_rate pass_rate_ci_low pass_rate_ci_high pass_hat_k pass_at_k judge_mean safety_violations trials_asked "
    "trials_judged trials_errored trials_ungraded trials_cut_off trials_not_exercised turns_mean tokens_mean "
    "latency_p50_s latency_p95_s cost_usd".split()
)
_DIGITS = 4
_NOT_IN_A_NAME = re.compile(r"[^\w.\- ]")


@dataclass(frozen=True)
class Score:
    """One number; `step` is k' on a curve."""

    name: str
    value: float
    step: int = 0


def scorecard(report: ScenarioReport) -> list[Score]:
    """List the numbers of a report, headlines first; what is undefined or not finite is left out."""
    found = [
        *_headlines(report),
        *_assertions(report),
        *_criteria(report),
        *_tokens(report),
        *_costs(report),
        *_faults(report),
    ]
    return [
        Score(score.name, round(score.value, _DIGITS), score.step)
        for score in found
        if score.value is not None and math.isfinite(score.value)
    ]


def clean_name(name: str) -> str:
    """Make a metric name of any text: stable, and distinct from that of any other text."""
    cleaned = _NOT_IN_A_NAME.sub("_", name).strip(". ")[:80]
    if cleaned and cleaned == name:
        return name
    return f"{cleaned or 'x'}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:6]}"


def original_names(report: ScenarioReport) -> dict[str, str]:
    """Return the assertions whose names had to be changed for a metric: the clean name, and what it was."""
    named = _distinct(report)
    return {clean: metric.name for clean, metric in named if clean != metric.name}


def _distinct(report: ScenarioReport) -> list[tuple[str, AssertionMetric]]:
    """Name the assertions of a report; the second of one name is told from the first."""
    seen: dict[str, int] = {}
    found = []
    for metric in report.assertions:
        times = seen[metric.name] = seen.get(metric.name, 0) + 1
        found.append((clean_name(metric.name if times == 1 else f"{metric.name} ({times})"), metric))
    return found


def _headlines(report: ScenarioReport) -> Iterable[Score]:
    rate, n = report.pass_rate, report.decided
    if report.stopped_early:
        # The rate of trials that end with the first failure is too low; whether the first k' held is not.
        yield from _curve("pass_hat_k", first_held(_verdicts(report), report.k))
    elif rate is not None and not report.unchecked:
        interval = wilson(rate, n)
        yield Score("pass_rate", rate)
        yield Score("pass_rate_ci_low", interval.low)
        yield Score("pass_rate_ci_high", interval.high)
        yield from _curve("pass_hat_k", [pass_hat_k(n, report.passing, k) for k in range(1, n + 1)])
        yield from _curve("pass_at_k", [pass_at_k(n, report.passing, k) for k in range(1, n + 1)])
    if report.mean_grader_score is not None:
        yield Score("judge_mean", report.mean_grader_score)
    yield Score("safety_violations", report.safety_violations)
    yield Score("trials_asked", report.k)
    yield Score("trials_judged", report.judged)
    yield Score("trials_errored", report.errored)
    yield Score("trials_ungraded", report.ungraded)
    yield Score("trials_cut_off", report.cut_off)
    yield Score("trials_not_exercised", report.not_exercised)
    yield from _means(report)


def _means(report: ScenarioReport) -> Iterable[Score]:
    turns = [trial.log.turns_taken for trial in report.counted]
    tokens = [
        sum(trial.transcript.tokens())
        for trial in report.counted
        if trial.transcript is not None and trial.transcript.tokens_known
    ]
    latencies = [latency for trial in report.counted for latency in trial.latencies_s]
    for name, values in (("turns_mean", turns), ("tokens_mean", tokens)):
        if values:
            yield Score(name, sum(values) / len(values))
    for name, q in (("latency_p50_s", 0.5), ("latency_p95_s", 0.95)):
        value = quantile(latencies, q)
        if value is not None:
            yield Score(name, value)


def _verdicts(report: ScenarioReport) -> list[bool | None]:
    """List whether everything held, trial by trial; None where that is not known."""
    required = report.grader_required
    return [
        trial.passes(grader_required=required)
        if trial.counted and not trial.undecided(grader_required=required)
        else None
        for trial in report.trials
    ]


def _held(report: ScenarioReport, name: str) -> list[bool | None]:
    """List whether an assertion held, trial by trial; None where that is not known."""
    found = [[result for result in trial.assertions if result.name == name] for trial in report.trials]
    return [results[0].passed if results and not results[0].unknown else None for results in found]


def _assertions(report: ScenarioReport) -> Iterable[Score]:
    for name, metric in _distinct(report):
        if not metric.k:
            continue
        if report.stopped_early:
            yield from _curve(f"assertion_pass_hat_k/{name}", first_held(_held(report, metric.name), report.k))
            continue
        yield Score(f"assertion_pass_rate/{name}", metric.pass_rate)
        yield from _curve(f"assertion_pass_hat_k/{name}", metric.pass_hat_curve)
        yield from _curve(f"assertion_pass_at_k/{name}", metric.pass_at_curve)


def _criteria(report: ScenarioReport) -> Iterable[Score]:
    for metric in report.criteria:
        if metric.pass_rate is not None:
            yield Score(f"judge/{clean_name(metric.name)}", metric.pass_rate)


def _tokens(report: ScenarioReport) -> Iterable[Score]:
    counted = [trial.transcript.known_tokens() for trial in report.counted if trial.transcript is not None]
    for name, side in (("tokens/bot_input", 0), ("tokens/bot_output", 1)):
        known = [count for tokens in counted if (count := tokens[side]) is not None]
        # A sum that leaves trials out would look like a bot that took less.
        if known and len(known) == len(counted):
            yield Score(name, sum(known))
    for role in (Role.SIMULATOR, Role.JUDGE):
        spend = report.spent.get(role.value, Spend())
        if spend.input_tokens is not None and spend.output_tokens is not None:
            yield Score(f"tokens/{role}_input", spend.input_tokens)
            yield Score(f"tokens/{role}_output", spend.output_tokens)


def _costs(report: ScenarioReport) -> Iterable[Score]:
    """Split the cost by role; where nothing cost anything, as with offline stand-ins, there is nothing to show."""
    total = total_cost(report.spent)
    if total:
        yield Score("cost_usd", total)
    for role, spend in report.spent.items():
        if spend.cost_usd:
            yield Score(f"cost_usd_by/{role}", spend.cost_usd)


def _faults(report: ScenarioReport) -> Iterable[Score]:
    fired: dict[str, int] = {}
    for trial in report.counted:
        for rule in trial.faults:
            name = clean_name(f"{rule.rule} {rule.target} {rule.action}")
            fired[name] = fired.get(name, 0) + rule.fired
    for name, times in fired.items():
        yield Score(f"fault_fired/{name}", times)


def _curve(name: str, values: Iterable[float | None]) -> Iterable[Score]:
    for k, value in enumerate(values, 1):
        if value is not None:
            yield Score(name, value, k)
