"""Sweeps in MLflow: a parent run per sweep, a child run per cell, and a view to compare them.

MLflow is imported when the first call needs it: that alone takes seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import ConfigError, describe
from ..scorecard import Score
from ..web import is_loopback
from .contract import CellRecord

_PARENT = "mlflow.parentRunId"
_NOTE = "mlflow.note.content"
_PARAM_LIMIT = 500
_NOT_IN_A_KEY = re.compile(r"[^/\w.\- :]")
_VIEW = "sonarleaderboard"
_COLUMNS = (
    "params.`model`",
    "params.`prompt`",
    "params.`scenario`",
    "params.`fault`",
    "metrics.`pass_rate`",
    "metrics.`pass_hat_k`",
    "metrics.`judge_mean`",
    "metrics.`safety_violations`",
    "metrics.`trials_judged`",
    "metrics.`trials_errored`",
)
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # A server that is down is told after seconds, not after four minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
}


class MLflowTracker:
    """Keep sweeps in the MLflow store at `uri`, in `experiment`; a SQLite path must be absolute."""

    def __init__(self, uri: str, experiment: str) -> None:
        self._uri = uri
        self._experiment = experiment

    @cached_property
    def _client(self) -> Any:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # It would make a child run silently become the run it names.
        os.environ.pop("MLFLOW_RUN_ID", None)
        from mlflow import MlflowClient

        return MlflowClient(self._uri)

    @cached_property
    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        if found is not None:
            return str(found.experiment_id)
        made: str = self._client.create_experiment(self._experiment, artifact_location=self._artifacts())
        self._client.set_experiment_tag(made, _NOTE, _EXPERIMENT_NOTE)
        self._client.set_experiment_tag(made, "mlflow.experimentKind", "genai_development")
        self._client.set_experiment_tag(made, f"mlflow.sharedViewState.{_VIEW}", _leaderboard())
        return made

    def _artifacts(self) -> str | None:
        """Keep artifacts beside a SQLite file; a server knows its own place."""
        path = sqlite_path(self._uri)
        if path is None:
            return None
        folder = path.parent / "mlartifacts" / re.sub(r"[^\w.\-]", "_", self._experiment)
        return folder.as_uri()

    def start_sweep(self, name: str, command: str) -> str:
        """Open the parent run; makes the store and the experiment, so that no two jobs race to."""
        self._check_server()
        try:
            run = self._client.create_run(
                self._experiment_id,
                run_name=name,
                tags={"sonar.kind": "sweep", "sonar.sweep": name, _NOTE: f"`{command}`"},
            )
        except Exception as error:
            raise ConfigError(f"tracking: cannot use {self._uri}: {' '.join(describe(error).split())[:300]}") from error
        return str(run.info.run_id)

    def _check_server(self) -> None:
        """Ask a server whether it is there; MLflow's own client would try for a long time."""
        if not self._uri.startswith(("http://", "https://")):
            return
        import httpx

        url = self._uri.rstrip("/") + "/health"
        try:
            answer = httpx.get(url, timeout=5.0, trust_env=not is_loopback(url))
        except httpx.TransportError as error:
            raise ConfigError(f"tracking: no MLflow server at {self._uri}: {describe(error)}") from error
        if answer.status_code != 200:
            raise ConfigError(f"tracking: {url} answered {answer.status_code}; is that an MLflow server?")

    def publish(self, cell: CellRecord, sweep_id: str) -> str:
        """Write one child run with params, metrics, tags and artifacts."""
        run_id = str(self._create_child(cell, sweep_id).info.run_id)
        try:
            self._fill(run_id, cell)
        except BaseException:
            self._client.set_terminated(run_id, "FAILED")
            raise
        self._client.set_terminated(run_id, "FAILED" if cell.error else "FINISHED")
        return run_id

    def _create_child(self, cell: CellRecord, sweep_id: str) -> Any:
        passed = bool(cell.report and cell.report["passed"] and not cell.report["unchecked"])
        tags = {
            _PARENT: sweep_id,
            "sonar.kind": "cell",
            "sonar.cell": cell.key,
            "sonar.passed": str(passed).lower(),
            _NOTE: _note(cell),
        }
        if cell.error:
            tags["sonar.error"] = cell.error[:5000]
        return self._client.create_run(
            self._experiment_id, run_name=cell.name, start_time=cell.started_ms or None, tags=tags
        )

    def _fill(self, run_id: str, cell: CellRecord) -> None:
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        params = {**_flat(cell.config), **{_key(name): value for name, value in cell.choices.items()}}
        self._client.log_batch(
            run_id,
            metrics=[_metric(Metric, score, now) for score in cell.scores],
            params=[Param(name, value) for name, value in params.items()],
        )
        self._client.log_dict(run_id, dict(cell.config), "config.json")
        if cell.folder.is_dir():
            self._client.log_artifacts(run_id, str(cell.folder))

    def end_sweep(self, sweep_id: str, status: str) -> None:
        """Close the parent run, unless it is closed."""
        if self._client.get_run(sweep_id).info.status == "RUNNING":
            self._client.set_terminated(sweep_id, status)

    def how_to_look(self) -> str:
        """Name the command that opens the UI, and the page with the comparison."""
        page = f"#/experiments/{self._experiment_id}/runs?viewStateShareKey={_VIEW}"
        if self._uri.startswith(("http://", "https://")):
            return f"Look at it: {self._uri.rstrip('/')}/{page}"
        path = sqlite_path(self._uri)
        where = "" if path is not None and path == Path.cwd() / "mlflow.db" else f" --uri {shlex.quote(self._uri)}"
        return f"Look at it: sonar-eval ui{where}   then open http://127.0.0.1:5000/{page}"


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a SQLite URI; None for any other store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0])


def absolute_uri(uri: str, folder: Path) -> str:
    """Anchor a relative SQLite path to `folder`: jobs may run in folders of their own."""
    path = sqlite_path(uri)
    return uri if path is None or path.is_absolute() else f"sqlite:///{folder / path}"


def _metric(metric: Any, score: Score, now: int) -> Any:
    return metric(_key(score.name), score.value, now, score.step)


def _key(name: str) -> str:
    return re.sub(r"/{2,}", "/", _NOT_IN_A_KEY.sub("_", name)).strip("/")[:250]


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Flatten a configuration to dotted names; a long value becomes its start and a hash."""
    if isinstance(value, Mapping):
        return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{prefix}{key}.").items()}
    if value is None or value == []:
        return {}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return {_key(prefix.rstrip(".")): _shortened(text)}


def _shortened(text: str) -> str:
    if len(text) <= _PARAM_LIMIT:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{text[: _PARAM_LIMIT // 2]}… ({len(text)} characters, sha256 {digest}; whole in config.json)"


def _note(cell: CellRecord) -> str:
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
    yield "\nThe conversations are under Artifacts, in `transcripts/`."


def _leaderboard() -> str:
    """Describe a saved view; the format is MLflow's own, as of 3.17."""
    now = int(time.time() * 1000)
    state = {
        "searchFilter": "tags.`sonar.kind` = 'cell'",
        "orderByKey": "metrics.`pass_rate`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(_COLUMNS),
    }
    view = {"name": "Leaderboard", "createdAt": now, "updatedAt": now, "state": json.dumps(state)}
    return json.dumps(view)


_EXPERIMENT_NOTE = f"""# Chatbot evaluations

Each parent run is a sweep, each child run one cell of it: k trials of a scenario under one model, prompt and fault.
Open the view *Leaderboard* for all cells side by side (`?viewStateShareKey={quote(_VIEW)}`).
"""
