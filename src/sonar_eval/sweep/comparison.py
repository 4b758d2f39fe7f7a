"""The arms of a sweep against one another, from what its folder holds.

An arm is a value of `model` or `prompt`. Where both vary there are two comparisons, one of the models and one of the
prompts, each with the other as part of what pairs the cells: a pair has the same scenario, fault and prompt when models
are compared. The report of the first lies in `comparison.*`, that of a second in `comparison-prompt.*`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..comparison.arms import COMPARED, arms_by
from ..comparison.found import current_rows, planned_cell
from ..comparison.noise import checked_variance
from ..comparison.scores import arm_scores, contrast_scores, counts
from ..errors import ConfigError
from ..report import (
    Arm,
    Comparison,
    Contrast,
    compare_arms,
    left_out_in_short,
    planning_line,
    render_html,
    render_markdown,
    verdict_sentence,
)
from ..stats import LOOK_LEVEL, LOOKS
from ..tracking import ArmRecord, ComparisonRecord, Content, Tracker
from .grid import PlannedCell
from .resume import read_sweep
from .schema import CompareConf
from .trials import AUTO

REPORT = "comparison"
ALPHA = 0.05
AXES = (*COMPARED, "auto")
_MOST_WARNINGS = 5


@dataclass(frozen=True)
class Compared:
    """One comparison within a sweep."""

    axis: str
    arms: list[Arm]
    """The baseline first."""
    found: Comparison
    name: str
    """Of the files of its report, without their endings."""

    def lines(self) -> Iterator[str]:
        """Say the verdict on each candidate, and what to bear in mind."""
        yield f"Compared by {self.axis}, baseline {self.found.baseline}:"
        yield from (f"  {_verdict(contrast)}" for contrast in self.found.contrasts)
        if self.found.unpaired:
            yield f"  Left out: {left_out_in_short(self.found.unpaired)}; the report names them."
        warnings = self.found.warnings
        yield from (f"  Warning: {line}" for line in warnings[:_MOST_WARNINGS])
        if len(warnings) > _MOST_WARNINGS:
            yield f"  {len(warnings) - _MOST_WARNINGS} more warnings stand in the report."


def _verdict(contrast: Contrast) -> str:
    sentence = verdict_sentence(contrast)
    return sentence if contrast.candidate in sentence else f"{contrast.candidate}: {sentence}"


def axes_of(choices: Sequence[Mapping[str, str]], by: str) -> list[str]:
    """List the axes along which there is something to compare."""
    asked = COMPARED if by == "auto" else (by,)
    return [axis for axis in asked if len({row.get(axis) for row in choices}) > 1]


def check_comparison(conf: CompareConf, cells: Sequence[PlannedCell]) -> list[str]:
    """Check the choices about comparing, and say in at most one line what the sweep can reveal.

    Raises `ConfigError` for an unknown axis or baseline, and for trials that are to be added until arms differ where
    there are no arms.
    """
    if conf.by not in AXES:
        raise ConfigError(f"compare.by: expected {', '.join(AXES)}; got {conf.by!r}")
    auto = any(cell.conf.task.k == AUTO for cell in cells)
    axes = axes_of([cell.choices for cell in cells], conf.by) if conf.enabled else []
    if auto and not axes:
        raise ConfigError(
            "task.k=auto adds trials until arms differ; name two models or prompts to compare, or a number of trials"
        )
    if not conf.enabled:
        return []
    asked = axes or (COMPARED if conf.by == "auto" else (conf.by,))
    known = [value for axis in asked for value in dict.fromkeys(cell.choices[axis] for cell in cells)]
    if conf.baseline is not None and conf.baseline not in known:
        raise ConfigError(f"compare.baseline: expected one of {', '.join(known)}; got {conf.baseline!r}")
    if axes:
        return [_reveals(cells, axes[0])]
    return [f"compare.baseline={conf.baseline}: there is one arm only, nothing is compared"] if conf.baseline else []


def _reveals(cells: Sequence[PlannedCell], axis: str) -> str:
    first = [cell for cell in cells if cell.choices[axis] == cells[0].choices[axis]]
    unit = "scenario" if len({cell.choices["scenario"] for cell in first}) == len(first) else "cell"
    sizes = [cell.trials for cell in first]
    line = planning_line(len(first), round(sum(sizes) / len(sizes)), unit=unit)
    grown = [cell.trials for cell in first if cell.adds_trials]
    later = [look for look in LOOKS if look > max(grown)] if grown else []
    return f"{line}; where that does not decide, {' and then '.join(map(str, later))} trials" if later else line


def compare_sweep(folder: Path) -> list[Compared]:
    """Compare the arms of the sweep in `folder` as it was configured; empty when there is one arm only.

    Raises `ConfigError` for records that cannot be read.
    """
    sweep = read_sweep(folder)
    # A sweep of an earlier version tells nothing of comparing.
    conf = {"enabled": True, "by": "auto", "baseline": None, **sweep.get("compare", {})}
    rows = current_rows(sweep)
    axes = axes_of([row["choices"] for row in rows], conf["by"]) if conf["enabled"] else []
    if not axes:
        return []
    cells = [planned_cell(folder / row["key"], row) for row in rows]
    noise = checked_variance([str(folder)])
    alpha = LOOK_LEVEL if sweep.get("auto") else ALPHA
    compared: list[Compared] = []
    for axis in axes:
        arms = sorted(arms_by(cells, axis), key=lambda arm: arm.name != conf["baseline"])
        found = compare_arms(arms[0], arms[1:], alpha=alpha, judge_variance=noise)
        compared.append(Compared(axis, arms, found, f"{REPORT}-{axis}" if compared else REPORT))
    return compared


def write_reports(folder: Path, compared: Sequence[Compared]) -> list[Path]:
    """Write each comparison as HTML, Markdown and JSON; returns the HTML files."""
    for one in compared:
        for name, text in _files(one, one.arms).items():
            (folder / name).write_text(text, encoding="utf-8")
    return [folder / f"{one.name}.html" for one in compared]


def _files(one: Compared, arms: Sequence[Arm]) -> dict[str, str]:
    return {
        f"{one.name}.html": render_html(one.found, arms),
        f"{one.name}.md": render_markdown(one.found),
        f"{one.name}.json": json.dumps(one.found.to_dict(), ensure_ascii=False, indent=1),
    }


def publish_comparisons(folder: Path, compared: Sequence[Compared], tracker: Tracker, sweep_id: str) -> None:
    """Hand the comparisons to the tracker, their texts by the rule of the sweep; safe to repeat."""
    if not compared:
        return
    sweep = read_sweep(folder)
    told = sweep.get("tracking") or {}
    content = Content.of(told.get("content", "full"), told.get("redact", ()))
    rows = current_rows(sweep)
    files = {name: text for one in compared for name, text in _publishable(one, content).items()}
    record = ComparisonRecord(
        [_group(one, rows, content) for one in compared],
        files,
        _note(compared, content),
        str(sweep.get("key") or folder.name),
    )
    tracker.compare(record, sweep_id)


def _publishable(one: Compared, content: Content) -> dict[str, str]:
    if content.everything:
        return _files(one, one.arms)
    # Conversations are treated before they are laid out: a pattern must not meet markup.
    arms = [
        Arm(arm.name, {key: cell.treated(content.value) for key, cell in arm.cells.items()})
        for arm in (one.arms if content.mode != "none" else ())
    ]
    files = _files(one, arms)
    found = content.value(one.found.to_dict())
    return {
        **files,
        f"{one.name}.md": content.text(files[f"{one.name}.md"], name=True),
        f"{one.name}.json": json.dumps(found, ensure_ascii=False, indent=1),
    }


def _note(compared: Sequence[Compared], content: Content) -> str:
    said = [
        "\n".join(
            [f"By {one.axis}, against {one.found.baseline}:\n", *(f"- {_verdict(c)}" for c in one.found.contrasts)]
        )
        for one in compared
    ]
    reports = ", ".join(f"`{one.name}.html`" for one in compared)
    return content.text("\n\n".join([*said, f"The whole report: {reports} under *Artifacts*."]), name=True)


def _group(one: Compared, rows: Sequence[Mapping[str, Any]], content: Content) -> list[ArmRecord]:
    contrasts: list[Contrast | None] = [None, *one.found.contrasts]
    return [_arm_record(one, arm, contrast, rows, content) for arm, contrast in zip(one.arms, contrasts, strict=True)]


def _arm_record(
    one: Compared, arm: Arm, contrast: Contrast | None, rows: Sequence[Mapping[str, Any]], content: Content
) -> ArmRecord:
    mine = [row for row in rows if row["choices"].get(one.axis) == arm.name]
    choices = {name: {row["choices"].get(name) for row in mine} for name in mine[0]["choices"]}
    params = {name: str(next(iter(values))) for name, values in choices.items() if len(values) == 1}
    return ArmRecord(
        content.text(f"{one.axis} {arm.name}", name=True),
        content.text(f"{one.axis}={arm.name}", name=True),
        {name: content.text(value, name=True) for name, value in params.items()},
        arm_scores(one.found, arm),
        content.value(counts(arm)) if content.mode != "none" else counts(arm),
        contrast_scores(contrast, _trials(one, contrast)) if contrast else [],
        {"scenario_set_hash": _scenario_set(mine), **(_tags(one, contrast) if contrast else {})},
        content.text(_verdict(contrast), name=True) if contrast else "The baseline.",
    )


def _tags(one: Compared, contrast: Contrast) -> dict[str, str]:
    return {"verdict": contrast.verdict, "alpha": f"{one.found.alpha:g}", "errors_policy": "left out"}


def _trials(one: Compared, contrast: Contrast) -> int:
    """Count the trials of both arms in the cells that both measured."""
    a, b = (next(arm for arm in one.arms if arm.name == name) for name in (contrast.baseline, contrast.candidate))
    both = [key for key in a.cells if key in b.cells and a.cells[key].n and b.cells[key].n]
    return sum(arm.cells[key].n for arm in (a, b) for key in both)


def _scenario_set(rows: Sequence[Mapping[str, Any]]) -> str:
    """Hash what an arm was asked: its scenarios as they were configured, and the faults."""
    asked = sorted(
        {(str(row.get("parts", {}).get("scenario")), str(row.get("parts", {}).get("fault"))) for row in rows}
    )
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
