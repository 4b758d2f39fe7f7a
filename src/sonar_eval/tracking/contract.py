"""What a tracker takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..scorecard import Score

TRACES = ("trial", "turn", "none")
"""What becomes a trace: each trial, each turn, or nothing."""


@dataclass(frozen=True)
class CellRecord:
    """One finished cell of a sweep, as it is published."""

    name: str
    """Short, the distinguishing words first."""
    key: str
    choices: Mapping[str, str]
    """What the cell was made of: model, prompt, scenario, fault, …"""
    config: Mapping[str, Any]
    """The resolved configuration."""
    folder: Path
    """Records, transcripts and report of the cell."""
    scores: list[Score] = field(default_factory=list)
    report: Mapping[str, Any] | None = None
    error: str | None = None
    """Why there is no report, or why the cell counts as failed."""
    started_ms: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    """The record of every trial, in trial order."""
    sweep: str = ""
    """What names the sweep wherever it is published."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Metric names that had to be cleaned, and what they were."""
    axes: tuple[str, ...] = ("model", "prompt", "scenario", "fault")


@dataclass(frozen=True)
class ArmRecord:
    """One arm of a sweep, over all its cells."""

    name: str
    key: str
    """What its cells have in common, such as model=a; distinct within the sweep."""
    params: Mapping[str, str]
    scores: list[Score]
    counts: Mapping[str, Any]
    """What any statistic can be computed from again: a table of `columns` and `data`, a row for each cell."""
    compared: list[Score] = field(default_factory=list)
    """How it compares with the baseline; empty for the baseline itself."""
    tags: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class ComparisonRecord:
    """How the arms of a sweep compare, all texts as they may be published."""

    groups: list[list[ArmRecord]]
    """The arms of each comparison, the baseline first."""
    files: Mapping[str, str]
    """The report, by the name of the file."""
    note: str
    """The verdicts, as Markdown."""
    sweep: str = ""


class Tracker(Protocol):
    """Keep the results of sweeps where people can look at them."""

    def start_sweep(self, name: str, command: str, *, key: str = "", reopen: bool = True) -> str:
        """Open a sweep and return its id; raises `ConfigError` when results cannot be kept.

        A sweep that was opened under the same `key` before is taken again, and counts as running unless
        `reopen` is false.
        """
        ...

    def keep_file(self, sweep_id: str, path: Path) -> None:
        """Keep a file of the sweep itself, unless it holds text that must not be told."""
        ...

    def publish(self, cell: CellRecord, sweep_id: str) -> str:
        """Keep one cell and return its id; one that is there unchanged is left alone, a changed one replaced."""
        ...

    def compare(self, record: ComparisonRecord, sweep_id: str) -> None:
        """Keep how the arms of a sweep compare; safe to repeat, and what is there unchanged is left alone."""
        ...

    def end_sweep(self, sweep_id: str, status: str, *, correct: bool = False) -> None:
        """Close a sweep: FINISHED, FAILED or KILLED; closing it again changes nothing unless `correct`."""
        ...

    def how_to_look(self) -> str:
        """Say in one line how to look at the results."""
        ...


class NullTracker:
    """Keep nothing beyond the records on disk."""

    def start_sweep(self, name: str, command: str, *, key: str = "", reopen: bool = True) -> str:
        """Open nothing."""
        return ""

    def keep_file(self, sweep_id: str, path: Path) -> None:
        """Keep nothing."""

    def publish(self, cell: CellRecord, sweep_id: str) -> str:
        """Keep nothing."""
        return ""

    def compare(self, record: ComparisonRecord, sweep_id: str) -> None:
        """Keep nothing."""

    def end_sweep(self, sweep_id: str, status: str, *, correct: bool = False) -> None:
        """Close nothing."""

    def how_to_look(self) -> str:
        """Say that there is nothing to look at."""
        return "Nothing was tracked (tracking=none); the records are in the sweep's folder."
