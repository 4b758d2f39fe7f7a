"""Opening the MLflow UI over a store, with no more than one person needs."""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError

DATABASE = "mlflow.db"
ARTIFACTS = "mlartifacts"
EXAMPLE_TAG = "sonar.example"


@dataclass(frozen=True)
class Store:
    """What is to be shown: a store, and the folder to which its relative artifacts refer."""

    uri: str
    artifacts: Path | None = None
    note: str = ""

    @classmethod
    def at(cls, uri: str) -> Store:
        """Take the store at `uri`; raises `ConfigError` when it is a file that is not there."""
        path = Path(uri.removeprefix("sqlite:///"))
        if uri.startswith("sqlite:///") and not path.is_file():
            raise ConfigError(f"there is no store {uri}; run a sweep first, or name one with --uri")
        return cls(uri)

    @classmethod
    def in_folder(cls, folder: Path) -> Store:
        """Take the store in `folder`; an example is copied first: MLflow would bring its file up to date."""
        database = folder.resolve() / DATABASE
        if not database.is_file():
            raise ConfigError(f"there is no {DATABASE} in {folder}; run a sweep there first")
        if not _is_example(database):
            return cls(f"sqlite:///{database}", database.parent / ARTIFACTS)
        copy = Path(tempfile.mkdtemp(prefix="sonar-eval-example-"))
        shutil.copyfile(database, copy / DATABASE)
        if (database.parent / ARTIFACTS).is_dir():
            shutil.copytree(database.parent / ARTIFACTS, copy / ARTIFACTS)
        return cls(f"sqlite:///{copy / DATABASE}", copy / ARTIFACTS, f"This is a copy of the example, in {copy}")


def serve_command(store: Store, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command that serves a store, and the variables it needs: one worker, no jobs, no telemetry."""
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--backend-store-uri", store.uri]
    if store.artifacts is not None:
        command += ["--artifacts-destination", str(store.artifacts)]
    variables = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    return [*command, "--host", "127.0.0.1", "--port", str(port)], variables


def _is_example(database: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
            found = opened.execute("SELECT 1 FROM experiment_tags WHERE key = ?", (EXAMPLE_TAG,)).fetchone()
    except sqlite3.Error as error:
        raise ConfigError(f"{database} is no MLflow store: {error}") from error
    return found is not None
