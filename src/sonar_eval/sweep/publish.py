"""Publishing what a sweep left on disk: at the end of each job, and again by hand when the tracker was away."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError, in_short
from ..metrics import ScenarioReport, roll_up
from ..records import read_trial
from ..scorecard import original_names, scorecard
from ..store import RESULT_FILE, SWEEP_FILE, TRIALS_FILE, asked_for, read_jsonl
from ..tracking import CellRecord, Content, Tracker
from ..tracking.mlflow import MLflowTracker, absolute_uri
from .comparison import compare_sweep, publish_comparisons
from .resume import read_sweep, write_json
from .schema import TrackingConf

log = logging.getLogger(__name__)

UNPUBLISHED = "not published: "
COMPARISON = "how the arms compare"


@dataclass(frozen=True)
class Published:
    """What became of one cell: the run it stands in, or why it stands in none."""

    name: str
    run_id: str | None
    reason: str | None = None


def publish_cell(folder: Path, tracker: Tracker, sweep_id: str) -> str:
    """Hand the cell in `folder` to the tracker and return the id it got; safe to repeat.

    Everything is read from the folder: the result, the configuration beside it, the records of the trials.
    """
    return tracker.publish(read_cell(folder), sweep_id)


def publish_sweep(sweep_dir: Path, tracker: Tracker) -> list[Published]:
    """Bring the tracker up to date with a sweep's folder, and close the sweep there as it ended.

    The folder of one cell, judged again or not, is published below the run of its sweep. Raises `ConfigError` when
    the folder holds no sweep or the tracker cannot be used.
    """
    if _sweep_of(sweep_dir) != sweep_dir:
        return [_publish_alone(sweep_dir, tracker)]
    known = read_sweep(sweep_dir)
    folders = _cells(sweep_dir, known)
    sweep_id = _open_again(sweep_dir, tracker)
    with contextlib.suppress(Exception):
        # The cells say whether the tracker can be used.
        keep_plan(sweep_dir, tracker, sweep_id)
    done = [_publish_one(folder, tracker, sweep_id) for folder in folders]
    complete = _whole(known, folders)
    whole = complete and all(entry.run_id is not None for entry in done)
    if complete:
        done += _publish_comparison(sweep_dir, tracker, sweep_id)
    tracker.end_sweep(sweep_id, _ending(folders) if whole else "KILLED", correct=whole)
    return done


def _publish_comparison(sweep_dir: Path, tracker: Tracker, sweep_id: str) -> list[Published]:
    """Publish how the arms compare; returns why, when that could not be."""
    try:
        publish_comparisons(sweep_dir, compare_sweep(sweep_dir), tracker, sweep_id)
    except Exception as error:
        log.debug("the comparison was not published", exc_info=True)
        return [Published(COMPARISON, None, in_short(error))]
    return []


def _open_again(sweep_dir: Path, tracker: Tracker) -> str:
    command = told_command(read_sweep(sweep_dir).get("command", ()))
    return tracker.start_sweep(sweep_dir.name, command, key=sweep_key(sweep_dir), reopen=False)


def _publish_alone(folder: Path, tracker: Tracker) -> Published:
    sweep_id = _open_again(_sweep_of(folder), tracker)
    try:
        return _publish_one(folder, tracker, sweep_id)
    finally:
        # Where the sweep stood there before, it has ended already.
        tracker.end_sweep(sweep_id, "KILLED")


def _sweep_of(folder: Path) -> Path:
    """Return the sweep's folder in which a cell's folder lies, or beside which it was judged again."""
    if (folder / RESULT_FILE).is_file() and not (folder / SWEEP_FILE).is_file():
        for above in list(folder.parents)[:2]:
            if (above / SWEEP_FILE).is_file():
                return above
    return folder


def keep_plan(sweep_dir: Path, tracker: Tracker, sweep_id: str) -> None:
    """Leave with the tracker what a sweep wrote about itself, to go on with it where its folder is not.

    Not where the tracker is: whoever finds it there knows, and an address may hold a password.
    """
    known = read_sweep(sweep_dir)
    told = {
        **known,
        "command": _elsewhere(known["command"]),
        "tracking": {**(known.get("tracking") or {}), "uri": None},
    }
    told["plan"] = [{**row, "overrides": _elsewhere(row.get("overrides", ()))} for row in known.get("plan", ())]
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / SWEEP_FILE
        write_json(path, told)
        tracker.keep_file(sweep_id, path)


def _elsewhere(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if not line.lstrip("+").startswith("tracking.uri=")]


def told_command(command: Iterable[Any]) -> str:
    """Write the command of a sweep as it may be shown, without the password of a store."""
    return re.sub(r"(://)[^/@\s]+@", r"\1***@", shlex.join(["sonar-eval", "sweep", *map(str, command)]))


def publish_kept(folders: Iterable[Path], tracker: Tracker, sweep_id: str) -> list[Published]:
    """Publish finished cells that may stand there already; return those that could not be, told in their results."""
    return [told for folder in folders if (told := _publish_one(folder, tracker, sweep_id)).run_id is None]


def _cells(sweep_dir: Path, known: Mapping[str, Any]) -> list[Path]:
    """List the folders of finished cells as they were begun, without those that a changed cell took the place of."""
    planned = {str(row["key"]) for row in known.get("plan", ())}
    found = (path.parent for path in sweep_dir.glob(f"*/{RESULT_FILE}"))
    return sorted((folder for folder in found if not planned or folder.name in planned), key=_started)


def _whole(known: Mapping[str, Any], folders: list[Path]) -> bool:
    if "current" in known:
        return {folder.name for folder in folders} >= set(known["current"])
    return len(folders) >= int(known.get("cells") or 0)


def _ending(folders: list[Path]) -> str:
    results = [_read(folder / RESULT_FILE) for folder in folders]
    return "FAILED" if any(result["error"] or result.get("incomplete") for result in results) else "FINISHED"


def _publish_one(folder: Path, tracker: Tracker, sweep_id: str) -> Published:
    result = _read(folder / RESULT_FILE)
    try:
        run_id = publish_cell(folder, tracker, sweep_id)
    except Exception as error:
        log.debug("cell %s was not published", result["name"], exc_info=True)
        reason = in_short(error)
        if result["error"] is None:
            write_json(folder / RESULT_FILE, {**result, "error": f"{UNPUBLISHED}{reason}"})
        return Published(result["name"], None, reason)
    if result.get("run_id") != run_id or str(result["error"] or "").startswith(UNPUBLISHED):
        error_then = None if str(result["error"] or "").startswith(UNPUBLISHED) else result["error"]
        write_json(folder / RESULT_FILE, {**result, "run_id": run_id, "error": error_then})
    return Published(result["name"], run_id)


def read_cell(folder: Path) -> CellRecord:
    """Read a finished cell from its folder."""
    result = _read(folder / RESULT_FILE)
    records = asked_for(_last_of_each(folder), int((result["report"] or {}).get("asked") or 0))
    config = result.get("config") or {}
    report = _report(result, config, records)
    error = result["error"]
    return CellRecord(
        result["name"],
        result["key"],
        {**result["choices"], **result["varies"]},
        config,
        folder,
        scorecard(report) if report is not None else [],
        result["report"],
        None if str(error or "").startswith(UNPUBLISHED) else error,
        result["started_ms"],
        records,
        sweep_key(_sweep_of(folder)),
        original_names(report) if report is not None else {},
    )


def _last_of_each(folder: Path) -> list[dict[str, Any]]:
    """Return the records in trial order; of several of one trial the last holds."""
    last = {record["index"]: record for record in read_jsonl(folder / TRIALS_FILE)}
    return [last[index] for index in sorted(last)]


def _report(
    result: Mapping[str, Any], config: Mapping[str, Any], records: list[dict[str, Any]]
) -> ScenarioReport | None:
    """Roll the trials up again, by the rules the cell was run under."""
    if result["report"] is None:
        return None
    scenario, grader = config.get("scenario") or {}, config.get("grader") or {}
    return roll_up(
        result["report"]["scenario"],
        [read_trial(record) for record in records],
        k=result["report"]["k"],
        grader_required=bool(grader.get("required", False)),
        grader_threshold=float(grader.get("threshold", 0.7)),
        strict_faults=bool(scenario.get("strict_faults", False)),
    )


def sweep_key(sweep_dir: Path) -> str:
    """Return what names a sweep in every tracker: its folder's name, and what it wrote when it was opened."""
    path = sweep_dir / SWEEP_FILE
    if not path.is_file():
        return ""
    known = _read(path)
    return str(known.get("key") or f"{sweep_dir.name}-{_hash(json.dumps(known, sort_keys=True))}")


def tracking_record(conf: TrackingConf, launched_in: Path) -> dict[str, Any]:
    """Return how a sweep is tracked, to publish it by the same rules later; without the password of a store."""
    return {
        "uri": None if "@" in conf.uri else absolute_uri(conf.uri, launched_in),
        "experiment": conf.experiment,
        "traces": conf.traces,
        "content": conf.content,
        "redact": list(conf.redact),
    }


def tracker_of(sweep_dir: Path, uri: str | None = None, experiment: str | None = None) -> Tracker:
    """Make the tracker that a sweep was run with, or one elsewhere by the same rules for text."""
    told = read_sweep(_sweep_of(sweep_dir)).get("tracking") or {}
    chosen = absolute_uri(uri, Path.cwd()) if uri else told.get("uri")
    if not chosen:
        raise ConfigError(f"{sweep_dir} does not tell the whole address of its store; name it with --uri")
    return MLflowTracker(
        chosen,
        experiment or told.get("experiment") or "sonar-eval",
        traces=told.get("traces", "trial"),
        content=Content.of(told.get("content", "full"), told.get("redact", ())),
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _started(folder: Path) -> int:
    return int(_read(folder / RESULT_FILE)["started_ms"])


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def how_to_catch_up(sweep_dir: Path | str) -> str:
    """Name the command that publishes what could not be."""
    return f"sonar-eval tracking publish {sweep_dir}"


def unpublished(results: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Pick the results that stand in no tracker although they should."""
    return (result for result in results if str(result["error"] or "").startswith(UNPUBLISHED))
