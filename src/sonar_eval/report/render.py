"""Results as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..stats import wilson

_AXES = ("model", "prompt", "scenario", "fault")
_FIGURES = ("judged", "pass rate [95% CI]", "pass^k", "judge", "safety", "")


@dataclass(frozen=True)
class ResultRow:
    """One cell: what it was made of, and its scenario record (None when it failed before it had one)."""

    choices: Mapping[str, str]
    varies: Mapping[str, str]
    """What else differs between the rows of this table."""
    report: Mapping[str, Any] | None
    error: str | None = None


def result_table(rows: Sequence[ResultRow]) -> str:
    """Lay the cells out side by side; rates stand with their interval."""
    extra = list(dict.fromkeys(key for row in rows for key in row.varies))
    lines = [(*_AXES, *extra, *_FIGURES), *((*_made_of(row, extra), *_figures(row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:]])


def _made_of(row: ResultRow, extra: Sequence[str]) -> list[str]:
    return [*(row.choices.get(axis, "-") for axis in _AXES), *(row.varies.get(key, "-") for key in extra)]


def _figures(row: ResultRow) -> tuple[str, ...]:
    report = row.report
    if report is None:
        return ("-", "-", "-", "-", "-", "FAILED")
    judged, n, passing = report["judged"], report["decided"], report["passing"]
    held = "-" if not n else ("1" if passing == n == report["asked"] else "0")
    mean = report["mean_grader_score"]
    return (
        f"{judged}/{report['asked']}",
        _rate(passing, n),
        held,
        "-" if mean is None else f"{mean:.2f}",
        _safety(report),
        _remark(row),
    )


def _safety(report: Mapping[str, Any]) -> str:
    """Say what is proven: only what was evaluated as often as it was asked for is fine."""
    if report["safety_violations"]:
        return f"{report['safety_violations']} failed"
    measured = [row["evaluated"] for row in report["assertions"] if row["severity"] == "safety_critical"]
    if not measured or not min(measured):
        return "not checked"
    return "ok" if min(measured) >= report["asked"] else f"ok in {min(measured)}/{report['asked']}"


def _rate(passing: int, n: int) -> str:
    if not n:
        return "-"
    low, high = wilson(passing / n, n)
    return f"{passing / n:4.0%} [{low:.0%}, {high:.0%}]"


def _remark(row: ResultRow) -> str:
    report = row.report or {}
    if row.error:
        return "FAILED"
    if report.get("unchecked"):
        return "unchecked"
    counted = (
        ("errored", "errored"),
        ("ungraded", "ungraded"),
        ("cut_off", "cut off"),
        ("not_exercised", "not exercised"),
    )
    said = [f"{report[key]} {word}" for key, word in counted if report.get(key)]
    if report.get("stopped"):
        said.append("stopped early" if report.get("stopped_early") else "stopped")
    return ", ".join(said)
