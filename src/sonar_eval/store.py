"""Keeping records: each is on disk before the next step begins."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

TRIALS_FILE = "trials.jsonl"
SCENARIOS_FILE = "scenarios.jsonl"


class ResultStore(Protocol):
    """Take the records of finished trials and scenarios."""

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

    A line is written whole and synced to the disk before the call returns. Safe to use from threads.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._lock = threading.Lock()

    def save_trial(self, record: dict[str, Any]) -> None:
        """Append to `trials.jsonl`."""
        self._append(TRIALS_FILE, record)

    def save_scenario(self, record: dict[str, Any]) -> None:
        """Append to `scenarios.jsonl`."""
        self._append(SCENARIOS_FILE, record)

    def _append(self, filename: str, record: dict[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"
        with self._lock:
            self._directory.mkdir(parents=True, exist_ok=True)
            with (self._directory / filename).open("a+b") as file:
                # What a crash left of a line must not spoil this one.
                file.write(line if _at_line_start(file) else b"\n" + line)
                file.flush()
                os.fsync(file.fileno())


def _at_line_start(file: BinaryIO) -> bool:
    if file.tell() == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Read the records of one file; a line cut off by a crash is left out."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            yield record
