"""What is done with trials after the fact: judged again, judged at all, run again."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from omegaconf import OmegaConf

from ..config import ScenarioConfig
from ..errors import ConfigError
from ..grader import Grader
from ..hindsight import judge_again, judge_conversation
from ..metrics import ScenarioReport, roll_up
from ..orchestrator import Orchestrator
from ..records import scenario_record, trial_record
from ..report import render_transcript, side_by_side, verdict_changes
from ..results import TrialResult
from ..store import RESULT_FILE, SCENARIOS_FILE, JSONFileStore, finished_trials, read_jsonl
from ..transcript import Transcript
from ..trial import GraderFactory
from .build import build_adapter, build_grader_factory, build_scenario, build_task, build_user
from .collector import lead_here, open_collector
from .publish import how_to_catch_up
from .resume import write_json
from .schema import SweepConf
from .stored import StoredCell, configure, find_cell, find_cells

_UNUSED = "http://unused"


def rejudge(where: str, overrides: Sequence[str], *, uri: str) -> Iterator[str]:
    """Judge the stored trials behind `where` under a changed configuration, and say what became of each.

    Every cell gets a folder of new records beside the old; nothing is written over.
    """
    cells = find_cells(where, uri=uri)
    confs = [(cell, configure(_known(cell, overrides), overrides)) for cell in cells]
    for cell, conf in confs:
        yield from _rejudge_cell(cell, conf, overrides)


def _known(cell: StoredCell, overrides: Sequence[str]) -> Any:
    if cell.config is None and not any(line.startswith("scenario=") for line in overrides):
        raise ConfigError(f"{cell.folder} does not tell what its trials were judged by; name it with scenario=…")
    return cell.config


def _rejudge_cell(cell: StoredCell, conf: SweepConf, overrides: Sequence[str]) -> Iterator[str]:
    scenario, before = _resolved(conf), _gate_before(cell, conf)
    name, trials = _trials_of(cell, scenario.name)
    told = _told(cell.folder, name)
    # What was asked for last counts: more may lie there, and what was asked for and not run stays not measured.
    asked = int(told.get("asked") or 0) or max(trial.index for trial in trials) + 1
    trials = [trial for trial in trials if trial.index < asked]
    again = asyncio.run(_judge_all(scenario, trials, build_grader_factory(conf), overrides))
    folder = _folder_beside(cell.folder, "rejudged")
    report = _keep(folder, conf, scenario, again, k=asked, stopped=told.get("stopped"), early=told.get("stopped_early"))
    yield f"{cell.name}: {len(trials)} trials judged again, the bot was not called"
    for old, new in zip(trials, again, strict=True):
        yield from verdict_changes(
            trial_record(scenario.name, old, grader_required=before),
            trial_record(scenario.name, new, grader_required=conf.grader.required),
        )
    rate = roll_up(scenario.name, trials, k=report.k, grader_required=before).pass_rate
    yield f"pass rate: {_percent(rate)} -> {_percent(report.pass_rate)}"
    yield f"Records and transcripts: {folder}"
    if _keep_result(cell.folder, folder, conf, report):
        yield f"To see it in MLflow beside the first: {how_to_catch_up(folder)}"


def _told(folder: Path, scenario: str) -> dict[str, Any]:
    """Return what the last report of a cell, or of one scenario among several, says; nothing where there is none."""
    report: dict[str, Any] = _result_of(folder).get("report") or {}
    told = [record for record in read_jsonl(folder / SCENARIOS_FILE) if record.get("scenario") == scenario]
    return report or (told[-1] if told else {})


def _result_of(folder: Path) -> dict[str, Any]:
    """Read what became of a cell; nothing for a folder that lies outside of a sweep."""
    try:
        found: dict[str, Any] = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _keep_result(before: Path, folder: Path, conf: SweepConf, report: ScenarioReport) -> bool:
    """Write down a cell judged again as the job wrote the cell itself; False for one that lies outside of a sweep."""
    result = _result_of(before)
    if not result:
        return False
    changed = {
        "key": f"{result['key']}.{folder.name}",
        "name": f"{result['name']} {folder.name}",
        "varies": {**result["varies"], "judged": folder.name},
        "config": {**(result["config"] or {}), **_judged_by(conf)},
        "report": scenario_record(report),
        "error": report.error,
        "run_id": None,
    }
    write_json(folder / RESULT_FILE, {**result, **changed})
    return True


def _judged_by(conf: SweepConf) -> dict[str, Any]:
    """Return the parts of the configuration that a verdict rests on."""
    return {"scenario": asdict(conf.scenario), "grader": asdict(conf.grader)}


def _gate_before(cell: StoredCell, conf: SweepConf) -> bool:
    """Tell whether the score gated when the trials were judged first."""
    return bool(OmegaConf.select(cell.config, "grader.required")) if cell.config is not None else conf.grader.required


def _trials_of(cell: StoredCell, scenario: str) -> tuple[str, list[TrialResult]]:
    """Return the trials of a scenario and its name; where only one was run, its trials may be judged as another's."""
    found = finished_trials(cell.folder)
    if len(found) == 1:
        return next(iter(found.items()))
    if scenario not in found:
        raise ConfigError(
            f"{cell.folder} holds no trial of scenario {scenario!r}; it holds: {', '.join(found) or 'none'}"
        )
    return scenario, found[scenario]


async def _judge_all(
    scenario: ScenarioConfig, trials: list[TrialResult], graders: GraderFactory | None, overrides: Sequence[str]
) -> list[TrialResult]:
    judge = _one_judge(scenario, graders)
    again = [await judge_again(scenario, trial, judge) for trial in trials]
    for trial in again:
        trial.warnings.append(f"judged again, with: {' '.join(overrides) or 'the same configuration'}")
    return again


def _one_judge(scenario: ScenarioConfig, graders: GraderFactory | None) -> GraderFactory | None:
    """Make one judge and hand it out each time: what it learns of its provider then holds for all trials."""
    if graders is None:
        return None
    grader: Grader = graders(scenario)
    return lambda _: grader


def judge(conversation_id: str, overrides: Sequence[str], *, out: str) -> Iterator[str]:
    """Judge a conversation by its trace in the ingest, and show what it was and what came of it."""
    # What runs in this process has never met a conversation that is over.
    conf = configure(None, overrides, also=() if _chosen("ingest", overrides) else ("ingest=external",))
    if not _chosen("scenario", overrides):
        raise ConfigError("by what? name a scenario with scenario=…, or its assertions and rubric")
    if conf.ingest.type != "external":
        raise ConfigError("ingest=embedded holds no conversation of another process; name one that runs already")
    scenario = _resolved(conf)
    trial = asyncio.run(_judge_one(conf, scenario, conversation_id))
    folder = _folder_beside(Path(out), quote(conversation_id, safe="") or "_")
    _keep(folder, conf, scenario, [trial], k=1)
    yield render_transcript(trial_record(scenario.name, trial, grader_required=conf.grader.required))
    yield f"Record and transcript: {folder}"


def _chosen(group: str, overrides: Sequence[str]) -> bool:
    return any(line.startswith((f"{group}=", f"{group}.")) for line in overrides)


async def _judge_one(conf: SweepConf, scenario: ScenarioConfig, conversation_id: str) -> TrialResult:
    client = open_collector(conf).client(conf)
    async with AsyncExitStack() as stack:
        if isinstance(client, AbstractAsyncContextManager):
            await stack.enter_async_context(client)
        transcript: Transcript = await client.pull(conversation_id)
    return await judge_conversation(scenario, transcript, build_grader_factory(conf))


def rerun(where: str, number: int, overrides: Sequence[str], *, uri: str) -> Iterator[str]:
    """Repeat the trial of that number (1 is the first) with its seed, and show both beside each other."""
    cell = find_cell(where, uri=uri)
    conf = configure(_known(cell, overrides), overrides)
    scenario = _resolved(conf)
    earlier = [trial for trial in _trials_of(cell, scenario.name)[1] if trial.index == number - 1]
    if not earlier:
        raise ConfigError(f"{cell.folder} holds no trial {number}")
    folder = _folder_beside(cell.folder, "rerun")
    trial = asyncio.run(_run_again(conf, scenario, number - 1, folder))
    records = [trial_record(scenario.name, one, grader_required=conf.grader.required) for one in (earlier[0], trial)]
    _write_transcript(folder, records[1])
    if earlier[0].random_seed != trial.random_seed:
        yield f"warning: the seed was {earlier[0].random_seed}; task.seed or the scenario's name is another now"
    yield side_by_side(records[0], records[1], width=shutil.get_terminal_size((120, 40)).columns)
    yield from verdict_changes(records[0], records[1])
    yield f"Record and transcript: {folder}"


async def _run_again(conf: SweepConf, scenario: ScenarioConfig, index: int, folder: Path) -> TrialResult:
    collector = open_collector(conf)
    variables = collector.environment(conf)
    lead_here(variables, embedded=conf.ingest.type == "embedded")
    adapter = build_adapter(conf, variables)
    orchestrator = Orchestrator(
        build_task(conf, ingest_base_url=collector.base_url, api_key=collector.api_key),
        adapter,
        build_user(conf),
        grader_factory=build_grader_factory(conf),
        store=JSONFileStore(folder),
        ingest_client=collector.client(conf),
    )
    async with AsyncExitStack() as stack:
        if isinstance(adapter, AbstractAsyncContextManager):
            await stack.enter_async_context(adapter)
        return await orchestrator.run_trial(scenario, index)


def _resolved(conf: SweepConf) -> ScenarioConfig:
    return build_task(conf, ingest_base_url=_UNUSED, api_key=None).resolve(build_scenario(conf))


def _folder_beside(beside: Path, name: str) -> Path:
    """Make a folder that is not there yet."""
    number = 1
    while True:
        folder = beside / f"{name}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror}") from error
        else:
            return folder


def _keep(
    folder: Path,
    conf: SweepConf,
    scenario: ScenarioConfig,
    trials: list[TrialResult],
    *,
    k: int,
    stopped: str | None = None,
    early: bool | None = None,
) -> ScenarioReport:
    store = JSONFileStore(folder)
    for trial in trials:
        record = trial_record(scenario.name, trial, grader_required=conf.grader.required)
        store.save_trial(record)
        _write_transcript(folder, record)
    report = roll_up(
        scenario.name,
        trials,
        k=k,
        grader_required=conf.grader.required,
        grader_threshold=conf.grader.threshold,
        strict_faults=scenario.strict_faults,
        stopped=stopped,
        decided=bool(early),
    )
    store.save_scenario(scenario_record(report))
    return report


def _write_transcript(folder: Path, record: dict[str, Any]) -> None:
    place = folder / "transcripts"
    place.mkdir(exist_ok=True)
    (place / f"trial-{record['index'] + 1:03}.md").write_text(render_transcript(record), encoding="utf-8")


def _percent(rate: float | None) -> str:
    return "none" if rate is None else f"{rate:.0%}"
