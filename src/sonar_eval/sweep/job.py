"""One cell: configuration in, trials run, records on disk, then published. Never raises into the launcher."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ..adapter import BotAdapter
from ..brake import INTERRUPTED
from ..errors import ConfigError, describe, in_short
from ..llm import WAITS, Waits
from ..metrics import ScenarioReport
from ..orchestrator import Orchestrator
from ..records import scenario_record
from ..report import render_transcript
from ..results import TrialResult
from ..store import RESULT_FILE, SWEEP_FILE, TRIALS_FILE, JSONFileStore, finished_trials, read_jsonl
from ..tracking import Content, NullTracker, Tracker
from ..tracking.mlflow import MLflowTracker, absolute_uri
from ..usage import total_cost
from .build import build_adapter, build_grader_factory, build_scenario, build_task, build_user, read_config
from .collector import lead_here, open_collector
from .grid import cell_name
from .interrupt import listening
from .key import changed_parts, fingerprint
from .lock import FolderLock
from .prompt import prompt_record
from .publish import UNPUBLISHED, how_to_catch_up, publish_cell
from .resume import STOP_FILE, read_sweep, write_json
from .schema import SweepConf, TrackingConf

log = logging.getLogger(__name__)

_NOT_OF_A_CELL = ("hydra", "tracking", "resume", "dry_run", "fail_fast", "compare")
# Whether this process has said that the tracker is away.
_told = False


@dataclass(frozen=True)
class Cell:
    """Where a cell stands in its sweep."""

    key: str
    choices: dict[str, str]
    folder: Path
    launched_in: Path
    number: int
    """1-based."""
    of: int | None
    varies: dict[str, str]
    """What else the sweep varies, beyond the four axes."""
    parts: dict[str, str] = field(default_factory=dict)
    """The hash of each part that the launching process saw."""
    began: str = ""

    @property
    def name(self) -> str:
        """Name the cell by what distinguishes it."""
        return cell_name(self.choices, self.varies)


def run_job(cfg: DictConfig) -> dict[str, Any]:
    """Run one cell and return its result as plain values; the same stands in `result.json`.

    Raises nothing but an interrupt: under most launchers whatever else a job raises ends or hides the others.
    """
    # The cell's log file lies on the disk that may be full; logging would spill tracebacks over it.
    logging.raiseExceptions = False
    try:
        cell = _cell()
    except Exception as error:
        return {"error": describe(error)}
    try:
        return _run_job(cfg, cell)
    except (Exception, SystemExit) as error:
        log.error("cell %s: %s", cell.name, describe(error))
        return {"key": cell.key, "error": describe(error)}


def _run_job(cfg: DictConfig, cell: Cell) -> dict[str, Any]:
    stop = cell.folder.parent / STOP_FILE
    if stop.is_file():
        return {"key": cell.key, "error": f"not run: fail_fast, after {stop.read_text(encoding='utf-8')} failed"}
    result: dict[str, Any] = {
        "key": cell.key,
        "name": cell.name,
        "choices": cell.choices,
        "varies": cell.varies,
        "began": cell.began,
        "config": None,
        "started_ms": int(time.time() * 1000),
        "report": None,
        "error": None,
        "incomplete": None,
        "measured": None,
        "run_id": None,
    }
    report: ScenarioReport | None = None
    before = WAITS.read()
    try:
        result["config"] = task_part(cfg)
        conf = read_config(cfg)
        result["config"]["prompt"] = prompt_record(conf)
        report = _run(conf, cell)
        result["report"], result["error"] = scenario_record(report), report.error or _interrupted(report)
        result["incomplete"], result["measured"] = _incomplete(report), _measured(conf, report)
    except (Exception, SystemExit) as error:
        log.debug("cell %s failed", cell.name, exc_info=True)
        result["error"] = describe(error)
    result["waits"] = _tell_waits(cell, WAITS.read().since(before))
    if result["error"] and cfg.fail_fast:
        stop.write_text(cell.name, encoding="utf-8")
    _write_result(cell, result)
    _publish(cfg, cell, result)
    _write_result(cell, result)
    if report is not None and _interrupted(report):
        # Everything is on disk and published; what is left is to start no further cell.
        raise KeyboardInterrupt
    return result


def _tell_waits(cell: Cell, waits: Waits) -> dict[str, Any]:
    """Say how often this process waited for models, when it did."""
    if waits.limited or waits.retries or waits.queued:
        log.info("%s: %s", cell.name, waits)
    return {name: round(value, 3) for name, value in asdict(waits).items()}


def _interrupted(report: ScenarioReport) -> str | None:
    """Say how far a cell came that somebody stopped; None when nobody did."""
    return f"interrupted after {len(report.trials)} of {report.k} trials" if report.stopped == INTERRUPTED else None


def _incomplete(report: ScenarioReport) -> str | None:
    """Say which trials tell nothing about the bot, although others do; None when all do."""
    errored = [trial for trial in report.trials if not trial.counted]
    if not errored:
        return None
    return f"{len(errored)} of {report.k} trials errored; the first: {errored[0].failure}"


def _measured(conf: SweepConf, report: ScenarioReport) -> dict[str, Any]:
    """Return what the trials took, for the forecast of a later sweep."""
    times = [trial.duration_s for trial in report.counted if trial.duration_s is not None]
    offline = conf.model.provider == conf.user.type == "offline" and conf.grader.type in ("offline", "none")
    costs = [cost for trial in report.counted if (cost := total_cost(trial.spent)) is not None]
    return {
        "trials": len(times),
        "mean_s": sum(times) / len(times) if times else None,
        "mean_usd": 0.0 if offline else (sum(costs) / len(costs) if costs else None),
    }


def task_part(cfg: DictConfig) -> dict[str, Any]:
    """Return the resolved configuration of a cell, without what only says how the sweep is run."""
    parts = [str(key) for key in cfg if key not in _NOT_OF_A_CELL]
    return {key: OmegaConf.to_container(cfg[key], resolve=True) for key in parts}


def make_tracker(conf: TrackingConf, launched_in: Path) -> Tracker:
    """Make the tracker that the configuration names."""
    if conf.type == "none":
        return NullTracker()
    content = Content.of(conf.content, conf.redact)
    return MLflowTracker(absolute_uri(conf.uri, launched_in), conf.experiment, traces=conf.traces, content=content)


def _cell() -> Cell:
    """Find out which cell of the sweep this job is, by what the launching process left in the sweep's folder."""
    hydra = HydraConfig.get()
    if hydra.mode is not RunMode.MULTIRUN:
        raise ConfigError("hydra.mode must be MULTIRUN: a single cell is a sweep of one")
    folder = Path(hydra.runtime.output_dir)
    if not (folder.parent / SWEEP_FILE).is_file():
        raise ConfigError(f"{folder.parent} is not the sweep's folder as seen from here: workers need to share it")
    sweep = read_sweep(folder.parent)
    rows = {row["key"]: row for row in sweep["plan"]}
    row = rows[folder.name]
    return Cell(
        folder.name,
        row["choices"],
        folder,
        Path(hydra.runtime.cwd),
        sweep["current"].index(folder.name) + 1,
        sweep["cells"],
        row["varies"],
        row["parts"],
        sweep["began"],
    )


def _require_as_planned(conf: SweepConf, cell: Cell) -> None:
    """Refuse to run what is no longer what the folder's name says."""
    changed = changed_parts(cell.parts, fingerprint(conf))
    if changed:
        raise ConfigError(
            f"changed since the sweep began: {', '.join(changed)} (or another version runs here); start it again"
        )


def _run(conf: SweepConf, cell: Cell) -> ScenarioReport:
    _require_as_planned(conf, cell)
    lock = FolderLock(cell.folder)
    holder = lock.take()
    if holder is not None:
        # A worker whose sweep was killed may live on; what it has begun is paid for.
        log.warning("%s: %s still runs this cell; waiting for it", cell.name, holder)
        lock.take(wait=True)
    try:
        return _run_trials(conf, cell)
    finally:
        lock.release()


def _run_trials(conf: SweepConf, cell: Cell) -> ScenarioReport:
    finished = finished_trials(cell.folder)
    collector = open_collector(conf)
    variables = collector.environment(conf)
    lead_here(variables, embedded=conf.ingest.type == "embedded")
    adapter = build_adapter(conf, variables)
    scenario = build_scenario(conf)
    task = build_task(conf, ingest_base_url=collector.base_url, api_key=collector.api_key)
    trials = task.resolve(scenario).k or 0
    kept = [trial for trial in finished.get(scenario.name, ()) if trial.counted and trial.index < trials]
    with _Progress(cell, trials, kept, gated=conf.grader.required) as progress:
        orchestrator = Orchestrator(
            task,
            adapter,
            build_user(conf),
            grader_factory=build_grader_factory(conf),
            store=JSONFileStore(cell.folder),
            ingest_client=collector.client(conf),
            on_trial=progress.step,
            finished=finished,
        )
        report = asyncio.run(_with_bot(adapter, orchestrator, scenario))
    _write_transcripts(cell)
    return report


async def _with_bot(adapter: BotAdapter, orchestrator: Orchestrator, scenario: Any) -> ScenarioReport:
    async with AsyncExitStack() as stack:
        if isinstance(adapter, AbstractAsyncContextManager):
            await stack.enter_async_context(adapter)
        with listening(orchestrator):
            return await orchestrator.run_scenario(scenario)


class _Progress:
    """A bar over a cell's trials, on a terminal; a line per cell elsewhere."""

    def __init__(self, cell: Cell, trials: int, kept: Sequence[TrialResult] = (), *, gated: bool = False) -> None:
        from tqdm import tqdm

        place = f"{cell.number}/{cell.of}" if cell.of else str(cell.number)
        self._label = f"[{place}] {cell.name}"
        self._kept = f" ({len(kept)} kept)" if kept else ""
        left = trials - len(kept)
        self._bar = tqdm(total=left, desc=self._label, unit="trial", leave=False, disable=not sys.stderr.isatty())
        self._gated = gated
        self._passed = sum(trial.passes(grader_required=gated) for trial in kept)
        self._errored = self._done = 0

    def __enter__(self) -> _Progress:
        return self

    def step(self, trial: TrialResult) -> None:
        """Take note of a finished trial."""
        self._done += 1
        self._passed += trial.passes(grader_required=self._gated)
        self._errored += not trial.counted
        self._bar.set_postfix_str(self._tally(), refresh=False)
        self._bar.update()

    def _tally(self) -> str:
        errored = f", {self._errored} errored" if self._errored else ""
        return f"{self._passed} passed{errored}"

    def __exit__(self, *_: object) -> None:
        self._bar.close()
        log.info("%s: %d trials%s, %s", self._label, self._done, self._kept, self._tally())


def _write_transcripts(cell: Cell) -> None:
    folder = cell.folder / "transcripts"
    folder.mkdir(exist_ok=True)
    conversations = {}
    for record in read_jsonl(cell.folder / TRIALS_FILE):
        number = record["index"] + 1
        conversations[f"trial {number}"] = record["conversation_id"]
        (folder / f"trial-{number:03}.md").write_text(render_transcript(record), encoding="utf-8")
    write_json(cell.folder / "conversation_ids.json", dict(sorted(conversations.items())))


def _publish(cfg: DictConfig, cell: Cell, result: dict[str, Any]) -> None:
    """Hand the cell to the tracker; that it fails is told, and costs none of the records."""
    global _told
    try:
        tracking: TrackingConf = OmegaConf.to_object(cfg.tracking)  # type: ignore[assignment]  # a typed node
        tracker = make_tracker(tracking, cell.launched_in)
        result["run_id"] = publish_cell(cell.folder, tracker, tracking.parent_run_id or "") or None
    except Exception as error:
        reason = in_short(error)
        result["error"] = result["error"] or f"{UNPUBLISHED}{reason}"
        if not _told:
            log.error("%s is on disk, but was not published: %s; the sweep goes on", cell.name, reason)
            log.error("afterwards: %s", how_to_catch_up(cell.folder.parent))
        _told = True


def _write_result(cell: Cell, result: Mapping[str, Any]) -> None:
    cell.folder.mkdir(parents=True, exist_ok=True)
    write_json(cell.folder / RESULT_FILE, result)
