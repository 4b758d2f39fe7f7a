"""Results as plain dictionaries, and back: the one schema that store, tracker, report and resume read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .assertions import AssertionResult, Severity
from .conversation import ConversationLog, EndReason, Form, FormField, FormSubmission, RoleBreak, Turn
from .errors import Owner
from .interceptor import Action, RuleReport
from .metrics import AssertionMetric, ScenarioReport
from .results import GraderResult, Outcome, TrialFailure, TrialResult
from .transcript import Transcript
from .usage import Spend, total_cost
from .verdict import CriterionResult, CriterionVerdict

SCHEMA_VERSION = 1


def trial_record(scenario: str, trial: TrialResult, *, grader_required: bool = False) -> dict[str, Any]:
    """Write one trial as JSON values."""
    prompt, completion = trial.transcript.tokens() if trial.transcript else (None, None)
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": scenario,
        "conversation_id": trial.conversation_id,
        "index": trial.index,
        "random_seed": trial.random_seed,
        "outcome": trial.outcome.value,
        "passed": trial.passes(grader_required=grader_required),
        "turns": trial.log.turns_taken,
        "terminated": trial.log.terminated,
        "ended_by": trial.log.ended_by,
        "failure": _write_failure(trial.failure),
        "assertions": [
            {
                "name": result.name,
                "severity": result.severity.value,
                "passed": result.passed,
                "detail": result.detail,
                "unknown": result.unknown,
            }
            for result in trial.assertions
        ],
        "judge_asked": trial.judge_asked,
        "grader": asdict(trial.grader) if trial.grader else None,
        "grader_failure": _write_failure(trial.grader_failure),
        "faults": [{**asdict(rule), "action": rule.action.value} for rule in trial.faults],
        "not_exercised": trial.not_exercised,
        "role_breaks": [asdict(broken) for broken in trial.log.role_breaks],
        "tokens": {"input": prompt, "output": completion}
        if trial.transcript and trial.transcript.tokens_known
        else None,
        "started_at": trial.started_at,
        "duration_s": trial.duration_s,
        "earlier_failures": [_write_failure(failure) for failure in trial.earlier_failures],
        "spent": _write_spent(trial.log.spent),
        "earlier_spent": _write_spent(trial.earlier_spent),
        "cost_usd": total_cost(trial.spent),
        "warnings": list(trial.warnings),
        "digest": trial.digest,
        "changed_after_grading": trial.changed_after_grading,
        "redacted": bool(trial.transcript and trial.transcript.redacted),
        "conversation": [_write_turn(turn) for turn in trial.log.turns],
        "final_state": trial.log.final_state,
        "transcript": _write_transcript(trial.transcript),
    }


def read_trial(record: dict[str, Any]) -> TrialResult:
    """Read what `trial_record` wrote.

    Raises `ValueError` on a record of a later schema: half understood is worse than not read.
    """
    version = record.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise ValueError(f"trial record of schema {version!r}; this version reads up to {SCHEMA_VERSION}")
    conversation_id = record["conversation_id"]
    log = ConversationLog(
        conversation_id,
        [_read_turn(turn) for turn in record["conversation"]],
        record["terminated"],
        EndReason(record["ended_by"]) if record["ended_by"] else None,
        role_breaks=[RoleBreak(**row) for row in record.get("role_breaks", ())],
        final_state=record.get("final_state"),
        spent=_read_spent(record.get("spent")),
    )
    return TrialResult(
        conversation_id,
        [
            AssertionResult(row["name"], Severity(row["severity"]), row["passed"], row["detail"], row["unknown"])
            for row in record["assertions"]
        ],
        _read_grader(record["grader"]),
        log,
        index=record["index"],
        outcome=Outcome(record["outcome"]),
        failure=_read_failure(record["failure"]),
        grader_failure=_read_failure(record["grader_failure"]),
        transcript=Transcript(conversation_id, **record["transcript"]) if record["transcript"] else None,
        faults=[RuleReport(**{**row, "action": Action(row["action"])}) for row in record["faults"]],
        random_seed=record["random_seed"],
        duration_s=record["duration_s"],
        started_at=record["started_at"],
        earlier_failures=[failure for row in record["earlier_failures"] if (failure := _read_failure(row)) is not None],
        earlier_spent=_read_spent(record.get("earlier_spent")),
        warnings=list(record["warnings"]),
        judge_asked=record["judge_asked"],
        digest=record.get("digest"),
        changed_after_grading=record.get("changed_after_grading", False),
    )


def scenario_record(report: ScenarioReport) -> dict[str, Any]:
    """Write a report as JSON values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": report.scenario,
        "k": report.k,
        "passed": report.passed,
        "unchecked": report.unchecked,
        "reasons": report.reasons,
        "error": report.error,
        "asked": report.k,
        "judged": report.judged,
        "decided": report.decided,
        "passing": report.passing,
        "bot_failures": report.bot_failures,
        "errored": report.errored,
        "ungraded": report.ungraded,
        "cut_off": report.cut_off,
        "not_exercised": report.not_exercised,
        "role_breaks": report.role_breaks,
        "safety_violations": report.safety_violations,
        "pass_rate": report.pass_rate,
        "spent": _write_spent(report.spent),
        "cost_usd": total_cost(report.spent),
        "mean_grader_score": report.mean_grader_score,
        "grader_scores": list(report.grader_scores),
        "judge_agreement": report.judge_agreement,
        "criteria": [{**asdict(metric), "pass_rate": metric.pass_rate} for metric in report.criteria],
        "assertions": [_write_metric(metric) for metric in report.assertions],
        "warnings": list(report.warnings),
        "stopped": report.stopped,
        "stopped_early": report.stopped_early,
    }


def _write_metric(metric: AssertionMetric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "severity": metric.severity.value,
        "evaluated": metric.k,
        "passes": metric.passes,
        "unknown": metric.unknown,
        "pass_rate": metric.pass_rate,
        "pass_at_k": metric.pass_at_k,
        "pass_hat_k": metric.pass_hat_k,
        "pass_at_curve": metric.pass_at_curve,
        "pass_hat_curve": metric.pass_hat_curve,
        "passed": metric.passed,
        "reason": metric.reason,
    }


def _write_spent(spent: Mapping[str, Spend]) -> dict[str, Any]:
    found = {str(role): dict(vars(spend)) for role, spend in spent.items()}
    for row in found.values():
        if not row["cost_at_least_usd"]:
            del row["cost_at_least_usd"]
    return found


def _read_spent(rows: dict[str, Any] | None) -> dict[str, Spend]:
    return {role: Spend(**row) for role, row in (rows or {}).items()}


def _write_failure(failure: TrialFailure | None) -> dict[str, Any] | None:
    return {**asdict(failure), "owner": failure.owner.value} if failure else None


def _read_failure(row: dict[str, Any] | None) -> TrialFailure | None:
    return TrialFailure(**{**row, "owner": Owner(row["owner"])}) if row else None


def _read_grader(row: dict[str, Any] | None) -> GraderResult | None:
    if not row:
        return None
    criteria = (
        CriterionResult(said["name"], CriterionVerdict(said["verdict"]), said["reason"])
        for said in row.get("criteria", ())
    )
    return GraderResult(**{**row, "criteria": tuple(criteria), "scores": tuple(row.get("scores", ()))})


def _write_transcript(transcript: Transcript | None) -> dict[str, Any] | None:
    if transcript is None:
        return None
    return {
        "runs": transcript.runs,
        "spans": transcript.spans,
        "content": transcript.content,
        "completeness": transcript.completeness,
    }


def _write_turn(turn: Turn) -> dict[str, Any]:
    # `asdict` copies all that it meets, which is most of what a record costs.
    submission = asdict(turn.submission) if turn.submission else None
    return {**vars(turn), "submission": submission, "forms": tuple(asdict(form) for form in turn.forms)}


def _read_turn(row: dict[str, Any]) -> Turn:
    submission = row["submission"]
    return Turn(
        row["user"],
        tuple(row["delivered"]),
        FormSubmission(submission["form"], submission["values"]) if submission else None,
        tuple(_read_form(form) for form in row["forms"]),
        row["latency_s"],
        tuple(row.get("media", ())),
    )


def _read_form(row: dict[str, Any]) -> Form:
    fields = (FormField(**{**field, "options": tuple(field["options"])}) for field in row["fields"])
    return Form(row["name"], row["title"], tuple(fields))
