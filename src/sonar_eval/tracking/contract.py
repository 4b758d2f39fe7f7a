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


class Tracker(Protocol):
    """Keep the results of sweeps where people can look at them."""

    def start_sweep(self, name: str, command: str, *, key: str = "", reopen: bool = True) -> str:
        """Open a sweep and return its id; raises `ConfigError` when results cannot be kept.

        A sweep that was opened under the same `key` before is taken again, and counts as running unless
        `reopen` is false.
        """
        ...

    def publish(self, cell: CellRecord, sweep_id: str) -> str:
        """Keep one cell and return its id; one that is there unchanged is left alone, a changed one replaced."""
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

    def publish(self, cell: CellRecord, sweep_id: str) -> str:
        """Keep nothing."""
        return ""

    def end_sweep(self, sweep_id: str, status: str, *, correct: bool = False) -> None:
        """Close nothing."""

    def how_to_look(self) -> str:
        """Say that there is nothing to look at."""
        return "Nothing was tracked (tracking=none); the records are in the sweep's folder."
