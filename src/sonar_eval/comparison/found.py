"""Cells as a sweep left them: in folders, or in MLflow."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, in_short
from ..records import SCHEMA_VERSION
from ..report import CellTrials, cell_of
from ..store import RESULT_FILE, SWEEP_FILE, TRIALS_FILE, asked_for, read_jsonl
from ..tracking.mlflow import absolute_uri, sqlite_path

CONFIG_FILE = "config.json"
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_PARENT = "mlflow.parentRunId"


@dataclass(frozen=True)
class FoundCell:
    """One cell: what it was made of, and its trials."""

    choices: Mapping[str, str]
    varies: Mapping[str, str]
    trials: CellTrials
    number: int = 0
    """When it ran, to list arms in the order of the sweep."""
    folder: Path | None = None
    """Where it lies; None for one in MLflow."""
    config: Mapping[str, Any] | None = None
    """What it was run with, where that stands beside its records."""
    key: str = ""
    """What its sweep's plan knows it by; empty where its result does not tell."""


@dataclass(frozen=True)
class Found:
    """What stands behind one path or run id."""

    name: str
    cells: tuple[FoundCell, ...]
    command: tuple[str, ...] | None = None
    """The command line of the sweep, to run it again; None where it is not known."""
    left_out: int = 0
    """Cells that lie there and are no part of what the sweep was asked for last."""


def find(place: str, tracking_uri: str) -> Found:
    """Read a sweep's folder, a cell's folder, or an MLflow run; raises `ConfigError` when it is none of these."""
    folder = Path(place)
    if folder.is_dir():
        return _in_folder(folder)
    if _RUN_ID.fullmatch(place):
        return _in_mlflow(place, tracking_uri)
    raise ConfigError(f"{place!r} is neither a folder of results nor the id of an MLflow run (32 hex digits)")


def _in_folder(folder: Path) -> Found:
    one = (folder / TRIALS_FILE).is_file() or (folder / RESULT_FILE).is_file()
    folders = [folder] if one else sorted(path.parent for path in folder.glob(f"*/{RESULT_FILE}"))
    if not folders:
        raise ConfigError(f"{folder} holds no results: expected {RESULT_FILE} in it or in the folders below it")
    sweep = {} if one else _read(folder / SWEEP_FILE)
    command = tuple(sweep["command"]) if sweep.get("command") is not None else None
    if "current" in sweep:
        rows = current_rows(sweep)
        current = tuple(planned_cell(folder / row["key"], row) for row in rows)
        left_out = {path.name for path in folders} - {row["key"] for row in rows}
        return Found(folder.resolve().name, current, command, len(left_out))
    cells = sorted((_cell(path) for path in folders), key=lambda cell: cell.number)
    return Found(folder.resolve().name, tuple(cells), command)


def current_rows(sweep: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the rows of a sweep's plan that were asked for last, in the order of the table."""
    current = set(sweep.get("current", ()))
    rows = [row for row in sweep.get("plan", ()) if row["key"] in current]
    return sorted(rows, key=lambda row: int(row.get("place", 0)))


def _cell(folder: Path, asked: int = 0) -> FoundCell:
    """Read a cell; `asked` is how many trials were asked for last, where its plan tells."""
    result = _read(folder / RESULT_FILE)
    records = asked_for(_records(folder / TRIALS_FILE), asked or _asked(result))
    report = result.get("report") or {}
    choices = result.get("choices") or {"scenario": records[0]["scenario"] if records else folder.name}
    trials = cell_of(
        records,
        asked or _asked(result),
        stopped_early=bool(report.get("stopped_early")),
        error=result.get("error"),
    )
    config = result.get("config") or _read(folder / CONFIG_FILE) or None
    started_ms = int(result.get("started_ms") or 0)
    varies = result.get("varies") or {}
    # A cell that was judged again is that cell all the same.
    key = str(result.get("key") or "").removesuffix(f".{varies.get('judged')}")
    return FoundCell(choices, varies, trials, started_ms, folder, config, key)


def _asked(result: Mapping[str, Any]) -> int:
    """Return how many trials a cell was asked for last by its result; 0 where that does not tell."""
    return int((result.get("report") or {}).get("asked") or 0)


def planned_cell(folder: Path, row: Mapping[str, Any]) -> FoundCell:
    """Read a cell by the row of the plan it was run by: one that left nothing is known all the same."""
    asked = int(row.get("trials") or 0)
    if not (folder / RESULT_FILE).is_file():
        trials = cell_of(_records(folder / TRIALS_FILE), asked, error="left no result")
        return FoundCell(row["choices"], row["varies"], trials, folder=folder)
    return replace(_cell(folder, asked), choices=row["choices"], varies=row["varies"])


def _records(path: Path) -> list[dict[str, Any]]:
    records = list(read_jsonl(path))
    for record in records:
        version = record.get("schema_version")
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise ConfigError(f"{path} has a record of schema {version!r}; this version reads up to {SCHEMA_VERSION}")
    return records


def _read(path: Path) -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return read


def _in_mlflow(run_id: str, tracking_uri: str) -> Found:
    """Fetch the records of a run, or of the runs below it."""
    path = sqlite_path(tracking_uri)
    if path is not None and not path.is_file():
        raise ConfigError(f"there is no store {tracking_uri} to find run {run_id} in; name one with --tracking-uri")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    client = MlflowClient(absolute_uri(tracking_uri, Path.cwd()))
    try:
        run = client.get_run(run_id)
        cells, left_out = _cells_of(client, run)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"MLflow at {tracking_uri}: {in_short(error)}") from error
    in_order = tuple(sorted(cells, key=lambda cell: cell.number))
    return Found(run.info.run_name or run_id[:8], in_order, left_out=left_out)


def _cells_of(client: Any, run: Any) -> tuple[list[FoundCell], int]:
    """Read the cells of a sweep, of one arm of it, or the one cell that the run is; count those of earlier ones."""
    arm = run.data.tags.get("sonar.arm")
    if arm and run.data.tags.get(_PARENT):
        axis, _, value = arm.partition("=")
        sweep = client.get_run(run.data.tags[_PARENT])
        runs = [child for child in _below(client, sweep) if child.data.params.get(axis) == value]
    else:
        sweep, runs = run, _below(client, run)
    if not runs:
        return [_of_run(client, run)], 0
    found = [_of_run(client, child) for child in runs]
    current = _kept_plan(client, sweep).get("current")
    cells = found if current is None else [cell for cell in found if not cell.key or cell.key in current]
    return cells, len(found) - len(cells)


def _kept_plan(client: Any, run: Any) -> dict[str, Any]:
    """Read what a sweep left of itself with its run; empty where it left nothing."""
    if SWEEP_FILE not in {item.path for item in client.list_artifacts(run.info.run_id)}:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        return _read(Path(client.download_artifacts(run.info.run_id, SWEEP_FILE, folder)))


def _below(client: Any, run: Any) -> list[Any]:
    found: list[Any] = []
    token = None
    while True:
        page = client.search_runs(
            [run.info.experiment_id], f"tags.`{_PARENT}` = '{run.info.run_id}'", max_results=1000, page_token=token
        )
        found += page
        token = page.token
        if not token:
            # Arms sum up the cells beside them.
            return [child for child in found if child.data.tags.get("sonar.kind") != "arm"]


def _of_run(client: Any, run: Any) -> FoundCell:
    names = {item.path for item in client.list_artifacts(run.info.run_id)}
    with tempfile.TemporaryDirectory() as folder:
        for name in names & {TRIALS_FILE, RESULT_FILE, CONFIG_FILE}:
            client.download_artifacts(run.info.run_id, name, folder)
        if not names & {TRIALS_FILE, RESULT_FILE}:
            raise ConfigError(f"run {run.info.run_id} has neither {TRIALS_FILE} nor {RESULT_FILE} among its artifacts")
        return replace(_cell(Path(folder)), folder=None)


def matching(cells: Sequence[FoundCell], wanted: Mapping[str, str]) -> list[FoundCell]:
    """Pick the cells made of what is wanted."""
    return [cell for cell in cells if all({**cell.choices, **cell.varies}.get(key) == wanted[key] for key in wanted)]
