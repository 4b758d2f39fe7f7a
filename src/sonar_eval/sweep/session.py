"""A sweep as its launching process sees it: opened, checked, closed, summed up."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from ..errors import ConfigError, describe
from ..report import ResultRow
from ..tracking import Tracker
from .build import check, read_config
from .collector import check_reachable
from .job import RESULT_FILE, SWEEP_FILE, make_tracker
from .schema import SweepConf

log = logging.getLogger(__name__)

INTERRUPTED = 130


@dataclass
class Session:
    """One sweep in progress."""

    folder: Path
    cells: int
    tracker: Tracker
    sweep_id: str
    closed: bool = False

    def close(self, status: str) -> None:
        """Close the sweep in the tracker, once; a tracker that is gone by now is told, and costs no result."""
        if self.closed:
            return
        self.closed = True
        try:
            self.tracker.end_sweep(self.sweep_id, status)
        except Exception as error:
            log.error("the sweep was not closed as %s: %s", status, " ".join(describe(error).split())[:300])

    def results(self) -> list[dict[str, Any]]:
        """Read what the cells left, in the order in which they ran."""
        found = [json.loads(path.read_text(encoding="utf-8")) for path in self.folder.glob(f"*/{RESULT_FILE}")]
        return sorted(found, key=lambda result: int(result["started_ms"]))


def open_session(config: DictConfig) -> Session:
    """Check every choice of the sweep, then open it; hands what jobs must know to them as overrides.

    Raises `ConfigError` or Hydra's own errors, before any trial.
    """
    jobs = _grid(config)
    _require_distinct(jobs)
    confs = [_compose(config, job) for job in _one_of_each(jobs)]
    for conf in confs:
        check(conf)
    asyncio.run(check_reachable(confs[0]))
    launched_in = Path(config.hydra.runtime.cwd)
    folder = (launched_in / str(config.hydra.sweep.dir)).resolve()
    if (folder / SWEEP_FILE).exists():
        raise ConfigError(f"{folder} holds a sweep already; name another folder with hydra.sweep.dir=…")
    tracker = make_tracker(confs[0].tracking, launched_in)
    sweep_id = tracker.start_sweep(folder.name, shlex.join(["sonar-eval", "sweep", *sys.argv[1:]]))
    session = Session(folder, len(jobs), tracker, sweep_id)
    written = {"cells": len(jobs), "varies": _varying(jobs), "sweep_id": sweep_id, "command": sys.argv[1:]}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SWEEP_FILE).write_text(json.dumps(written, indent=1), encoding="utf-8")
    except OSError as error:
        session.close("FAILED")
        raise ConfigError(f"hydra.sweep.dir: cannot write to {folder}: {error.strerror}") from error
    _tell_jobs(config, folder, sweep_id)
    return session


def _require_distinct(jobs: list[list[str]]) -> None:
    """Refuse two cells of one configuration: they would share a folder, whatever their tracking is."""
    seen = set()
    for job in jobs:
        made_of = tuple(line for line in job if not line.startswith(("tracking", "hydra.")))
        if made_of in seen:
            raise ConfigError(f"two cells of this sweep are the same: {' '.join(job)}")
        seen.add(made_of)


def _grid(config: DictConfig) -> list[list[str]]:
    """List the jobs as the sweeper will: its parameters, then the command line."""
    params = OmegaConf.to_container(config.hydra.sweeper.get("params") or OmegaConf.create({}))
    assert isinstance(params, dict)
    lines = [f"{key!s}={value}" for key, value in params.items()]
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    parsed = parser.parse_overrides([*lines, *config.hydra.overrides.task])
    batches = BasicSweeper.split_arguments(parsed, None)
    return [list(job) for job in batches[0]]


def _one_of_each(jobs: list[list[str]]) -> list[list[str]]:
    """Pick jobs so that every value of every axis is among them: a sum, where the grid is a product."""
    first = jobs[0]
    return [job for job in jobs if sum(a != b for a, b in zip(job, first, strict=True)) <= 1]


def _varying(jobs: list[list[str]]) -> list[str]:
    """List the keys whose values differ between jobs."""
    columns = zip(*jobs, strict=True)
    return [column[0].partition("=")[0].lstrip("+") for column in columns if len(set(column)) > 1]


def _compose(config: DictConfig, job: list[str]) -> SweepConf:
    loader = GlobalHydra.instance().config_loader()
    return read_config(loader.load_sweep_config(config, job))


def _tell_jobs(config: DictConfig, folder: Path, sweep_id: str) -> None:
    """Append to the overrides: the one way that reaches jobs under every launcher."""
    quoted = re.sub(r"(['\\])", r"\\\1", str(folder))
    with read_write(config), open_dict(config):
        if sweep_id:
            config.hydra.overrides.task.append(f"tracking.parent_run_id={sweep_id}")
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")
        config.hydra.sweep.dir = str(folder)


def rows(results: list[dict[str, Any]]) -> list[ResultRow]:
    """Make table rows of results."""
    return [ResultRow(result["choices"], result["varies"], result["report"], result["error"]) for result in results]
