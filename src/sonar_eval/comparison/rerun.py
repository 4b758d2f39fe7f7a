"""Running the sweep behind an arm once more, on fresh trials."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError
from ..report import Arm
from .arms import SourcedArm, load_arms

SEED_STEP = 1_000_003
_SEED = "task.seed="
_FOLDER = "hydra.sweep.dir="


def fresh_command(command: Sequence[str], folder: Path) -> list[str]:
    """Write the command line of a sweep once more, with another seed and folder."""
    seeds = [part.partition("=")[2] for part in command if part.lstrip("+").startswith(_SEED)]
    seed = int(seeds[-1]) if seeds and re.fullmatch(r"\d+", seeds[-1]) else 0
    kept = [part for part in command if not part.lstrip("+").startswith((_SEED, _FOLDER))]
    quoted = re.sub(r"(['\\])", r"\\\1", str(folder))
    return [*kept, f"{_SEED}{seed + SEED_STEP}", f"{_FOLDER}'{quoted}'"]


def run_again(arms: Sequence[SourcedArm], folder: Path) -> list[Arm]:
    """Run the sweeps behind `arms` once more, each one once, and load the same parts of them.

    Raises `ConfigError` when an arm does not say how it was run, or when a sweep leaves nothing.
    """
    places: dict[str, Path] = {}
    for one in arms:
        place = one.source.place
        if one.source.command is None:
            raise ConfigError(f"{place} does not say how it was run (no sweep.json with its command)")
        if place not in places:
            places[place] = folder / f"fresh-{len(places) + 1}"
            _run(one.source.command, places[place].resolve())
    return [load_arms([one.source.again(str(places[one.source.place]))])[0].arm for one in arms]


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sonar_eval.sweep", *fresh_command(command, folder)], stdout=sys.stderr, check=False
    )
    if done.returncode not in (0, 1):
        raise ConfigError(f"the sweep could not be run again: it ended with status {done.returncode}")
