"""A sweep as its launching process sees it: opened, launched, closed, summed up."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from omegaconf import DictConfig, open_dict, read_write

from ..errors import ConfigError, describe, in_short
from ..report import ResultRow
from ..stats import Look
from ..store import RESULT_FILE, SWEEP_FILE
from ..tracking import Tracker
from .comparison import compare_sweep
from .grid import PlannedCell
from .job import make_tracker
from .lock import FolderLock
from .looks import look
from .plan import Plan, locked
from .publish import keep_plan, publish_kept, told_command, tracking_record
from .resume import STOP_FILE, passed_over, read_sweep, write_json

log = logging.getLogger(__name__)

INTERRUPTED = 130


@dataclass
class Session:
    """One sweep in progress."""

    folder: Path
    cells: list[PlannedCell]
    to_run: list[PlannedCell]
    tracker: Tracker
    sweep_id: str
    lock: FolderLock
    began: str = field(default_factory=lambda: str(time.time_ns()))
    """Tells the results of this run of the sweep from those of an earlier one."""
    closed: bool = False
    looked: Look | None = None
    """What the last look at the arms said; None where nobody looks before the end."""
    _returned: dict[str, dict[str, Any]] = field(default_factory=dict)
    _launcher_error: str | None = None

    def jobs(self) -> list[list[str]]:
        """List the overrides of each job; what is settled here, no worker need find out."""
        ours = [f"hydra.sweep.dir={_quoted(str(self.folder))}"]
        if self.sweep_id:
            ours.append(f"tracking.parent_run_id={self.sweep_id}")
        return [
            [*cell.overrides, *ours, *_number_of_trials(cell), f"hydra.sweep.subdir={_quoted(cell.key)}"]
            for cell in self.to_run
        ]

    def take(self, returned: Sequence[Any]) -> None:
        """Take what the jobs returned: it counts where a job could not write its result."""
        for cell, value in zip(self.to_run, returned, strict=False):
            if isinstance(value, dict):
                self._returned[cell.key] = value
            elif isinstance(value, BaseException):
                self._returned[cell.key] = {"error": describe(value)}

    def launcher_failed(self, error: Exception) -> None:
        """Take note of why the launcher gave up; cells without a result are told with it."""
        self._launcher_error = in_short(error)

    def goes_on(self) -> bool:
        """Look at the arms when their number of trials hangs on it, and plan the round that is needed, if any."""
        growing = [cell for cell in self.cells if cell.adds_trials]
        if not growing:
            return False
        if self._launcher_error or (self.folder / STOP_FILE).is_file():
            self.looked = Look(None, "no trials were added: not every cell was run")
            return False
        try:
            self.looked = look([one.found for one in compare_sweep(self.folder)], growing[0].trials)
            if self.looked.k is not None:
                self._begin_round(self.looked.k)
        except Exception as error:
            self.looked = Look(None, f"stopped: {in_short(error)}")
        return self.looked.k is not None

    def _begin_round(self, k: int) -> None:
        self.cells = [replace(cell, trials=k) if cell.adds_trials else cell for cell in self.cells]
        self.to_run = [cell for cell in self.cells if cell.adds_trials]
        self.began = str(time.time_ns())
        self._returned = {}
        known = read_sweep(self.folder)
        keys = {cell.key for cell in self.to_run}
        plan = [{**row, "trials": k} if row["key"] in keys else row for row in known["plan"]]
        write_json(self.folder / SWEEP_FILE, {**known, "began": self.began, "plan": plan})

    def close(self, status: str) -> None:
        """Close the sweep in the tracker, once; a tracker that is gone by now is told, and costs no result."""
        if self.closed:
            return
        self.closed = True
        try:
            self.tracker.end_sweep(self.sweep_id, status)
        except Exception as error:
            log.error("the sweep was not closed as %s: %s", status, in_short(error))
        self.lock.release()

    def keep_plan(self) -> None:
        """Leave with the tracker what is needed to go on with the sweep where its folder is not."""
        try:
            keep_plan(self.folder, self.tracker, self.sweep_id)
        except Exception as error:
            log.warning("%s was not published: %s", SWEEP_FILE, in_short(error))

    def catch_up(self) -> None:
        """Publish the cells that are finished already, where a kill came in between or the tracker is another."""
        running = {cell.key for cell in self.to_run}
        kept = [self.folder / cell.key for cell in self.cells if cell.key not in running]
        for told in publish_kept(kept, self.tracker, self.sweep_id) if self.sweep_id else ():
            log.error("%s was not published: %s", told.name, told.reason)

    def results(self) -> list[dict[str, Any]]:
        """List what the cells of this sweep came to, in the order of the table; a missing one has its reason."""
        return [self._result(cell) for cell in sorted(self.cells, key=lambda cell: cell.place)]

    def _result(self, cell: PlannedCell) -> dict[str, Any]:
        result = {"key": cell.key, "name": cell.name, "choices": cell.choices, "varies": cell.varies, "report": None}
        try:
            found = json.loads((self.folder / cell.key / RESULT_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        if found and (cell not in self.to_run or found.get("began") == self.began):
            return {**result, **found}
        return {**result, "error": self._why_missing(cell)}

    def _why_missing(self, cell: PlannedCell) -> str:
        told = self._returned.get(cell.key, {}).get("error")
        if told:
            return str(told)
        reason = f"; the launcher failed: {self._launcher_error}" if self._launcher_error else ""
        return f"left no result{reason}"


def open_session(config: DictConfig, plan: Plan) -> Session:
    """Open the sweep in the tracker and in its folder, before any trial.

    Raises `ConfigError` when either cannot be had.
    """
    _require_free(plan)
    tracker = make_tracker(plan.cells[0].conf.tracking, plan.launched_in)
    made = [folder for folder in (plan.folder, *plan.folder.parents) if not folder.exists()]
    try:
        if plan.nameless:
            plan.folder = _claimed(plan.folder)
            made = [plan.folder, *made[1:]]
        lock = plan.lock or locked(plan.folder)
        # Whoever had the lock until now may have left a sweep.
        _require_free(plan)
        key = str(plan.before.get("key") or f"{plan.folder.name}-{uuid4().hex[:8]}")
        session = Session(plan.folder, plan.cells, plan.to_run, tracker, "", lock)
        if not plan.before:
            # Before the tracker hears of it: a sweep that is killed meanwhile is found there again by its key.
            _write(session, plan, key)
        _open(session, plan, key, made)
    except OSError as error:
        raise ConfigError(f"hydra.sweep.dir: cannot write to {plan.folder}: {error.strerror}") from error
    with read_write(config), open_dict(config):
        # Launchers put their own files there.
        config.hydra.sweep.dir = str(plan.folder)
    return session


def _require_free(plan: Plan) -> None:
    """Refuse a folder that somebody named and that holds a sweep of its own."""
    if not plan.nameless and not plan.before and (plan.folder / SWEEP_FILE).exists():
        raise ConfigError(
            f"{plan.folder} holds a sweep already; name another folder with hydra.sweep.dir=…, "
            f"or go on with this one by resume={shlex.quote(str(plan.folder))}"
        )


def _claimed(folder: Path) -> Path:
    """Make the folder, or the first free one of that name and a number: another sweep may begin in the same second."""
    for place in itertools.count(1):
        free = folder if place == 1 else folder.with_name(f"{folder.name}-{place}")
        with contextlib.suppress(FileExistsError):
            free.mkdir(parents=True)
            return free
    raise AssertionError("there is no end to numbers")


def _open(session: Session, plan: Plan, key: str, made: list[Path]) -> None:
    """Open the sweep in the tracker; whatever goes wrong, nothing stays open there.

    One that does not begin leaves nothing behind, the folders that were `made` for it neither.
    """
    try:
        session.sweep_id = session.tracker.start_sweep(plan.folder.name, told_command(_command()), key=key)
    except BaseException:
        if not plan.before:
            _forget(session, made)
        raise
    try:
        _write(session, plan, key)
        session.keep_plan()
        session.catch_up()
    except BaseException as error:
        session.close("FAILED" if isinstance(error, Exception) else "KILLED")
        raise


def _forget(session: Session, made: list[Path]) -> None:
    session.lock.release(remove=True)
    with contextlib.suppress(OSError):
        (session.folder / SWEEP_FILE).unlink(missing_ok=True)
        for folder in made:
            folder.rmdir()


def _command() -> list[str]:
    return [line for line in sys.argv[1:] if not line.lstrip("+").startswith("resume=")]


def _write(session: Session, plan: Plan, key: str) -> None:
    # What else was planned here stays known: the same cells may be asked for again.
    others = passed_over(plan.cells, plan.before.get("plan", ()))
    (session.folder / STOP_FILE).unlink(missing_ok=True)
    written = {
        "cells": len(plan.cells),
        "varies": list(dict.fromkeys(key for cell in plan.cells for key in cell.varies)),
        "sweep_id": session.sweep_id,
        "key": key,
        "tracking": tracking_record(plan.cells[0].conf.tracking, plan.launched_in),
        "command": _command(),
        "compare": asdict(plan.cells[0].conf.compare),
        "auto": any(cell.adds_trials for cell in plan.cells),
        "began": session.began,
        "current": [cell.key for cell in plan.cells],
        "plan": [*(cell.written() for cell in plan.cells), *others],
    }
    write_json(session.folder / SWEEP_FILE, written)


def _number_of_trials(cell: PlannedCell) -> list[str]:
    return [f"task.k={cell.trials}"] if cell.adds_trials else []


def _quoted(value: str) -> str:
    escaped = re.sub(r"(['\\])", r"\\\1", value)
    return f"'{escaped}'"


def rows(results: list[dict[str, Any]]) -> list[ResultRow]:
    """Make table rows of results."""
    return [ResultRow(result["choices"], result["varies"], result["report"], result["error"]) for result in results]
