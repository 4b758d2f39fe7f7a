"""The tracker: sweeps and cells as runs."""

from __future__ import annotations

import hashlib
import json
import shlex
import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ..content import Content
from ..contract import TRACES, CellRecord, ComparisonRecord
from ..trace import ended_ms
from . import entries
from .arms import ArmWriter
from .artifacts import copy_files
from .prompts import PromptShelf
from .reconcile import ALIVE, alive_now, process_tags
from .store import artifact_folder, at_second_try, check_server, connect, is_server, make_file, sqlite_path, unusable
from .traces import TraceWriter
from .views import LEADERBOARD, NOTE, experiment_tags

# Counted up when the same records are to be written in another way.
_FORM = 1


class MLflowTracker:
    """Keep sweeps in the MLflow store at `uri`, in `experiment`; a SQLite path must be absolute.

    `traces` says whether trials become traces (trial), turns do (turn), or nothing does (none).
    """

    def __init__(self, uri: str, experiment: str, *, traces: str = "trial", content: Content | None = None) -> None:
        if traces not in TRACES:
            raise ConfigError(f"tracking.traces: expected {', '.join(TRACES)}; got {traces!r}")
        self._uri = uri
        self._experiment = experiment
        self._traces = traces
        self._content = content or Content()

    @cached_property
    def _client(self) -> Any:
        return connect(self._uri)

    @cached_property
    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        if found is None:
            place = artifact_folder(self._uri, self._experiment)
            made = self._client.create_experiment(self._experiment, artifact_location=place)
            found = self._client.get_experiment(made)
        for key, value in experiment_tags(found.tags).items():
            self._client.set_experiment_tag(found.experiment_id, key, value)
        return str(found.experiment_id)

    @cached_property
    def _prompts(self) -> PromptShelf:
        return PromptShelf(self._client)

    @cached_property
    def _trace_writer(self) -> TraceWriter:
        return TraceWriter(self._uri, self._experiment_id, per_turn=self._traces == "turn")

    def start_sweep(self, name: str, command: str, *, key: str = "", reopen: bool = True) -> str:
        """Open the parent run; makes the store and the experiment, so that no two jobs race to."""
        check_server(self._uri)
        try:
            make_file(self._uri)
            return self._open(name, command, key, reopen)
        except Exception as error:
            raise unusable(self._uri, error) from error

    def _open(self, name: str, command: str, key: str, reopen: bool) -> str:
        where = f"tags.`{entries.KIND}` = 'sweep' and tags.`sonar.sweep` = '{_quoted(key)}'"
        found = self._search(where) if key else []
        if found:
            run_id = str(found[0].info.run_id)
            self._client.set_tag(run_id, entries.CONTENT, self._content.label)
            if reopen:
                self._client.update_run(run_id, status="RUNNING")
                for tag, value in process_tags().items():
                    self._client.set_tag(run_id, tag, value)
            return run_id
        tags = {
            entries.KIND: "sweep",
            entries.CONTENT: self._content.label,
            "sonar.sweep": key or name,
            NOTE: f"`{self._content.text(command)}`",
        }
        run = self._client.create_run(self._experiment_id, run_name=name, tags={**tags, **process_tags()})
        return str(run.info.run_id)

    def keep_file(self, sweep_id: str, path: Path) -> None:
        """Keep a file of the sweep as an artifact of its run, when text may be told as it is."""
        if self._content.everything:
            self._client.log_artifact(sweep_id, str(path))

    def _search(self, where: str) -> list[Any]:
        return list(self._client.search_runs([self._experiment_id], where, order_by=["attributes.start_time DESC"]))

    def publish(self, cell: CellRecord, sweep_id: str) -> str:
        """Write one child run with params, metrics, tags, artifacts and traces.

        Known by the sweep's run and the cell's key: left alone when the same is there, else written anew, and
        what stood there before is deleted afterwards.
        """
        cell = self._content.cell(cell)
        digest = self._digest(cell)
        where = f"tags.`{entries.PARENT}` = '{_quoted(sweep_id)}' and tags.`{entries.CELL}` = '{_quoted(cell.key)}'"
        there = self._search(where) if sweep_id else []
        same = [run for run in there if run.data.tags.get(entries.DIGEST) == digest]
        run_id = str(same[0].info.run_id) if same else self._write(cell, sweep_id, digest)
        for run in there:
            if run.info.run_id != run_id:
                self._trace_writer.remove(run.info.run_id)
                self._client.delete_run(run.info.run_id)
        if sweep_id:
            self._client.set_tag(sweep_id, ALIVE, alive_now())
        return run_id

    def _digest(self, cell: CellRecord) -> str:
        """Tell a cell, and how it is written, from any other; not when it is published."""
        rule = [_FORM, self._traces, self._content.mode, [pattern.pattern for pattern in self._content.patterns]]
        told = [cell.name, dict(cell.choices), dict(cell.config), cell.report, cell.error, cell.records]
        scores = [(score.name, repr(score.value), score.step) for score in cell.scores]
        written = json.dumps([rule, told, scores], sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()

    def _write(self, cell: CellRecord, sweep_id: str, digest: str) -> str:
        tags = {**entries.tags(cell), entries.CONTENT: self._content.label, **process_tags()}
        if sweep_id:
            tags[entries.PARENT] = sweep_id
        run = self._client.create_run(
            self._experiment_id, run_name=cell.name, start_time=cell.started_ms or None, tags=tags
        )
        run_id = str(run.info.run_id)
        try:
            self._fill(run_id, cell, digest)
        except BaseException:
            self._client.set_terminated(run_id, "FAILED")
            raise
        self._client.set_terminated(run_id, "FAILED" if cell.error else "FINISHED", end_time=_ended_ms(cell))
        return run_id

    def _fill(self, run_id: str, cell: CellRecord, digest: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

        now = int(time.time() * 1000)
        self._client.log_batch(
            run_id,
            metrics=[Metric(score.name, score.value, now, score.step) for score in entries.finite(cell.scores)],
            params=[Param(name, value) for name, value in entries.params(cell).items()],
        )
        asked = entries.dataset(cell)
        data = Dataset(asked["name"], asked["digest"], "code", asked["source"])
        inputs = [DatasetInput(data, [InputTag("mlflow.data.context", "evaluation")])]
        at_second_try(lambda: self._client.log_inputs(run_id, inputs))
        self._put_artifacts(run_id, cell)
        if self._traces != "none" and cell.records:
            self._trace_writer.write(run_id, cell)
        told = {"mlflow.loggedArtifacts": json.dumps([{"path": entries.TABLE_FILE, "type": "table"}])}
        linked = self._prompts.link(cell) if self._content.mode != "none" else None
        if linked:
            told["mlflow.linkedPrompts"] = linked
        # Last: a run without it is not whole, and is written anew.
        told[entries.DIGEST] = digest
        self._client.log_batch(run_id, tags=[RunTag(name, value) for name, value in told.items()])

    def _put_artifacts(self, run_id: str, cell: CellRecord) -> None:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            if cell.folder.is_dir():
                copy_files(cell.folder, folder, self._content)
            _dump(folder / entries.CONFIG_FILE, cell.config)
            _dump(folder / entries.TABLE_FILE, entries.table(cell))
            if cell.names:
                _dump(folder / entries.NAMES_FILE, cell.names)
            self._client.log_artifacts(run_id, str(folder))

    def compare(self, record: ComparisonRecord, sweep_id: str) -> None:
        """Write a child run for each arm, and the report among the artifacts of the sweep's run."""
        check_server(self._uri)
        ArmWriter(self._client, self._experiment_id, sweep_id).write(record)

    def end_sweep(self, sweep_id: str, status: str, *, correct: bool = False) -> None:
        """Close the parent run, unless it is closed."""
        now = self._client.get_run(sweep_id).info.status
        if now == "RUNNING" or (correct and now != status):
            self._client.set_terminated(sweep_id, status)

    def how_to_look(self) -> str:
        """Name the command that opens the UI, and the page with the comparison."""
        page = f"#/experiments/{self._experiment_id}/runs?viewStateShareKey={LEADERBOARD}"
        if is_server(self._uri):
            return f"Look at it: {self._uri.rstrip('/')}/{page}"
        path = sqlite_path(self._uri)
        where = "" if path is not None and path == Path.cwd() / "mlflow.db" else f" --uri {shlex.quote(self._uri)}"
        return f"Look at it: sonar-eval ui{where}   then open http://127.0.0.1:5000/{page}"


def _ended_ms(cell: CellRecord) -> int | None:
    """Return when the last trial ended: a cell that is published later did not take longer."""
    ends = [at for record in cell.records if (at := ended_ms(record)) is not None]
    return max(ends) if ends and max(ends) >= cell.started_ms else None


def _dump(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(dict(value), ensure_ascii=False, indent=1, default=str), encoding="utf-8")


def _quoted(text: str) -> str:
    return text.replace("'", "")
