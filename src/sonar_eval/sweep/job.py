"""One cell: configuration in, trials run, records on disk, then published. Never raises into the launcher."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ..adapter import BotAdapter
from ..brake import INTERRUPTED
from ..errors import ConfigError, describe
from ..llm import WAITS, Waits
from ..metrics import ScenarioReport
from ..orchestrator import Orchestrator
from ..records import scenario_record
from ..report import render_transcript
from ..results import TrialResult
from ..scorecard import scorecard
from ..store import TRIALS_FILE, JSONFileStore, read_jsonl
from ..tracking import CellRecord, NullTracker, Tracker
from ..tracking.mlflow import MLflowTracker, absolute_uri
from .build import build_adapter, build_grader_factory, build_scenario, build_task, build_user, read_config
from .collector import lead_here, open_collector
from .interrupt import listening
from .schema import SweepConf, TrackingConf

log = logging.getLogger(__name__)

RESULT_FILE = "result.json"
SWEEP_FILE = "sweep.json"
AXES = ("model", "prompt", "scenario", "fault")
_GROUPS = ("task", *AXES, "bot", "user", "grader", "ingest")


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

    @property
    def name(self) -> str:
        """Name the cell by what distinguishes it."""
        made_of = [self.choices.get(axis, "-") for axis in AXES]
        return " ".join([*made_of, *(f"{key}={value}" for key, value in self.varies.items())])


def run_job(cfg: DictConfig) -> dict[str, Any]:
    """Run one cell and return its result as plain values; the same stands in `result.json`."""
    cell, started_ms = _cell(), int(time.time() * 1000)
    result: dict[str, Any] = {
        "key": cell.key,
        "name": cell.name,
        "choices": cell.choices,
        "varies": cell.varies,
        "started_ms": started_ms,
        "report": None,
        "error": None,
        "run_id": None,
    }
    report: ScenarioReport | None = None
    before = WAITS.read()
    try:
        report = _run(read_config(cfg), cell)
        result["report"], result["error"] = scenario_record(report), report.error or _interrupted(report)
    except Exception as error:
        log.debug("cell %s failed", cell.name, exc_info=True)
        result["error"] = describe(error)
    result["waits"] = _tell_waits(cell, WAITS.read().since(before))
    _write_result(cell, result)
    _publish(cfg, cell, result, report)
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


def cell_key(choices: Mapping[str, str], config: Mapping[str, Any]) -> str:
    """Name a cell's folder: readable, and distinct for every configuration."""
    named = ".".join(str(choices.get(axis, "-")).replace("/", "_") for axis in AXES)
    written = json.dumps(config, sort_keys=True, default=str)
    return f"{named[:120]}-{hashlib.sha256(written.encode()).hexdigest()[:8]}"


def task_part(cfg: DictConfig) -> dict[str, Any]:
    """Return the resolved configuration without what only says where the results go."""
    parts = [str(key) for key in cfg if key not in ("hydra", "tracking")]
    return {key: OmegaConf.to_container(cfg[key], resolve=True) for key in parts}


def make_tracker(conf: TrackingConf, launched_in: Path) -> Tracker:
    """Make the tracker that the configuration names."""
    if conf.type == "none":
        return NullTracker()
    return MLflowTracker(absolute_uri(conf.uri, launched_in), conf.experiment)


def _cell() -> Cell:
    hydra = HydraConfig.get()
    if hydra.mode is not RunMode.MULTIRUN:
        raise ConfigError("hydra.mode must be MULTIRUN: a single cell is a sweep of one")
    chosen = hydra.runtime.choices
    sweep_file = Path(hydra.sweep.dir) / SWEEP_FILE
    known = json.loads(sweep_file.read_text(encoding="utf-8")) if sweep_file.is_file() else {}
    folder = Path(hydra.runtime.output_dir)
    return Cell(
        folder.name,
        {group: str(chosen[group]) for group in _GROUPS if group in chosen},
        folder,
        Path(hydra.runtime.cwd),
        int(hydra.job.get("num", 0)) + 1,
        known.get("cells"),
        _varies(list(hydra.overrides.task), known.get("varies", ())),
    )


def _varies(overrides: Sequence[str], keys: Iterable[str]) -> dict[str, str]:
    given = dict(line.lstrip("+").partition("=")[::2] for line in overrides)
    return {key: given[key] for key in keys if key in given and key not in AXES}


def _run(conf: SweepConf, cell: Cell) -> ScenarioReport:
    collector = open_collector(conf)
    variables = collector.environment(conf)
    lead_here(variables, embedded=conf.ingest.type == "embedded")
    adapter = build_adapter(conf, variables)
    scenario = build_scenario(conf)
    task = build_task(conf, ingest_base_url=collector.base_url, api_key=collector.api_key)
    trials = task.resolve(scenario).k or 0
    with _Progress(cell, trials) as progress:
        orchestrator = Orchestrator(
            task,
            adapter,
            build_user(conf),
            grader_factory=build_grader_factory(conf),
            store=JSONFileStore(cell.folder),
            ingest_client=collector.client(conf),
            on_trial=progress.step,
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

    def __init__(self, cell: Cell, trials: int) -> None:
        from tqdm import tqdm

        place = f"{cell.number}/{cell.of}" if cell.of else str(cell.number)
        self._label = f"[{place}] {cell.name}"
        self._bar = tqdm(total=trials, desc=self._label, unit="trial", leave=False, disable=not sys.stderr.isatty())
        self._passed = self._errored = self._done = 0

    def __enter__(self) -> _Progress:
        return self

    def step(self, trial: TrialResult) -> None:
        """Take note of a finished trial."""
        self._done += 1
        self._passed += trial.passes()
        self._errored += not trial.counted
        self._bar.set_postfix_str(self._tally(), refresh=False)
        self._bar.update()

    def _tally(self) -> str:
        errored = f", {self._errored} errored" if self._errored else ""
        return f"{self._passed} passed{errored}"

    def __exit__(self, *_: object) -> None:
        self._bar.close()
        log.info("%s: %d trials, %s", self._label, self._done, self._tally())


def _write_transcripts(cell: Cell) -> None:
    folder = cell.folder / "transcripts"
    folder.mkdir(exist_ok=True)
    conversations = {}
    for record in read_jsonl(cell.folder / TRIALS_FILE):
        number = record["index"] + 1
        conversations[f"trial {number}"] = record["conversation_id"]
        (folder / f"trial-{number:03}.md").write_text(render_transcript(record), encoding="utf-8")
    _write_json(cell.folder / "conversation_ids.json", dict(sorted(conversations.items())))


def _publish(cfg: DictConfig, cell: Cell, result: dict[str, Any], report: ScenarioReport | None) -> None:
    """Hand the cell to the tracker; that it fails is told, and costs none of the records."""
    try:
        tracking: TrackingConf = OmegaConf.to_object(cfg.tracking)  # type: ignore[assignment]  # a typed node
        result["run_id"] = make_tracker(tracking, cell.launched_in).publish(
            CellRecord(
                cell.name,
                cell.key,
                {**cell.choices, **cell.varies},
                task_part(cfg),
                cell.folder,
                scorecard(report) if report is not None else [],
                result["report"],
                result["error"],
                result["started_ms"],
            ),
            tracking.parent_run_id or "",
        )
    except Exception as error:
        reason = " ".join(describe(error).split())[:300]
        log.error("cell %s is on disk, but was not published: %s", cell.name, reason)
        result["error"] = result["error"] or f"not published: {reason}"


def _write_result(cell: Cell, result: Mapping[str, Any]) -> None:
    cell.folder.mkdir(parents=True, exist_ok=True)
    _write_json(cell.folder / RESULT_FILE, result)


def _write_json(path: Path, value: Any) -> None:
    """Write a whole file or none: a reader never finds half of one."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, ensure_ascii=False, indent=1, default=str), encoding="utf-8")
    partial.replace(path)
