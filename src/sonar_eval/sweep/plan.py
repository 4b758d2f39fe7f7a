"""A sweep before it begins: its cells, what of them is there already, and what is said about it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..errors import ConfigError
from .comparison import check_comparison
from .forecast import forecast
from .grid import PlannedCell, plan_cells
from .lint import lint_user_confs
from .lock import FolderLock
from .preflight import check_neighbours, refuse_written_keys
from .resume import Standing, choices_again, passed_over, read_sweep, standings, unfinished
from .searchpath import SWEEPER
from .trials import trials_reached


@dataclass
class Plan:
    """What is to be run, and where."""

    cells: list[PlannedCell]
    """In the order in which they run."""
    to_run: list[PlannedCell]
    launched_in: Path
    folder: Path
    before: Mapping[str, Any] = field(default_factory=dict)
    """What an earlier run of this sweep wrote about itself; empty for a sweep of its own."""
    lock: FolderLock | None = None
    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dry: bool = False
    """Whether nothing is to be run."""
    nameless: bool = False
    """Whether the folder is named by the time of day alone, so that another free one will do."""


def plan_sweep(config: DictConfig) -> Plan:
    """Check every choice of the sweep and every neighbour, and say what is to come; nothing is begun yet.

    Raises `ConfigError` or Hydra's own errors.
    """
    if config.hydra.sweeper.get("_target_") != SWEEPER:
        raise ConfigError("hydra/sweeper cannot be replaced: resume, dry_run and the order of the cells rest on ours")
    warnings = lint_user_confs()
    cells = plan_cells(config)
    refuse_written_keys(config, [cell.conf for cell in cells])
    launched_in = Path(config.hydra.runtime.cwd)
    folder = (launched_in / str(config.hydra.sweep.dir)).resolve()
    plan = Plan(cells, cells, launched_in, folder, warnings=warnings, dry=config.dry_run)
    plan.nameless = not config.resume and _names_the_time(config)
    standing = _go_on(plan, launched_in / config.resume) if config.resume else []
    reveals = check_comparison(cells[0].conf.compare, plan.cells)
    plan.lines = [*_told(plan, standing), forecast(plan.cells, plan.to_run, launched_in, _at_once(config)), *reveals]
    if not plan.dry:
        plan.warnings += check_neighbours(config, [cell.conf for cell in plan.to_run])
    return plan


def _names_the_time(config: DictConfig) -> bool:
    written = OmegaConf.to_container(config.hydra.sweep, resolve=False)
    assert isinstance(written, dict)
    return "${now:" in str(written["dir"])


def _go_on(plan: Plan, folder: Path) -> list[Standing]:
    """Take up the sweep in `folder`: from here on it is ours alone."""
    read_sweep(folder)
    plan.folder = folder.resolve()
    plan.lock = locked(plan.folder)
    plan.before = read_sweep(plan.folder)
    plan.cells = _as_far_as_before(plan.cells, plan.before.get("plan", ()))
    standing = standings(plan.folder, plan.cells, plan.before.get("plan", ()))
    plan.to_run = [row.cell for row in standing if not row.finished]
    return standing


def _as_far_as_before(cells: Sequence[PlannedCell], earlier: Sequence[Mapping[str, Any]]) -> list[PlannedCell]:
    """Ask for as many trials as an earlier run had come to, where looks decide on the number."""
    keys = {cell.key for cell in cells}
    reached = trials_reached(max((int(row["trials"]) for row in earlier if row["key"] in keys), default=0))
    return [replace(cell, trials=reached) if cell.adds_trials else cell for cell in cells]


def locked(folder: Path) -> FolderLock:
    """Lock a sweep's folder; raises `ConfigError` naming who sweeps there."""
    lock = FolderLock(folder)
    holder = lock.take()
    if holder is not None:
        raise ConfigError(f"{folder} is being swept by {holder}; wait until it is done, or end it")
    return lock


def _told(plan: Plan, standing: Sequence[Standing]) -> list[str]:
    if standing:
        done = sum(row.finished for row in standing)
        head = f"Going on with {plan.folder.name}: {done} of {len(standing)} cells are finished"
        return [head, *_listed({row.cell: row.words for row in standing}), *_left_out(plan)]
    return _listed({cell: f"{cell.trials} trials" for cell in plan.cells}) if plan.dry else []


def _left_out(plan: Plan) -> list[str]:
    """Say which cells that were planned here before, and are not finished, are not asked for now."""
    rows = unfinished(plan.folder, passed_over(plan.cells, plan.before.get("plan", ())))
    if not rows:
        return []
    names = ", ".join(f"{row['name']} ({counted} of {row['trials']} trials)" for row, counted in rows)
    again = shlex.join([f"resume={os.path.relpath(plan.folder)}", *choices_again([row for row, _ in rows], plan.cells)])
    return [f"Left out by these choices, and unfinished: {names}; to go on with them: sonar-eval sweep {again}"]


def _listed(words: Mapping[PlannedCell, str]) -> list[str]:
    width = max(len(cell.name) for cell in words)
    return [f"  {cell.name.ljust(width)}  {told}" for cell, told in words.items()]


def _at_once(config: DictConfig) -> int:
    """Return how many cells the launcher runs side by side, as far as the configuration tells."""
    told = config.hydra.launcher.get("n_jobs") or config.hydra.launcher.get("array_parallelism") or 1
    return max(int(told), 1)
