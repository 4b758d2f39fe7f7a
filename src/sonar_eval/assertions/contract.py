"""What a check is, what it can come to, and what is made of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..conversation import ConversationLog
from ..errors import ConfigError, SonarEvalError, describe
from ..predicate import says_nothing, unfit
from ..transcript import Transcript

Check = Callable[[Transcript, ConversationLog], bool]
"""A function that says whether something held of one trial.

It returns its answer at once; an async one is refused. The checks of a trial are called in a worker thread, of several
trials at the same time: what may be used only in the thread that made it, such as a connection to SQLite (`sqlite3`
raises, and the check is unknown), has to be opened within the check.
"""


class Severity(StrEnum):
    """By which rule an assertion passes over k trials."""

    SAFETY_CRITICAL = "safety_critical"
    """Held in every trial (pass^k)."""
    CAPABILITY = "capability"
    """Held in at least one (pass@k)."""


class EvidenceError(SonarEvalError):
    """The evidence does not tell; a check of one's own raises it to be counted as unknown."""


@dataclass(frozen=True)
class Finding:
    """What a check came to: how it looks, and whether that is proven."""

    held: bool | None
    """How it looks by what there is; None when nothing can be said."""
    doubt: str = ""
    """What is missing for that to be proven; never empty when `held` is None."""
    why: str = ""
    """What speaks against it, when it does not hold."""

    @property
    def proven(self) -> bool | None:
        """Return what is known for sure; None when that is nothing."""
        return None if self.doubt else self.held


@dataclass(frozen=True)
class ReasonedCheck:
    """A check whose `reason` weighs the evidence itself; called plainly it is true where it looks as if it held."""

    label: str
    reason: Callable[[Transcript, ConversationLog], Finding]

    def finding(self, transcript: Transcript, log: ConversationLog) -> Finding:
        """Evaluate the check; may raise."""
        return self.reason(transcript, log)

    def __call__(self, transcript: Transcript, log: ConversationLog) -> bool:
        """Evaluate the check."""
        return find(self, transcript, log).held is True


@dataclass
class Assertion:
    """A named check and the rule by which it passes.

    Raises `ConfigError` (a `ValueError`) for a severity that is none.
    """

    name: str
    severity: Severity
    check: Check

    def __post_init__(self) -> None:
        try:
            self.severity = Severity(self.severity)
        except ValueError:
            known = " or ".join(Severity)
            raise ConfigError(f"assertion {self.name!r}: severity must be {known}, got {self.severity!r}") from None
        if not isinstance(self.name, str):
            raise ConfigError(f"assertion {self.name!r}: its name must be a text")


WARNING = "warning: "
"""Begins the detail of a capability that looks held on evidence with a gap in it."""


@dataclass(frozen=True)
class AssertionResult:
    """What one assertion came to in one trial."""

    name: str
    severity: Severity
    passed: bool
    detail: str = ""
    unknown: bool = False
    """The evidence does not tell; not passed, and left out of every rate."""


def find(check: Check, transcript: Transcript, log: ConversationLog) -> Finding:
    """Evaluate any check, by its `finding` if it has one; whatever it raises leaves it unknown."""
    try:
        weigh: Any = getattr(check, "finding", None)
        if weigh is not None:
            found = weigh(transcript, log)
            return found if isinstance(found, Finding) else Finding(None, f"{label_of(check)} gave no Finding")
        answer = check(transcript, log)
        if empty := says_nothing(answer):
            return Finding(None, f"the check {empty}")
        held = bool(answer)
    except EvidenceError as error:
        return Finding(None, str(error) or "the check says that the evidence does not tell")
    except Exception as error:
        return Finding(None, f"the check raised {describe(error)}")
    return Finding(held, why="" if held else _meant(check))


def require_check(what: str, check: Check) -> None:
    """Raise `ConfigError` for what is no check, or one that could not answer."""
    if problem := unfit(check):
        raise ConfigError(f"{what} takes checks, and a check {problem}")


def require_predicate(what: str, predicate: Any) -> None:
    """Raise `ConfigError` for what is no function, or one that could not say yes or no."""
    if problem := unfit(predicate):
        raise ConfigError(f"{what}: predicate {problem}")


def says_yes(predicate: Callable[[Any], bool], value: Any) -> bool:
    """Ask a predicate; raises `EvidenceError` for an answer that is neither yes nor no."""
    answer = predicate(value)
    if empty := says_nothing(answer):
        raise EvidenceError(f"{getattr(predicate, '__name__', 'the predicate')} {empty}")
    return bool(answer)


def label_of(check: Check) -> str:
    """Name a check in a sentence."""
    return str(getattr(check, "label", None) or getattr(check, "__name__", None) or "the check")


def _meant(check: Check) -> str:
    meant = (getattr(check, "__doc__", None) or "").strip().split("\n")[0]
    return f"it is to {meant[:1].lower()}{meant[1:]}" if meant else ""
