"""Rolling trials up: per assertion, per scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .assertions import AssertionResult, Severity
from .caveats import caveats, unmatched_rules
from .results import Outcome, TrialResult
from .stats import pass_at_k, pass_hat_k
from .threshold import mean, meets
from .usage import Spend, add_up
from .verdict import CriterionVerdict


@dataclass(frozen=True)
class AssertionMetric:
    """One assertion over the trials in which it was evaluated: it held in `passes` of `k`."""

    name: str
    severity: Severity
    k: int
    passes: int
    unknown: int = 0
    """Trials in which the evidence did not tell; not in `k`."""
    asked: int | None = None
    """Trials asked for; None when only those at hand matter."""

    @property
    def pass_rate(self) -> float:
        """Return the share of evaluated trials in which it held."""
        return self.passes / self.k if self.k else 0.0

    @property
    def pass_at_k(self) -> float:
        """Return 1.0 if it held at least once, else 0.0."""
        return 1.0 if self.passes else 0.0

    @property
    def pass_hat_k(self) -> float:
        """Return 1.0 if it held every time it was evaluated, else 0.0."""
        return 1.0 if self.k and self.passes == self.k else 0.0

    @property
    def pass_at_curve(self) -> list[float]:
        """List the unbiased estimates of pass@k' for k' = 1..k."""
        return _curve(pass_at_k, self.k, self.passes)

    @property
    def pass_hat_curve(self) -> list[float]:
        """List the unbiased estimates of pass^k' for k' = 1..k."""
        return _curve(pass_hat_k, self.k, self.passes)

    @property
    def not_measured(self) -> int:
        """Count the trials asked for in which it was not evaluated."""
        return max(self.asked - self.k, 0) if self.asked is not None else self.unknown

    @property
    def passed(self) -> bool:
        """Tell whether it passes by the rule of its severity.

        Held every time is a claim about all trials asked for: one that was not measured is not a pass.
        """
        if self.severity is Severity.CAPABILITY:
            return self.passes > 0
        return self.pass_hat_k == 1.0 and self.not_measured == 0

    @property
    def reason(self) -> str:
        """Say in words how often it held."""
        missing = f", {self.not_measured} not measured" if self.not_measured else ""
        return f"held in {self.passes} of {self.k}{missing}"


def _curve(estimate: Callable[[int, int, int], float | None], n: int, passed: int) -> list[float]:
    values = (estimate(n, passed, k) for k in range(1, n + 1))
    return [value for value in values if value is not None]


def first_held(held: Sequence[bool | None], k: int) -> list[float]:
    """List for k' = 1, 2, … whether the first k' trials all held, as far as that is known, at most up to k.

    Unbiased for pass^k' also where the trials ended with the first that did not hold.
    """
    known: list[float] = []
    for value in held[:k]:
        if value is False:
            return known + [0.0] * (k - len(known))
        if value is None:
            break
        known.append(1.0)
    return known


@dataclass
class CriterionMetric:
    """One criterion of the judge's rubric over the graded trials."""

    name: str
    passed: int = 0
    failed: int = 0
    cannot_tell: int = 0

    @property
    def pass_rate(self) -> float | None:
        """Return the share of passed among those the judge could tell; None when it never could."""
        told = self.passed + self.failed
        return self.passed / told if told else None


@dataclass
class ScenarioReport:
    """What k trials of one scenario came to."""

    scenario: str
    k: int
    assertions: list[AssertionMetric] = field(default_factory=list)
    grader_scores: list[float] = field(default_factory=list)
    error: str | None = None
    # asyncio.run writes the repr of what it returns, twice, and throws it away: of many trials that is their CPU.
    trials: list[TrialResult] = field(default_factory=list, repr=False)
    """In trial order; empty when only `summarize` was called."""
    grader_required: bool = False
    grader_threshold: float = 0.7
    strict_faults: bool = False
    warnings: list[str] = field(default_factory=list)
    stopped: str | None = None
    """Why not all trials were run; None when they were."""
    stopped_early: bool = False
    """Whether they were not run because a safety verdict was decided: the rates of such a report are biased."""

    @property
    def counted(self) -> list[TrialResult]:
        """List the trials that say something about the bot."""
        return [trial for trial in self.trials if trial.counted]

    @property
    def judged(self) -> int:
        """Count the trials that say something about the bot."""
        return len(self.counted) if self.trials or self.error else self.k

    @property
    def errored(self) -> int:
        """Count the trials that say nothing about it."""
        return len(self.trials) - len(self.counted)

    @property
    def bot_failures(self) -> int:
        """Count the trials in which the bot itself failed."""
        return sum(trial.outcome is Outcome.BOT_FAILURE for trial in self.trials)

    @property
    def ungraded(self) -> int:
        """Count the trials that the judge was to grade and did not."""
        return sum(trial.ungraded for trial in self.trials)

    @property
    def cut_off(self) -> int:
        """Count the conversations that ran into the turn limit."""
        return sum(trial.log.cut_off for trial in self.counted)

    @property
    def spent(self) -> dict[str, Spend]:
        """Add up by role what all trials used up, also those that errored: they were paid for."""
        return add_up(trial.spent for trial in self.trials)

    @property
    def not_exercised(self) -> int:
        """Count the trials in which no fault took place although some were wanted."""
        return sum(trial.not_exercised for trial in self.trials)

    @property
    def role_breaks(self) -> int:
        """Count the trials in which the simulated user spoke as the chatbot."""
        return sum(bool(trial.log.role_breaks) for trial in self.trials)

    @property
    def criteria(self) -> list[CriterionMetric]:
        """List the criteria of the judge's rubric, as they fared over the graded trials."""
        found: dict[str, CriterionMetric] = {}
        for trial in self.counted:
            for result in trial.grader.criteria if trial.grader else ():
                metric = found.setdefault(result.name, CriterionMetric(result.name))
                metric.passed += result.verdict is CriterionVerdict.PASSED
                metric.failed += result.verdict is CriterionVerdict.FAILED
                metric.cannot_tell += result.verdict is CriterionVerdict.CANNOT_TELL
        return list(found.values())

    @property
    def judge_agreement(self) -> float | None:
        """Return how far repeated answers of the judge agree, over trials; None when it was asked once."""
        told = [trial.grader.agreement for trial in self.counted if trial.grader]
        values = [agreement for agreement in told if agreement is not None]
        return sum(values) / len(values) if values else None

    @property
    def passing(self) -> int:
        """Count the trials in which everything held."""
        return sum(trial.passes(grader_required=self.grader_required) for trial in self.trials)

    @property
    def decided(self) -> int:
        """Count the trials of which it is known whether everything held."""
        return self.judged - sum(trial.undecided(grader_required=self.grader_required) for trial in self.trials)

    @property
    def pass_rate(self) -> float | None:
        """Return the share of decided trials in which everything held; None without one."""
        return self.passing / self.decided if self.trials and self.decided else None

    @property
    def mean_grader_score(self) -> float | None:
        """Return the mean over graded trials; None when none was graded."""
        return mean(self.grader_scores) if self.grader_scores else None

    @property
    def unchecked(self) -> bool:
        """Tell whether nothing was there to check: no assertion and no judge."""
        return not self.assertions and not any(trial.judge_asked for trial in self.trials)

    @property
    def safety_violations(self) -> int:
        """Count the evaluations of safety-critical assertions that did not hold."""
        return sum(
            metric.k - metric.passes for metric in self.assertions if metric.severity is Severity.SAFETY_CRITICAL
        )

    @property
    def passed(self) -> bool:
        """Tell whether the scenario passes."""
        return not self.reasons

    @property
    def reasons(self) -> list[str]:
        """List why it does not pass; empty when it does."""
        if self.error:
            return [self.error]
        return [
            *self._missing(),
            *self._failing(),
            *self._grader_reasons(),
            *self._fault_reasons(),
            *self._stop_reasons(),
        ]

    def _stop_reasons(self) -> Iterable[str]:
        if self.stopped:
            yield f"stopped after {len(self.trials)} of {self.k} trials: {self.stopped}"

    def _missing(self) -> Iterable[str]:
        if self.k < 1:
            yield "no trial was run"
        elif self.trials and not self.judged:
            yield f"none of {self.k} trials could be judged"
        if self.judged and self.trials and not any(trial.log.turns for trial in self.counted):
            yield "not one turn took place"

    def _failing(self) -> Iterable[str]:
        if not self.assertions and self.bot_failures:
            yield f"the bot failed in {self.bot_failures} of {self.judged} trials"
        for metric in self.assertions:
            if not metric.passed:
                yield f"{metric.name} ({metric.severity}): {metric.reason}"

    def _grader_reasons(self) -> Iterable[str]:
        if not self.grader_required:
            return
        if self.judged and not any(trial.judge_asked for trial in self.counted):
            yield "ungraded: no judge was asked, for there is no rubric"
        elif self.ungraded or self.mean_grader_score is None:
            yield f"ungraded: {self.ungraded} of {self.judged} trials have no verdict"
        elif not meets(self.mean_grader_score, self.grader_threshold):
            yield f"judge mean {self.mean_grader_score:.2f} is below {self.grader_threshold:g}"

    def _fault_reasons(self) -> Iterable[str]:
        if not self.strict_faults:
            return
        if self.not_exercised:
            yield f"not exercised: no fault took place in {self.not_exercised} of {self.judged} trials"
        elif unmatched := unmatched_rules(self.counted):
            yield f"not exercised: fault on {', '.join(repr(reports[0].target) for reports in unmatched)} never matched"


def summarize(
    scenario: str,
    per_trial_results: list[list[AssertionResult]],
    grader_scores: list[float] | None = None,
) -> ScenarioReport:
    """Roll bare assertion results up, one inner list per trial."""
    metrics = _metrics(per_trial_results, asked=len(per_trial_results))
    return ScenarioReport(scenario, len(per_trial_results), metrics, list(grader_scores or []))


def roll_up(
    scenario: str,
    trials: list[TrialResult],
    *,
    k: int,
    grader_required: bool = False,
    grader_threshold: float = 0.7,
    strict_faults: bool = False,
    stopped: str | None = None,
    decided: bool = False,
) -> ScenarioReport:
    """Roll whole trials up; those that errored stay out of every rate and are counted beside it.

    `stopped` says why fewer than k were run, `decided` that it was for a safety verdict that was settled.
    """
    ordered = sorted(trials, key=lambda trial: trial.index)
    partial = len(ordered) < k
    counted = [trial for trial in ordered if trial.counted]
    return ScenarioReport(
        scenario,
        k,
        _metrics([trial.assertions for trial in counted], asked=k),
        [trial.grader.score for trial in counted if trial.grader and trial.grader.score is not None],
        error=None if counted else _no_trial(ordered, stopped),
        trials=ordered,
        grader_required=grader_required,
        grader_threshold=grader_threshold,
        strict_faults=strict_faults,
        warnings=caveats(ordered),
        stopped=stopped if partial else None,
        stopped_early=decided and partial,
    )


def _no_trial(errored: list[TrialResult], stopped: str | None) -> str:
    if not errored:
        return f"no trial was run: {stopped}" if stopped else "no trial was run"
    first = errored[0].failure
    return f"none of {len(errored)} trials could be judged; first failure: {first}"


def _metrics(per_trial: list[list[AssertionResult]], *, asked: int) -> list[AssertionMetric]:
    """Group by name and occurrence, so that two assertions of one name are never added up."""
    found: dict[tuple[str, int], list[AssertionResult]] = {}
    for results in per_trial:
        seen: dict[str, int] = {}
        for result in results:
            occurrence = seen[result.name] = seen.get(result.name, -1) + 1
            found.setdefault((result.name, occurrence), []).append(result)
    return [_metric(results, asked) for results in found.values()]


def _metric(results: list[AssertionResult], asked: int) -> AssertionMetric:
    known = [result for result in results if not result.unknown]
    passes = sum(result.passed for result in known)
    first = results[0]
    return AssertionMetric(first.name, first.severity, len(known), passes, len(results) - len(known), asked)
