"""Checks made of checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..conversation import ConversationLog
from ..errors import ConfigError
from ..transcript import Transcript
from .contract import Check, Finding, ReasonedCheck, find, label_of, require_check
from .logic import conjunction, disjunction, negation


def all_of(*checks: Check, of: Sequence[Check] = ()) -> Check:
    """Hold when every check holds; known not to hold as soon as one is known not to."""
    return _combined("all_of", [*checks, *of], conjunction)


def any_of(*checks: Check, of: Sequence[Check] = ()) -> Check:
    """Hold when at least one check holds, whatever is unknown of the others."""
    return _combined("any_of", [*checks, *of], disjunction)


def negate(of: Check) -> Check:
    """Hold when the check is known not to hold: what it cannot tell stays unknown.

    `negate(tool_was_called(…))` rests on the absence of a call just as `tool_not_called(…)` does.
    """
    _require("negate", [of])
    return ReasonedCheck(
        f"negate({label_of(of)})",
        lambda transcript, log: negation(find(of, transcript, log), f"{label_of(of)} holds, and is not to"),
    )


def _combined(name: str, checks: list[Check], combine: Callable[[list[Finding]], Finding]) -> Check:
    _require(name, checks)

    def reason(transcript: Transcript, log: ConversationLog) -> Finding:
        return combine([_told(check, find(check, transcript, log)) for check in checks])

    return ReasonedCheck(f"{name}({', '.join(map(label_of, checks))})", reason)


def _told(check: Check, finding: Finding) -> Finding:
    """Give a reason to a finding that has none, so that one knows which of several did not hold."""
    if finding.held is False and not finding.why:
        return Finding(False, finding.doubt, f"{label_of(check)} does not hold")
    return finding


def _require(name: str, checks: Sequence[Check]) -> None:
    if not checks:
        raise ConfigError(f"{name} needs one check or more")
    for check in checks:
        require_check(name, check)
