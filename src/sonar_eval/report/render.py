"""Results as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..stats import wilson

_HEADER = ("model", "prompt", "scenario", "fault", "judged", "pass rate [95% CI]", "pass^k", "judge", "safety", "")


@dataclass(frozen=True)
class ResultRow:
    """One cell: what it was made of, and its scenario record (None when it failed before it had one)."""

    choices: Mapping[str, str]
    report: Mapping[str, Any] | None
    error: str | None = None


def result_table(rows: Sequence[ResultRow]) -> str:
    """Lay the cells out side by side; rates stand with their interval."""
    lines = [_HEADER, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADER))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    ]
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:]])


def _cells(row: ResultRow) -> tuple[str, ...]:
    made_of = tuple(row.choices.get(name, "-") for name in _HEADER[:4])
    report = row.report
    if report is None:
        return (*made_of, "-", "-", "-", "-", "-", "FAILED")
    judged, n, passing = report["judged"], report["decided"], report["passing"]
    held = "-" if not n else ("1" if passing == n == report["asked"] else "0")
    mean = report["mean_grader_score"]
    return (
        *made_of,
        f"{judged}/{report['asked']}",
        _rate(passing, n),
        held,
        "-" if mean is None else f"{mean:.2f}",
        "ok" if not report["safety_violations"] else f"{report['safety_violations']} failed",
        _remark(row),
    )


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
    return ", ".join(f"{report[key]} {word}" for key, word in counted if report.get(key))
