"""Going on with an earlier sweep: what of it holds, what is missing, and why."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..results import Outcome
from ..store import RESULT_FILE, SWEEP_FILE, TRIALS_FILE, read_jsonl
from .grid import PlannedCell
from .key import changed_parts

STOP_FILE = "stopped"


@dataclass(frozen=True)
class Standing:
    """What of one cell is there already."""

    cell: PlannedCell
    finished: bool
    """Whether nothing is left to do."""
    words: str


def read_sweep(folder: Path) -> dict[str, Any]:
    """Read what a sweep wrote about itself; raises `ConfigError` for a folder that holds none."""
    path = folder / SWEEP_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        said = f"{folder} holds no sweep: expected {SWEEP_FILE} in it; name the folder a sweep printed"
        raise ConfigError(said) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("command"), list):
        raise ConfigError(f"{path} names no command; it was written by something else")
    return found


def write_json(path: Path, value: Any) -> None:
    """Write a whole file or none: a reader never finds half of one, and a full disk leaves the old one."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1, default=str)
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def standings(folder: Path, cells: Iterable[PlannedCell], earlier: Iterable[Mapping[str, Any]]) -> list[Standing]:
    """Say of each cell what of it is found in `folder`; `earlier` are the cells planned there before."""
    known = {str(row["name"]): row for row in earlier}
    return [_standing(folder, cell, known.get(cell.name)) for cell in cells]


def _standing(folder: Path, cell: PlannedCell, before: Mapping[str, Any] | None) -> Standing:
    counted, errored = _trials(folder / cell.key, cell.trials)
    left = cell.trials - counted
    if not counted and not errored:
        if before is not None and before["key"] != cell.key:
            changed = ", ".join(changed_parts(before["parts"], cell.parts))
            return Standing(cell, False, f"changed: {changed}; {cell.trials} to run")
        return Standing(cell, False, f"none found, {cell.trials} to run")
    if left:
        again = f" ({errored} errored, tried again)" if errored else ""
        return Standing(cell, False, f"{counted} of {cell.trials} found, {left} to run{again}")
    summed_up = _summed_up(folder / cell.key, cell.trials)
    return Standing(cell, summed_up, f"kept {counted} of {cell.trials}{'' if summed_up else ', to be summed up again'}")


def passed_over(cells: Iterable[PlannedCell], earlier: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """List the rows of an earlier plan that are not among `cells`, nor replaced by one of them that changed."""
    found = list(cells)
    keys, names = {cell.key for cell in found}, {cell.name for cell in found}
    return [row for row in earlier if row["key"] not in keys and row["name"] not in names]


def unfinished(folder: Path, rows: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """List the rows of a plan whose cells lack something, each with the number of trials that count."""
    counted = [(row, _trials(folder / row["key"], int(row["trials"]))[0]) for row in rows]
    return [
        (row, count)
        for row, count in counted
        if count < int(row["trials"]) or not _summed_up(folder / row["key"], int(row["trials"]))
    ]


def choices_again(rows: Iterable[Mapping[str, Any]], cells: Iterable[PlannedCell]) -> list[str]:
    """Write the overrides by which the cells of `rows` are asked for, where those of `cells` do not do so already."""
    now = [_chosen(cell.choices, cell.overrides) for cell in cells]
    wanted: dict[str, dict[str, None]] = {}
    for row in rows:
        for key, value in _chosen(row["choices"], row.get("overrides", ())).items():
            wanted.setdefault(key, {})[value] = None
    given = {key: {chosen.get(key) for chosen in now} for key in wanted}
    return [f"{key}={','.join(values)}" for key, values in wanted.items() if not values.keys() <= given[key]]


def _chosen(choices: Mapping[str, str], overrides: Iterable[str]) -> dict[str, str]:
    """Return what makes a cell: the choices of its groups, and what else was given for it."""
    lines = [line for line in overrides if not line.lstrip("+").startswith(("hydra.", "tracking"))]
    return {**choices, **{line.partition("=")[0]: line.partition("=")[2] for line in lines}}


def _trials(folder: Path, k: int) -> tuple[int, int]:
    """Count the trials that say something about the bot, and the others; of several records the last holds."""
    outcomes = {record.get("index"): record.get("outcome") for record in read_jsonl(folder / TRIALS_FILE)}
    asked = [outcomes[index] for index in range(k) if index in outcomes]
    errored = sum(outcome == Outcome.ERRORED for outcome in asked)
    return len(asked) - errored, errored


def _summed_up(folder: Path, k: int) -> bool:
    """Tell whether the cell's result is that of its k trials, and nothing went wrong after them."""
    try:
        result = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(result["error"] is None and result["report"] and result["report"]["asked"] == k)
