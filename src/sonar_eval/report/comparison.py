"""What a comparison found: plain values, every one of which can be written as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; None where it could not be computed."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Safety:
    """What safety-critical assertions came to in an arm, over all its trials."""

    evaluated: int
    failed: int
    not_measured: int
    rate_upper: float | None
    """95% upper bound of the failure rate of the assertion with the fewest trials, when none failed."""
    assertions: int


@dataclass(frozen=True)
class ArmSummary:
    """One row of the table, without what compares it."""

    name: str
    pass_rate: Estimate
    population: Estimate
    """The same rate, with the interval for scenarios like these."""
    trials: int
    passes: int
    asked: int
    not_measured: int
    pass_rate_errors_fail: float | None
    cells: int
    scenarios: int
    held: int
    """Cells in which every trial asked for passed."""
    pass_hat_k: list[float]
    safety: Safety
    rho: float | None
    n_eff: float | None
    judge_mean: float | None
    latency_s: float | None
    cost_usd: float | None
    cost_usd_per_pass: float | None
    tokens: float | None


@dataclass(frozen=True)
class Unpaired:
    """A cell that was left out, and why."""

    scenario: str
    fault: str
    also: str
    arm: str
    reason: str


@dataclass(frozen=True)
class Row:
    """One line of a drill-down: the difference in one assertion, scenario or fault."""

    kind: str
    name: str
    rate_a: float
    rate_b: float
    diff: float
    n_a: int
    n_b: int
    p: float
    q: float
    """Adjusted for the length of the list, by Benjamini and Hochberg."""
    worth_a_look: bool


@dataclass(frozen=True)
class FlippedTrial:
    """Two trials of one index with different outcomes, and where they part."""

    index: int
    passed_a: bool
    passed_b: bool
    conversation_a: str
    conversation_b: str
    turn: int | None
    tool_call: int | None


@dataclass(frozen=True)
class Flip:
    """A cell whose outcome changed."""

    scenario: str
    fault: str
    also: str
    passes_a: int
    n_a: int
    passes_b: int
    n_b: int
    trials: list[FlippedTrial]


@dataclass(frozen=True)
class Delta:
    """What a fault costs an arm: its rate under the fault minus that of the same scenarios without."""

    arm: str
    fault: str
    scenarios: int
    rate_without: float
    rate_with: float
    loss: Estimate
    """Positive when the fault does harm."""
    p: float


@dataclass(frozen=True)
class ScoreDifference:
    """How the judge's mean score moved."""

    mean_a: float
    mean_b: float
    suite: Estimate
    population: Estimate
    p: float
    cells: int
    judge_sd: float | None = None
    """By how much the judge's score of one conversation varies when it is asked again; None where nobody asked."""
    noise: float | None = None
    """What asking the judge again may change in this difference (95%)."""


@dataclass(frozen=True)
class Contrast:
    """One candidate against the baseline."""

    baseline: str
    candidate: str
    verdict: str
    """A word of `sonar_eval.stats.verdict`, or not_comparable."""
    reason: str | None = None
    """Why the arms cannot be compared."""
    depends_on_errors: int = 0
    """Trials that were not measured, when the verdict hangs on how they are counted."""
    verdict_errors_fail: str | None = None
    rate_a: float | None = None
    rate_b: float | None = None
    diff: float | None = None
    suite: Estimate = Estimate(None)
    suite_90: Estimate = Estimate(None)
    population: Estimate = Estimate(None)
    p: float | None = None
    p_mid: float | None = None
    p_worse: float | None = None
    p_holm: float | None = None
    cells: int = 0
    scenarios: int = 0
    trials_per_cell: int = 0
    mde: float | None = None
    """The difference that so many trials could have revealed."""
    margin: float = 0.05
    trials_needed: int | None = None
    """Trials per cell to reveal a difference as large as the margin."""
    scenarios_needed: int | None = None
    movers: list[str] = field(default_factory=list)
    """The scenarios that contribute most to a regression."""
    few_movers: bool = False
    judge: ScoreDifference | None = None
    latency: Estimate = Estimate(None)
    cost: Estimate = Estimate(None)
    tokens: Estimate = Estimate(None)
    drill_down: list[Row] = field(default_factory=list)
    flips: list[Flip] = field(default_factory=list)


@dataclass(frozen=True)
class ParetoPoint:
    """An arm among quality, cost and latency."""

    arm: str
    pass_rate: float | None
    cost_usd: float | None
    latency_s: float | None
    on_front: bool
    """Whether no other arm is at least as good in all and better in one."""


@dataclass(frozen=True)
class RankedArm:
    """An arm among all arms of a comparison, the baseline too."""

    arm: str
    rate: float
    """Over the scenarios that all arms measured."""
    rank: int | None
    """1 is best; None where the order is not sure."""
    rank_low: int
    rank_high: int
    """The best and the worst rank that the choice of scenarios leaves open (95%)."""
    p_best: float


@dataclass(frozen=True)
class Comparison:
    """A baseline and its candidates."""

    baseline: str
    arms: list[ArmSummary]
    """The baseline first."""
    contrasts: list[Contrast]
    unpaired: list[Unpaired]
    resilience: list[Delta]
    pareto: list[ParetoPoint]
    warnings: list[str]
    ranking: list[RankedArm] = field(default_factory=list)
    """Of three arms or more, the best first."""
    alpha: float = 0.05
    """At which a difference is declared."""

    def contrast(self, candidate: str) -> Contrast:
        """Return what was found of one candidate."""
        return next(contrast for contrast in self.contrasts if contrast.candidate == candidate)

    def to_dict(self) -> dict[str, Any]:
        """Write it as JSON values."""
        return asdict(self)
