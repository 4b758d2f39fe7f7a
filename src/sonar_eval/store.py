"""Keeping records: each is on disk before the next step begins."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson

from .errors import ConfigError
from .records import read_trial
from .results import TrialResult

TRIALS_FILE = "trials.jsonl"
SCENARIOS_FILE = "scenarios.jsonl"
RESULT_FILE = "result.json"
"""What became of one cell of a sweep, in its folder."""
SWEEP_FILE = "sweep.json"
"""What a sweep knows of itself, in the folder above its cells."""
# What has no JSON of its own becomes text, whichever of the two writers meets it.
_AS_JSON_DOES = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


class ResultStore(Protocol):
    """Take the records of finished trials and scenarios, from one thread at a time and never on an event loop.

    A store may also have `together()`, a context manager: what is saved within need be safe only when it ends.
    """

    def save_trial(self, record: dict[str, Any]) -> None:
        """Keep one trial."""
        ...

    def save_scenario(self, record: dict[str, Any]) -> None:
        """Keep one scenario."""
        ...


class NullStore:
    """Keep nothing."""

    def save_trial(self, record: dict[str, Any]) -> None:
        """Let the record go."""

    def save_scenario(self, record: dict[str, Any]) -> None:
        """Let the record go."""


class JSONFileStore:
    """Append records to `trials.jsonl` and `scenarios.jsonl` in `directory`, one JSON object a line.

    A line is written whole and synced to the disk before the call returns. Safe to use from threads. Raises
    `OSError` for a folder that cannot be made: at once, and not after the first trial was paid for.
    """

    def __init__(self, directory: str | Path) -> None:
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._trials = _RecordFile(folder / TRIALS_FILE)
        self._scenarios = _RecordFile(folder / SCENARIOS_FILE)
        self._thread = threading.local()

    def save_trial(self, record: dict[str, Any]) -> None:
        """Append to `trials.jsonl`."""
        self._append(self._trials, record)

    def save_scenario(self, record: dict[str, Any]) -> None:
        """Append to `scenarios.jsonl`."""
        self._append(self._scenarios, record)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Sync what this thread saves within the block once, when the block ends."""
        self._thread.defers = True
        try:
            yield
        finally:
            self._thread.defers = False
            self._trials.sync()
            self._scenarios.sync()

    def _append(self, file: _RecordFile, record: dict[str, Any]) -> None:
        file.append(record)
        if not getattr(self._thread, "defers", False):
            file.sync()


class _RecordFile:
    """One file that only grows; of many who append at once, one syncs for all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._write_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._written = self._synced = 0

    def append(self, record: dict[str, Any]) -> None:
        line = _line(record)
        with self._write_lock:
            with self._open() as file:
                # What a crash left of a line must not spoil this one.
                file.write(line if _at_line_start(file) else b"\n" + line)
            self._written += 1

    def _open(self) -> BinaryIO:
        try:
            return self._path.open("a+b")
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return self._path.open("a+b")

    def sync(self) -> None:
        """Return once all that was appended before is on the disk."""
        reached = self._written
        with self._sync_lock:
            if self._synced >= reached:
                return
            reached = self._written
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
            self._synced = reached


def _line(record: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(record, default=_plain, option=_AS_JSON_DOES | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # Integers beyond 64 bits, half characters, or keys that are no text.
        return json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def _plain(value: Any) -> Any:
    """Write what orjson leaves to us as the standard library does: numpy's numbers are floats, named tuples lists."""
    if isinstance(value, float):
        return float(value)
    return list(value) if isinstance(value, tuple) else str(value)


def _at_line_start(file: BinaryIO) -> bool:
    if file.tell() == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Read the records of one file; a line cut off by a crash is left out."""
    for _, record in _numbered(path):
        yield record


def asked_for(records: Iterable[dict[str, Any]], asked: int) -> list[dict[str, Any]]:
    """Leave out the records of trials beyond the number that was asked for last; 0 asks for all there are."""
    return [record for record in records if not asked or record["index"] < asked]


def _numbered(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield number, record


def finished_trials(folder: str | Path) -> dict[str, list[TrialResult]]:
    """Read the trials that a `JSONFileStore` kept in `folder`, by scenario and in trial order, to go on from.

    Of several records of one trial the last holds; a line cut off by a crash is left out, and a folder without
    records holds no trials. Raises `ConfigError` naming the line for a record that cannot be read whole.
    """
    found: dict[str, dict[int, TrialResult]] = {}
    path = Path(folder) / TRIALS_FILE
    for number, record in _numbered(path):
        try:
            scenario, trial = str(record["scenario"]), read_trial(record)
        except (ValueError, KeyError, TypeError) as error:
            reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigError(
                f"{path}, line {number}: {reason}; name another folder, or move this file away to start anew"
            ) from error
        trial.pack()
        found.setdefault(scenario, {})[trial.index] = trial
    return {scenario: [trials[index] for index in sorted(trials)] for scenario, trials in found.items()}
