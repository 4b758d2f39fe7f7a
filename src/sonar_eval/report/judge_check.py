"""How far a judge can be trusted: plain values, every one of which can be written as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .comparison import Estimate

_UNKNOWN = Estimate(None)

ENOUGH_LABELS = 50
"""Below so many labelled trials, rates of agreement with people say next to nothing."""


@dataclass(frozen=True)
class Judged:
    """One judgement of one conversation; `score` is None when the judge gave none."""

    conversation_id: str
    score: float | None
    passed: bool
    criteria: Mapping[str, str] = field(default_factory=dict)
    """passed, failed or cannot_tell, by criterion."""
    error: str | None = None
    """Why there is no score."""


@dataclass(frozen=True)
class Trial:
    """A trial with the verdict it was recorded with, and where it belongs."""

    arm: str
    cell: str
    verdict: Judged
    cost_usd: float | None = None
    """What the conversation cost."""
    judge_cost_usd: float | None = None


@dataclass(frozen=True)
class Label:
    """What a person said of a conversation: of the whole, or of one criterion."""

    conversation_id: str
    passed: bool
    criterion: str | None = None


@dataclass(frozen=True)
class Agreement:
    """How often two verdicts on the same conversation are alike."""

    n: int
    alike: int
    share: float | None
    kappa: Estimate = _UNKNOWN
    """Beyond chance, with the bootstrap interval over conversations."""


@dataclass(frozen=True)
class SelfCheck:
    """The judge against itself, on the same conversations."""

    trials: int
    unread: int
    """Answers asked for that gave no verdict."""
    agreement: Agreement
    with_record: Agreement
    """The first of the fresh verdicts against that of the record: lower than `agreement` when the judge has changed."""
    judge_variance: float | None = None
    """Of a trial's score when only the judge is asked again."""
    judge_sd: float | None = None
    trial_variance: float | None = None
    icc: float | None = None
    optimum_repeats: int | None = None
    cost_ratio: float | None = None
    """What a conversation costs over what its judgement costs; None where that is not known and 1 was taken."""
    criteria: dict[str, Agreement] = field(default_factory=dict)
    unread_reasons: dict[str, int] = field(default_factory=dict)
    """How often for which reason there was no verdict, the most frequent first."""


@dataclass(frozen=True)
class SecondJudge:
    """The judge against another one."""

    name: str
    agreement: Agreement
    passed_by_first: int
    passed_by_second: int
    p: float | None
    """That the two are equally strict, by McNemar's exact test."""
    stricter: str | None
    """first, second, or None when that cannot be told."""
    mean_difference: float | None
    unread: int = 0
    criteria: dict[str, Agreement] = field(default_factory=dict)
    unread_reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Share:
    """k of n, with Wilson's interval."""

    k: int
    n: int
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class PeopleCheck:
    """The judge against people; `about` is the criterion, or None for the whole."""

    about: str | None
    labelled: int
    both_pass: int
    only_judge_passes: int
    only_people_pass: int
    both_fail: int
    enough: bool
    agreement: Agreement
    sensitivity: Share
    """Of what people pass, the part that the judge passes."""
    specificity: Share
    """Of what people fail, the part that the judge fails."""
    untold: int = 0
    """Labelled, but the judge could not tell."""


@dataclass(frozen=True)
class ArmRate:
    """The pass rate that the judge gives an arm, and what it is once the judge's errors are taken out."""

    arm: str
    judged: int
    rate: float
    labelled: int
    sensitivity: Share
    specificity: Share
    own_errors: bool = False
    """Whether the correction uses the judge's errors in this arm; else those in all arms together."""
    corrected: float | None = None
    """By Rogan and Gladen; not clipped."""
    corrected_se: float | None = None
    ppi: float | None = None
    ppi_se: float | None = None
    ppi_plus_plus: float | None = None
    ppi_plus_plus_se: float | None = None
    weight: float | None = None
    """How much PPI++ makes of the judge: 0 nothing, 1 as much as PPI."""


@dataclass(frozen=True)
class JudgeCheck:
    """What is known of a judge."""

    judge: str
    judged: int
    sampled: int
    itself: SelfCheck
    second: SecondJudge | None = None
    people: PeopleCheck | None = None
    people_by_criterion: list[PeopleCheck] = field(default_factory=list)
    arms: list[ArmRate] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Write it as JSON values."""
        return asdict(self)
