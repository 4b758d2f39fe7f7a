"""What an earlier check of the judge tells of its noise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

CHECK_FILE = "judge-check.json"


def checked_variance(places: Iterable[str]) -> float | None:
    """Return how much a score varies by the judge alone, by the newest check beside the runs; None without one."""
    found = sorted({path for place in places for path in _checks(place)}, key=lambda path: path.stat().st_mtime)
    for path in reversed(found):
        variance = _variance(path)
        if variance is not None:
            return variance
    return None


def _checks(place: str) -> Iterator[Path]:
    """Yield the checks of a sweep, of a cell, of the sweep around a cell, or of an MLflow run."""
    folder = Path(place)
    if not folder.is_dir():
        folders = [Path("judge-checks") / place]
    else:
        folders = [folder, *folder.glob("*/")]
        if (folder / "result.json").is_file():
            folders.append(folder.resolve().parent)
    yield from (path for each in folders if (path := each / CHECK_FILE).is_file())


def _variance(path: Path) -> float | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))["itself"]["judge_variance"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(value) if isinstance(value, int | float) else None
