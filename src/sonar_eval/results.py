"""What one trial produced, or why it did not."""

from __future__ import annotations

import pickle
import zlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .assertions import AssertionResult
from .conversation import ConversationLog
from .errors import BoundaryError, Owner, describe
from .interceptor import RuleReport
from .transcript import Transcript
from .usage import Spend, add_up
from .verdict import CriterionResult


class Outcome(StrEnum):
    """How a trial ended; each ends in exactly one of these."""

    JUDGED = "judged"
    """The conversation took place and its trace is whole."""
    BOT_FAILURE = "bot_failure"
    """The bot failed; counts as not held for every assertion."""
    ERRORED = "errored"
    """Somebody else failed; says nothing about the bot and is left out of every rate."""


@dataclass(frozen=True)
class GraderResult:
    """The judge's verdict; `score` lies in 0..1, and is None when what the judge said is no verdict."""

    score: float | None
    reasoning: str
    passed: bool
    error: str | None = None
    """Why there is no score; `reasoning` then holds the judge's own text."""
    criteria: tuple[CriterionResult, ...] = ()
    """The verdict on each criterion of the rubric; empty for a rubric that is a text."""
    repeats: int = 1
    """How often the judge was asked."""
    scores: tuple[float, ...] = ()
    """The scores of the answers, before calibration, when the judge was asked more than once."""
    agreement: float | None = None
    """How far the answers agree, from 0 to 1; None for a single one."""
    shortened: bool = False
    """Whether the judge saw less than the whole conversation, because of its length."""


@dataclass(frozen=True)
class TrialFailure:
    """Who failed, where, and with what words."""

    owner: Owner
    step: str
    error_type: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> TrialFailure:
        """Describe an error that crossed a border; any other is the harness's own."""
        if isinstance(error, BoundaryError):
            return cls(error.owner, error.step, type(error.origin).__name__, str(error))
        return cls(Owner.HARNESS, "", type(error).__name__, describe(error))

    def __str__(self) -> str:
        where = f" in {self.step}" if self.step else ""
        return f"{self.owner}{where}: {self.message}"


@dataclass
class TrialResult:
    """One trial, from setup to verdict."""

    conversation_id: str
    assertions: list[AssertionResult]
    grader: GraderResult | None
    log: ConversationLog
    index: int = 0
    outcome: Outcome = Outcome.JUDGED
    failure: TrialFailure | None = None
    grader_failure: TrialFailure | None = None
    """Why there is no verdict although a judge was asked."""
    transcript: Transcript | None = field(default_factory=lambda: None)
    faults: list[RuleReport] = field(default_factory=list)
    random_seed: int = 0
    duration_s: float | None = None
    started_at: str | None = None
    earlier_failures: list[TrialFailure] = field(default_factory=list)
    """Why earlier tries at this trial were given up; a trial tried again is one trial."""
    earlier_spent: dict[str, Spend] = field(default_factory=dict)
    """What the models of those earlier tries used up, by role."""
    warnings: list[str] = field(default_factory=list)
    judge_asked: bool = False
    digest: str | None = None
    """What told the graded trace from any other, where the ingest can say."""
    changed_after_grading: bool = False
    """Whether spans came later; the assertions are those of the later trace."""

    def pack(self) -> None:
        """Hold the transcript compressed from here on; each access then gives a fresh copy.

        What a thousand trials saw would otherwise fill the memory until the last of them is rolled up.
        """
        transcript = self.__dict__.pop("transcript", None)
        if transcript is not None:
            try:
                self._packed = _squeeze(pickle.dumps(transcript, pickle.HIGHEST_PROTOCOL))
            except Exception:
                # A source of one's own may put things into it that cannot be written.
                self.transcript = transcript
        elif "_packed" not in self.__dict__:
            self.transcript = None

    def __getattr__(self, name: str) -> Any:
        """Read a transcript that was packed; asked for what is not there otherwise."""
        packed = self.__dict__.get("_packed")
        if name != "transcript" or packed is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        transcript: Transcript = pickle.loads(zlib.decompress(packed))
        return transcript

    @property
    def counted(self) -> bool:
        """Tell whether the trial says something about the bot."""
        return self.outcome is not Outcome.ERRORED

    @property
    def spent(self) -> dict[str, Spend]:
        """Add up by role what the trial used up, with the tries that were given up: they were paid for, too."""
        return add_up([self.earlier_spent, self.log.spent])

    @property
    def ungraded(self) -> bool:
        """Tell whether a verdict was wanted and is missing."""
        return self.counted and self.judge_asked and self.grader is None

    @property
    def not_exercised(self) -> bool:
        """Tell whether faults were wanted and none took place."""
        return self.counted and bool(self.faults) and not any(rule.fired for rule in self.faults)

    def undecided(self, *, grader_required: bool = False) -> bool:
        """Tell whether nothing failed but evidence is missing: for an assertion, or the verdict where it gates."""
        if self.outcome is not Outcome.JUDGED:
            return False
        failed = any(not result.passed and not result.unknown for result in self.assertions)
        if grader_required and self.grader is not None:
            failed = failed or not self.grader.passed
        missing = any(result.unknown for result in self.assertions) or (grader_required and self.grader is None)
        return missing and not failed

    def passes(self, *, grader_required: bool = False) -> bool:
        """Tell whether every assertion held and, where it gates, the judge agreed."""
        if not self.counted or not all(result.passed for result in self.assertions):
            return False
        if self.outcome is Outcome.BOT_FAILURE:
            return False
        return not grader_required or (self.grader is not None and self.grader.passed)

    @property
    def latencies_s(self) -> list[float]:
        """List how long the bot took, turn by turn."""
        return [turn.latency_s for turn in self.log.turns if turn.latency_s is not None]


def _squeeze(data: bytes) -> bytes:
    # The usual window makes zlib clear 256 kB each time, which takes longer than a transcript.
    squeezing = zlib.compressobj(1, wbits=13, memLevel=6)
    return squeezing.compress(data) + squeezing.flush()
