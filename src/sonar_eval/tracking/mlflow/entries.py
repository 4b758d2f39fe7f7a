"""What a cell is written as: the params, metrics, tags and tables of a run."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...scorecard import HEADLINES, Score
from ..contract import CellRecord

_PARAM_LIMIT = 500
_TAG_LIMIT = 5000
_NOT_IN_A_KEY = re.compile(r"[^/\w.\- :]")
CONFIG_FILE = "config.json"
NAMES_FILE = "metric_names.json"
TABLE_FILE = "trials.json"
# The tags by which runs are found again.
KIND, CELL, CONTENT, DIGEST, PARENT = (
    "sonar.kind",
    "sonar.cell",
    "sonar.content",
    "sonar.digest",
    "mlflow.parentRunId",
)


def params(cell: CellRecord) -> dict[str, str]:
    """Return the configuration flattened, the choices above it."""
    return {**_flat(cell.config), **{key(name): _shortened(value) for name, value in cell.choices.items()}}


def finite(scores: Iterable[Score]) -> list[Score]:
    """Return the scores that are numbers, under names MLflow takes; names stay distinct."""
    found, owners = [], dict[str, str]()
    for score in scores:
        if not math.isfinite(score.value):
            continue
        name = key(score.name)
        if owners.setdefault(name, score.name) != score.name:
            name = f"{name[:240]}-{_digest(score.name, 6)}"
        found.append(Score(name, score.value, score.step))
    return found


def undefined(scores: Iterable[Score]) -> list[str]:
    """Name the headlines that have no value, and the scores that are no finite number."""
    scores = list(scores)
    there = {score.name for score in scores if math.isfinite(score.value)}
    odd = [score.name for score in scores if not math.isfinite(score.value)]
    return list(dict.fromkeys([*(name for name in HEADLINES if name not in there), *odd]))


def tags(cell: CellRecord) -> dict[str, str]:
    """Return what a run is found by, and what was left out of it."""
    passed = bool(cell.report and cell.report["passed"] and not cell.report["unchecked"])
    found = {
        KIND: "cell",
        CELL: cell.key,
        "sonar.sweep": cell.sweep,
        "sonar.passed": str(passed).lower(),
        "mlflow.runType": "genai_evaluate",
        "mlflow.note.content": note(cell),
    }
    missing = undefined(cell.scores)
    if missing:
        found["sonar.not_measured"] = ", ".join(missing)[:_TAG_LIMIT]
    if cell.error:
        found["sonar.error"] = cell.error[:_TAG_LIMIT]
    if cell.names:
        found["sonar.metric_names"] = json.dumps(dict(cell.names), ensure_ascii=False)[:_TAG_LIMIT]
    return {name: value for name, value in found.items() if value}


def key(name: str) -> str:
    """Write a name as MLflow takes it."""
    cleaned = re.sub(r"/{2,}", "/", _NOT_IN_A_KEY.sub("_", name)).strip("/")
    return cleaned if 0 < len(cleaned) <= 250 and cleaned.strip(".") else f"{cleaned[:240]}-{_digest(name, 6)}"


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Flatten a configuration to dotted names; a long value becomes its start and a hash."""
    if isinstance(value, Mapping):
        return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{prefix}{key}.").items()}
    if value is None or value == []:
        return {}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return {key(prefix.rstrip(".")): _shortened(text)}


def _shortened(text: str) -> str:
    if len(text) <= _PARAM_LIMIT:
        return text
    whole = f"({len(text)} characters, sha256 {_digest(text, 12)}; whole in {CONFIG_FILE})"
    return f"{text[: _PARAM_LIMIT // 2]}… {whole}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


def dataset(cell: CellRecord) -> dict[str, str]:
    """Describe the scenario as a dataset: two cells with one digest were asked the same."""
    scenario = cell.config.get("scenario") or {}
    written = json.dumps(scenario, sort_keys=True, ensure_ascii=False, default=str)
    source = {"scenario": scenario.get("name"), "file": f"{CONFIG_FILE} of the run"}
    return {
        "name": str(cell.choices.get("scenario") or scenario.get("name") or "scenario")[:500],
        "digest": _digest(written, 12),
        "source": json.dumps(source, ensure_ascii=False),
    }


def table(cell: CellRecord) -> dict[str, Any]:
    """Write the trials as a table: MLflow shows it, and compares those of several runs."""
    names = list(dict.fromkeys(row["name"] for record in cell.records for row in record["assertions"]))
    columns = ["trial", "outcome", "passed", *names, "judge", "turns", "seconds", "why"]
    return {"columns": columns, "data": [_row(record, names) for record in cell.records]}


def _row(record: Mapping[str, Any], names: list[str]) -> list[Any]:
    held = {row["name"]: ("unknown" if row["unknown"] else row["passed"]) for row in record["assertions"]}
    score = record["grader"]["score"] if record["grader"] else None
    seconds = record["duration_s"] and round(record["duration_s"], 3)
    return [
        record["index"] + 1,
        record["outcome"],
        record["passed"],
        *(held.get(name) for name in names),
        score,
        record["turns"],
        seconds,
        _why(record),
    ]


def _why(record: Mapping[str, Any]) -> str:
    if record["failure"]:
        return f"{record['failure']['owner']}: {record['failure']['message']}"
    return "; ".join(f"{row['name']}: {row['detail']}" for row in record["assertions"] if not row["passed"])


def note(cell: CellRecord) -> str:
    """Write the run's description: what passed, what did not and why."""
    if cell.report is None:
        return f"**This cell failed.** {cell.error}"
    return "\n".join(_note_lines(cell, cell.report))


def _note_lines(cell: CellRecord, report: Mapping[str, Any]) -> Iterator[str]:
    if cell.error:
        yield f"**This cell failed.** {cell.error}\n"
    yield "Passed." if report["passed"] else "Not passed:"
    yield from (f"- {reason}" for reason in report["reasons"])
    yield "\n| assertion | severity | held | of |\n|---|---|---|---|"
    for row in report["assertions"]:
        yield f"| {row['name']} | {row['severity']} | {row['passes']} | {row['evaluated']} |"
    yield from (f"\nWarning: {warning}" for warning in report["warnings"])
    yield "\nThe conversations are under *Traces*, and to read under Artifacts, in `transcripts/`."
