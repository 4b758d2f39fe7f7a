"""Getting the records of a finished cell back out of MLflow."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ConfigError, describe


def fetch_records(uri: str, run_id: str, names: tuple[str, ...], into: Path) -> None:
    """Download the artifacts called `names` of a run into a folder.

    Raises `ConfigError` when there is no such store or run, or the first of them is not among its artifacts.
    """
    path = uri.removeprefix("sqlite:///")
    if path != uri and not os.path.isfile(path):
        raise ConfigError(f"there is no MLflow store {uri}; name one with --uri")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(uri)
    try:
        there = {entry.path for entry in client.list_artifacts(run_id)}
        if names[0] not in there:
            raise ConfigError(f"run {run_id} has no {names[0]}; name the run of a cell, not that of its sweep")
        into.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name in there:
                client.download_artifacts(run_id, name, str(into))
    except MlflowException as error:
        reason = " ".join(describe(error).split())[:300]
        raise ConfigError(f"run {run_id} cannot be read from {uri}: {reason}") from error
