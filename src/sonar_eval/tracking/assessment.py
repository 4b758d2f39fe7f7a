"""What was found about a trial, one finding a line: its assertions, the judge's score, the judge's criteria."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Assessment:
    """One finding; without a value `error` says why there is none."""

    name: str
    value: bool | float | str | None
    rationale: str
    by_judge: bool = False
    error: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


def assess(record: Mapping[str, Any]) -> list[Assessment]:
    """List the findings of a trial record under distinct names; what is not known has no value."""
    distinct: dict[str, int] = {}
    found = []
    for finding in (_overall(record), *_assertions(record), *_judge(record)):
        times = distinct[finding.name] = distinct.get(finding.name, 0) + 1
        name = finding.name if times == 1 else f"{finding.name} ({times})"
        notes = {**finding.notes, **_later(record)}
        found.append(
            Assessment(name, finding.value, finding.rationale, finding.by_judge, finding.error, notes)
        )  # fmt: skip
    return found


def _overall(record: Mapping[str, Any]) -> Assessment:
    failure = record["failure"]
    reason = f"{failure['owner']}: {failure['message']}" if failure else ""
    if record["outcome"] == "errored":
        return Assessment("all_passed", None, reason, error=f"errored, not counted. {reason}")
    return Assessment("all_passed", bool(record["passed"]), reason or f"outcome: {record['outcome']}")


def _assertions(record: Mapping[str, Any]) -> Iterator[Assessment]:
    for row in record["assertions"]:
        notes = {"severity": str(row["severity"])}
        if row.get("unknown"):
            yield Assessment(row["name"], None, row["detail"], error=f"unknown: {row['detail']}", notes=notes)
        else:
            yield Assessment(row["name"], bool(row["passed"]), row["detail"], notes=notes)


def _judge(record: Mapping[str, Any]) -> Iterator[Assessment]:
    grader = record["grader"]
    if grader is None:
        if record["judge_asked"]:
            failure = record["grader_failure"] or {}
            why = str(failure.get("message") or record["outcome"])
            yield Assessment("judge", None, why, True, f"no verdict: {why}")
        return
    notes = {"passed": str(bool(grader["passed"])).lower()}
    missing = grader.get("error") or ("no score" if grader["score"] is None else None)
    yield Assessment("judge", grader["score"], str(grader["reasoning"]), True, missing, notes)
    yield from (_criterion(row) for row in grader.get("criteria") or ())


def _criterion(row: Mapping[str, Any]) -> Assessment:
    """Read one criterion; one the judge could not tell is neither true nor false."""
    said, reason = str(row["verdict"]), str(row["reason"])
    value = {"passed": True, "failed": False}.get(said)
    missing = None if value is not None else f"{said.replace('_', ' ')}: {reason}".removesuffix(": ")
    return Assessment(f"judge/{row['name']}", value, reason, True, missing)


def _later(record: Mapping[str, Any]) -> dict[str, str]:
    """Say of findings that they were made over a trace that had changed, or made anew after the trial."""
    found = {}
    if record.get("changed_after_grading"):
        found["changed_after_grading"] = "true"
    if record.get("judged_at"):
        found["judged_at"] = str(record["judged_at"])
    return found
