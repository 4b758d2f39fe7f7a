"""What a report is to be read with: doubts, faults that never fired, users that fell out of their role."""

from __future__ import annotations

from collections.abc import Sequence

from .assertions import WARNING
from .errors import InjectedFault
from .interceptor import RuleReport
from .results import TrialResult


def caveats(trials: Sequence[TrialResult]) -> list[str]:
    """List what k trials, in their order, do not tell by their rates."""
    counted = [trial for trial in trials if trial.counted]
    return [*_doubt_warnings(counted), *_fault_warnings(counted), *_role_warnings(list(trials))]


def _role_warnings(trials: list[TrialResult]) -> list[str]:
    """Say that the conversations may not be what they should: their other side was not a user."""
    broken = [trial for trial in trials if trial.log.role_breaks]
    if not broken:
        return []
    first = broken[0].log.role_breaks[0]
    return [
        f"the simulated user spoke as the chatbot in {len(broken)} of {len(trials)} trials, "
        f"e.g. trial {broken[0].index + 1}, turn {first.turn}: {first.reason}"
    ]


def _doubt_warnings(trials: list[TrialResult]) -> list[str]:
    """Say which capabilities look held on evidence with a gap in it."""
    doubts: dict[str, list[str]] = {}
    for trial in trials:
        for result in trial.assertions:
            if result.passed and result.detail.startswith(WARNING):
                doubts.setdefault(result.name, []).append(result.detail.removeprefix(WARNING))
    return [
        f"{name} held as far as it can be seen in {len(details)} of {len(trials)} trials: {details[0]}"
        for name, details in doubts.items()
    ]


def unmatched_rules(trials: list[TrialResult]) -> list[list[RuleReport]]:
    """List what became, trial by trial, of each fault rule that never fired."""
    found = []
    for position in range(len(trials[0].faults) if trials else 0):
        reports = [trial.faults[position] for trial in trials if len(trial.faults) > position]
        if not any(report.fired for report in reports):
            found.append(reports)
    return found


def _fault_warnings(trials: list[TrialResult]) -> list[str]:
    """Say of each fault rule that never fired what was called instead."""
    warnings = []
    for reports in unmatched_rules(trials):
        rule = reports[0]
        seen = max(report.calls_seen for report in reports)
        called = sorted({call.name for trial in trials if trial.transcript for call in trial.transcript.tool_calls})
        wanted = f", index {rule.when_call_index} wanted" if rule.when_call_index is not None else ""
        wanted += f", {rule.condition} wanted" if rule.condition else ""
        warnings.append(
            f"fault on {rule.target!r} never matched in any of {len(trials)} trials: "
            f"{seen} calls seen{wanted}; tools called: {', '.join(called) or 'none'}{_unmarked(trials)}"
        )
    return warnings


def _unmarked(trials: list[TrialResult]) -> str:
    calls = [call for trial in trials if trial.transcript for call in trial.transcript.tool_calls]
    if not any((call.error_type or "").endswith(InjectedFault.__name__) and not call.fault for call in calls):
        return ""
    return "; an injected fault stands in the trace all the same: let a FaultGate apply faults, it marks the spans"
