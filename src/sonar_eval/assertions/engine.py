"""The engine that never raises: findings become results, by the rule of their severity."""

from __future__ import annotations

from ..conversation import ConversationLog
from ..transcript import Transcript
from .contract import WARNING, Assertion, AssertionResult, Finding, Severity, find


class AssertionEngine:
    """Evaluate assertions; a check that raises becomes a result, not an exception."""

    def __init__(self, assertions: list[Assertion]) -> None:
        self._assertions = list(assertions)

    def evaluate(self, transcript: Transcript, log: ConversationLog) -> list[AssertionResult]:
        """Return one result per assertion, in their order."""
        return [_result(assertion, find(assertion.check, transcript, log)) for assertion in self._assertions]


def _result(assertion: Assertion, finding: Finding) -> AssertionResult:
    name, severity = assertion.name, assertion.severity
    if finding.proven is not None:
        return AssertionResult(name, severity, finding.proven, finding.why)
    if finding.held and severity is Severity.CAPABILITY:
        return AssertionResult(name, severity, True, f"{WARNING}{finding.doubt}")
    so_far = f"; as far as it goes: {finding.why}" if finding.why else ""
    return AssertionResult(name, severity, False, f"unknown: {finding.doubt}{so_far}", unknown=True)
