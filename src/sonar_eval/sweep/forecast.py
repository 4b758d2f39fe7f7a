"""What a sweep will take, by what earlier ones took."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..store import RESULT_FILE
from .grid import PlannedCell
from .key import AXES

# Enough to be right about, and read within a moment.
_MOST_RESULTS = 400
# What a cell takes beyond its trials, with its publishing.
_PER_CELL_S = 1.0


@dataclass(frozen=True)
class Measured:
    """What the trials of one earlier cell took."""

    choices: dict[str, str]
    trials: int
    mean_s: float
    mean_usd: float | None


def forecast(cells: Sequence[PlannedCell], to_run: Sequence[PlannedCell], folder: Path, at_once: int) -> str:
    """Say in one line how many trials there are, how long they take and what they cost, as far as known."""
    asked = sum(cell.trials for cell in cells)
    counts = {cell.trials for cell in cells}
    each = f" x {counts.pop()} trials" if len(counts) == 1 else ""
    head = f"{len(cells)} cell{'s' * (len(cells) != 1)}{each} = {asked} trials"
    if len(to_run) != len(cells):
        head += f", {len(to_run)} cell{'s' * (len(to_run) != 1)} to go"
    if not to_run:
        return f"{head}; nothing to run"
    known = list(_earlier(folder / "sweeps"))
    found = [_like(cell, known) for cell in to_run]
    return f"{head}; {_told(to_run, found, at_once)}"


def _told(cells: Sequence[PlannedCell], found: Sequence[list[Measured]], at_once: int) -> str:
    if not all(found):
        return "time and cost unknown: no earlier sweep in ./sweeps has trials of its kind"
    seconds, dollars = 0.0, 0.0
    unpriced = False
    for cell, rows in zip(cells, found, strict=True):
        weight = sum(row.trials for row in rows)
        rounds = math.ceil(cell.trials / max(cell.conf.task.concurrency, 1))
        seconds += _PER_CELL_S + rounds * sum(row.mean_s * row.trials for row in rows) / weight
        priced = [row for row in rows if row.mean_usd is not None]
        unpriced = unpriced or not priced
        if priced:
            mean = sum((row.mean_usd or 0.0) * row.trials for row in priced) / sum(row.trials for row in priced)
            dollars += cell.trials * mean
    cost = "cost unknown" if unpriced else f"about ${dollars:.2f}"
    basis = sum({id(row): row.trials for rows in found for row in rows}.values())
    return f"at most about {_duration(seconds / at_once)}, {cost} (by {basis} earlier trials)"


def _earlier(sweeps: Path) -> Iterable[Measured]:
    paths = sorted(sweeps.glob(f"*/*/{RESULT_FILE}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in paths[:_MOST_RESULTS]:
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            measured: dict[str, Any] = result["measured"]
            if measured["trials"]:
                yield Measured(result["choices"], measured["trials"], measured["mean_s"], measured["mean_usd"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


def _like(cell: PlannedCell, known: Sequence[Measured]) -> list[Measured]:
    """Pick the measurements that have most in common with the cell; those of another model tell nothing."""
    best: list[Measured] = []
    most = 0
    for row in known:
        if any(row.choices.get(group) != cell.choices.get(group) for group in ("model", "user", "grader")):
            continue
        common = 1 + sum(row.choices.get(axis) == cell.choices.get(axis) for axis in AXES)
        if common > most:
            best, most = [], common
        if common == most:
            best.append(row)
    return best


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
