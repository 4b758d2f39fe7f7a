"""Getting records back out of MLflow: those of a finished cell, or of a whole sweep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import ConfigError, in_short
from .mlflow.entries import CELL, CONTENT, DIGEST, KIND, PARENT
from .mlflow.reconcile import HOST, PID, why_dead
from .mlflow.store import check_server, connect

_PAGE = 1000
_SILENT_S = 24 * 3600.0


def fetch_records(uri: str, run_id: str, names: tuple[str, ...], into: Path) -> None:
    """Download the artifacts called `names` of a run into a folder.

    Raises `ConfigError` when there is no such store or run, or the first of them is not among its artifacts.
    """
    _require_store(uri, "--uri")
    with _told(uri, run_id):
        found = _download(connect(uri), run_id, names, into)
    if not found:
        raise ConfigError(f"run {run_id} has no {names[0]}; name the run of a cell, not that of its sweep")


class SweepFetcher:
    """Read a sweep by its parent run.

    Raises `ConfigError` when it is none, or when its texts were changed before they were published: its trials then
    cannot be gone on with.
    """

    def __init__(self, uri: str, run_id: str) -> None:
        _require_store(uri, "tracking.uri=…")
        check_server(uri)
        self._uri, self._run_id = uri, run_id
        with _told(uri, run_id):
            self._client = connect(uri)
            self._run = self._client.get_run(run_id)
        tags = self._run.data.tags
        if tags.get(KIND) != "sweep":
            above = f"; its sweep is resume=mlflow:{tags[PARENT]}" if tags.get(PARENT) else ""
            raise ConfigError(f"resume: run {run_id} is not that of a sweep{above}")
        for content in [tags.get(CONTENT), *(run.data.tags.get(CONTENT) for run in self._children)]:
            if content not in (None, "full"):
                raise ConfigError(
                    f"resume: sweep {self.name} was published with content {content!r}: its trials are not whole in "
                    "MLflow; go on from the folder it ran in, with resume=DIR"
                )

    @property
    def name(self) -> str:
        """Return the name of the sweep's folder."""
        return Path(str(self._run.info.run_name)).name

    @property
    def held_by(self) -> str | None:
        """Name the process that may still run the sweep; None when it has ended or its process is gone."""
        if self._run.info.status != "RUNNING" or why_dead(self._run, _SILENT_S):
            return None
        tags = self._run.data.tags
        return f"process {tags.get(PID, '?')} on {tags.get(HOST, 'an unknown host')}"

    @property
    def cells(self) -> list[str]:
        """List the keys of the cells that stand there whole."""
        return list(self._run_of)

    @cached_property
    def _run_of(self) -> dict[str, str]:
        whole = (run for run in self._children if DIGEST in run.data.tags)
        return {Path(run.data.tags[CELL]).name: str(run.info.run_id) for run in whole}

    @cached_property
    def _children(self) -> list[Any]:
        found: list[Any] = []
        token = None
        where = f"tags.`{PARENT}` = '{self._run.info.run_id}'"
        with _told(self._uri, self._run_id):
            while True:
                page = self._client.search_runs(
                    [self._run.info.experiment_id], where, max_results=_PAGE, page_token=token
                )
                found += (run for run in page if run.data.tags.get(KIND) == "cell")
                token = page.token
                if not token:
                    return found

    def fetch_file(self, name: str, into: Path) -> None:
        """Download a file of the sweep itself; raises `ConfigError` when it is not there."""
        with _told(self._uri, self._run_id):
            found = _download(self._client, self._run_id, (name,), into)
        if not found:
            raise ConfigError(f"resume: run {self._run_id} holds no {name}; go on from the sweep's folder")

    def fetch_cell(self, key: str, names: tuple[str, ...], into: Path) -> None:
        """Download files of a cell, those of them that are there."""
        into.mkdir(parents=True, exist_ok=True)
        with _told(self._uri, self._run_of[key]):
            _download(self._client, self._run_of[key], names, into, whole=False)


def _download(client: Any, run_id: str, names: tuple[str, ...], into: Path, *, whole: bool = True) -> bool:
    there = {entry.path for entry in client.list_artifacts(run_id)}
    if whole and names[0] not in there:
        return False
    into.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name in there:
            client.download_artifacts(run_id, name, str(into))
    return True


def _require_store(uri: str, option: str) -> None:
    path = uri.removeprefix("sqlite:///")
    if path != uri and not os.path.isfile(path):
        raise ConfigError(f"there is no MLflow store {uri}; name one with {option}")


@contextmanager
def _told(uri: str, run_id: str) -> Iterator[None]:
    """Turn what MLflow says into one line."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        reason = in_short(error)
        raise ConfigError(f"run {run_id} cannot be read from {uri}: {reason}") from error
