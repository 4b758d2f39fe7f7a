"""Judged trials of earlier runs, with what they were judged by."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..comparison.found import Found, FoundCell, find
from ..errors import ConfigError
from ..report import Judged, Trial
from ..store import TRIALS_FILE
from ..sweep.build import read_config
from ..sweep.schema import SweepConf
from ..usage import Role

_COMPARED = ("model", "prompt")
_PAIRED = ("scenario", "fault")
_GROUPS = [entry.name for entry in fields(SweepConf) if entry.name != "tracking"]


@dataclass(frozen=True)
class JudgedTrial:
    """A record with a verdict of the judge in it, and the cell it is from."""

    record: Mapping[str, Any]
    cell: JudgedCell

    @property
    def conversation_id(self) -> str:
        """The conversation's id."""
        return str(self.record["conversation_id"])

    @property
    def seen(self) -> Trial:
        """The trial as a check of the judge counts it."""
        return Trial(
            self.cell.arm,
            self.cell.name,
            recorded_verdict(self.record),
            _cost(self.record, (Role.BOT, Role.SIMULATOR)),
            _cost(self.record, (Role.JUDGE,)),
        )


@dataclass(frozen=True)
class JudgedCell:
    """One cell: its arm, its name within it, its configuration."""

    arm: str
    name: str
    conf: SweepConf | None
    """None when nothing tells what it was run with."""


def load_trials(places: Sequence[str], tracking_uri: str) -> list[JudgedTrial]:
    """Load the trials behind `places` that have a verdict of a judge; raises `ConfigError` when there are none."""
    trials = [trial for place in places for trial in _in_place(find(_folder(place), tracking_uri))]
    if not trials:
        raise ConfigError(f"{', '.join(places)}: no trial was judged; run the sweep with a grader and a rubric first")
    return list({trial.conversation_id: trial for trial in trials}.values())


def _folder(place: str) -> str:
    path = Path(place)
    return str(path.parent) if path.name == TRIALS_FILE and path.is_file() else place


def journal_folder(place: str) -> Path:
    """Return where what is learnt about the judge of these runs is kept."""
    folder = Path(_folder(place))
    return folder if folder.is_dir() else Path("judge-checks") / place


def _in_place(found: Found) -> Iterable[JudgedTrial]:
    for cell in found.cells:
        records = [record for record in cell.trials.records if _judged(record)]
        if records:
            made_of = JudgedCell(_arm(cell), _name(cell), _conf(cell))
            yield from (JudgedTrial(record, made_of) for record in records)


def _judged(record: Mapping[str, Any]) -> bool:
    grader = record.get("grader") or {}
    return record["outcome"] != "errored" and grader.get("score") is not None


def _arm(cell: FoundCell) -> str:
    parts = [cell.choices[axis] for axis in _COMPARED if axis in cell.choices]
    parts += [f"{key}={value}" for key, value in cell.varies.items() if key not in (*_COMPARED, *_PAIRED)]
    return " ".join(parts) or "-"


def _name(cell: FoundCell) -> str:
    return " ".join(cell.choices[axis] for axis in _PAIRED if axis in cell.choices)


def _conf(cell: FoundCell) -> SweepConf | None:
    """Read the configuration of a cell; its checks are left out, for only the judge works again."""
    stored: Any = cell.config
    written = cell.folder / ".hydra" / "config.yaml" if cell.folder is not None else None
    try:
        if stored is None:
            if written is None or not written.is_file():
                return None
            stored = OmegaConf.load(written)
        # What a cell was made of is kept without where its results went.
        groups = OmegaConf.create(
            {"tracking": {"type": "none"}, **{key: stored[key] for key in _GROUPS if key in stored}}
        )
        merged = OmegaConf.merge(OmegaConf.structured(SweepConf), OmegaConf.create(groups))
    except OmegaConfBaseException as error:
        place = cell.folder or _name(cell)
        raise ConfigError(f"{place}: its configuration cannot be read: {' '.join(str(error).split())}") from error
    conf = read_config(cast(Any, merged))
    return replace(conf, scenario=replace(conf.scenario, assertions=[]))


def recorded_verdict(record: Mapping[str, Any]) -> Judged:
    """Return what the judge said when the trial was run."""
    grader = record["grader"]
    criteria = {row["name"]: str(row["verdict"]) for row in grader.get("criteria") or ()}
    return Judged(str(record["conversation_id"]), grader["score"], bool(grader["passed"]), criteria)


def _cost(record: Mapping[str, Any], roles: Iterable[Role]) -> float | None:
    spent = record.get("spent") or {}
    known = [cost for role in roles if (cost := (spent.get(role) or {}).get("cost_usd")) is not None]
    return sum(known) if known else None


def draw(trials: Sequence[JudgedTrial], size: int, seed: int) -> list[JudgedTrial]:
    """Draw trials at random, every arm, cell and verdict in proportion; the same ones for the same seed.

    Only trials with a transcript and a known configuration can be judged again.
    """
    able = [trial for trial in trials if trial.record.get("transcript") and trial.cell.conf is not None]
    if size >= len(able):
        return able
    chance = random.Random(seed)
    keyed = [(_stratum(trial), chance.random(), trial) for trial in sorted(able, key=lambda one: one.conversation_id)]
    ordered = [trial for *_, trial in sorted(keyed, key=lambda row: row[:2])]
    start = chance.random()
    return [ordered[int((place + start) * len(ordered) / size)] for place in range(size)]


def _stratum(trial: JudgedTrial) -> tuple[str, str, bool]:
    return trial.cell.arm, trial.cell.name, bool(trial.record["grader"]["passed"])
