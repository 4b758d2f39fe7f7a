"""The arms of a sweep as runs, beside the runs of its cells."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..contract import ArmRecord, ComparisonRecord
from . import entries
from .reconcile import process_tags
from .views import NOTE

COUNTS_FILE = "counts.json"
_PARENT = "mlflow.parentRunId"
_DIGEST = "sonar.digest"
_REPORT_DIGEST = "sonar.comparison"
_HEADING = "\n\n## Comparison"
_TAG_LIMIT = 5000
# Counted up when the same comparison is to be written in another way.
_FORM = 1


class ArmWriter:
    """Write the arms of one sweep as children of its run.

    An arm is one run over all its cells, since that is what the verdict is about: a cell alone has too few trials for
    one. A candidate's numbers stand under `compare/<the first 8 of the baseline's run id>/pass_rate/…`, so that the
    candidates of one baseline share their columns, and its tag `baseline_run_id` names that run whole.
    """

    def __init__(self, client: Any, experiment_id: str, sweep_id: str) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._sweep_id = sweep_id

    def write(self, record: ComparisonRecord) -> None:
        """Write what has changed; an arm that did is written anew, and its old run deleted afterwards."""
        there = self._there()
        kept = set()
        for baseline, *candidates in record.groups:
            baseline_id = self._put(baseline, record.sweep, there, None)
            kept.add(baseline_id)
            kept |= {self._put(candidate, record.sweep, there, baseline_id) for candidate in candidates}
        for run in there:
            if run.info.run_id not in kept:
                self._client.delete_run(run.info.run_id)
        self._report(record)

    def _there(self) -> list[Any]:
        where = f"tags.`{_PARENT}` = '{self._sweep_id}' and tags.`sonar.kind` = 'arm'"
        return list(self._client.search_runs([self._experiment_id], where, max_results=1000))

    def _put(self, arm: ArmRecord, sweep: str, there: list[Any], baseline_id: str | None) -> str:
        digest = _hash([_FORM, asdict(arm), baseline_id])
        same = [run for run in there if run.data.tags.get(_DIGEST) == digest]
        if same:
            return str(same[0].info.run_id)
        tags = {
            _PARENT: self._sweep_id,
            "sonar.kind": "arm",
            "sonar.arm": arm.key,
            "sonar.sweep": sweep,
            **arm.tags,
            **({"baseline_run_id": baseline_id} if baseline_id else {}),
            **({NOTE: arm.note[:_TAG_LIMIT]} if arm.note else {}),
            **process_tags(),
        }
        run = self._client.create_run(self._experiment_id, run_name=arm.name, tags=tags)
        run_id = str(run.info.run_id)
        try:
            self._fill(run_id, arm, baseline_id)
            # Last: a run without it is not whole, and is written anew.
            self._client.set_tag(run_id, _DIGEST, digest)
        except BaseException:
            self._client.set_terminated(run_id, "FAILED")
            raise
        self._client.set_terminated(run_id, "FINISHED")
        return run_id

    def _fill(self, run_id: str, arm: ArmRecord, baseline_id: str | None) -> None:
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        scores = [(score.name, score) for score in entries.finite(arm.scores)]
        if baseline_id:
            scores += [(f"compare/{baseline_id[:8]}/{score.name}", score) for score in entries.finite(arm.compared)]
        self._client.log_batch(
            run_id,
            metrics=[Metric(name, score.value, now, score.step) for name, score in scores],
            params=[Param(entries.key(name), value) for name, value in arm.params.items()],
        )
        self._put_files(run_id, {COUNTS_FILE: json.dumps(dict(arm.counts), ensure_ascii=False, indent=1)})
        table = json.dumps([{"path": COUNTS_FILE, "type": "table"}])
        self._client.set_tag(run_id, "mlflow.loggedArtifacts", table)

    def _report(self, record: ComparisonRecord) -> None:
        tags = self._client.get_run(self._sweep_id).data.tags
        digest = _hash([_FORM, dict(record.files), record.note])
        if tags.get(_REPORT_DIGEST) == digest:
            return
        self._put_files(self._sweep_id, record.files)
        before = tags.get(NOTE, "").partition(_HEADING)[0]
        self._client.set_tag(self._sweep_id, NOTE, f"{before}{_HEADING}\n\n{record.note}"[:_TAG_LIMIT])
        self._client.set_tag(self._sweep_id, _REPORT_DIGEST, digest)

    def _put_files(self, run_id: str, files: Mapping[str, str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            self._client.log_artifacts(run_id, folder)


def _hash(value: Any) -> str:
    written = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()
