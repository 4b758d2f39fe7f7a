"""What people said of conversations, from a file or from MLflow."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..report import Label
from ..rubric import normal
from ..threshold import meets

_COLUMNS = ("conversation_id", "label", "criterion")
_PASS = frozenset({"pass", "passed", "true", "yes", "good", "1"})
_FAIL = frozenset({"fail", "failed", "false", "no", "bad", "0"})
_WHOLE = frozenset({"judge", "label", "pass", "passed", "verdict"})


@dataclass(frozen=True)
class Said:
    """One statement of a person; `value` is True, False, or a score from 0 to 1."""

    conversation_id: str
    value: bool | float
    criterion: str | None = None


def read_csv(path: Path) -> list[Said]:
    """Read rows of conversation_id, label and, where wanted, criterion; rows without a label wait for one.

    Raises `ConfigError` naming the line that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"--labels: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--labels: {path} is not UTF-8: {error.reason} at byte {error.start}") from error
    reader = csv.reader(text.splitlines())
    header = [name.strip().lower() for name in next(reader, [])]
    if not {"conversation_id", "label"} <= set(header) or not set(header) <= set(_COLUMNS):
        wanted = "conversation_id,label or conversation_id,label,criterion"
        raise ConfigError(f"--labels: {path}, line 1: expected {wanted}, got {','.join(header) or 'nothing'!r}")
    said: dict[tuple[str, str | None], tuple[int, Said]] = {}
    for row in reader:
        if one := _row(f"--labels: {path}, line {reader.line_num}", header, row):
            number, before = said.setdefault((one.conversation_id, one.criterion), (reader.line_num, one))
            if before.value != one.value:
                raise ConfigError(
                    f"--labels: {path}, line {reader.line_num}: {one.conversation_id} is labelled otherwise on "
                    f"line {number}; keep one of the two"
                )
    if not said:
        raise ConfigError(f"--labels: {path} has no labelled row")
    return [one for _, one in said.values()]


def _row(where: str, header: Sequence[str], row: Sequence[str]) -> Said | None:
    if not any(cell.strip() for cell in row):
        return None
    if len(row) != len(header):
        raise ConfigError(f"{where}: expected {len(header)} values ({','.join(header)}), got {len(row)}")
    cells = {name: cell.strip() for name, cell in zip(header, row, strict=True)}
    if not cells["conversation_id"]:
        raise ConfigError(f"{where}: conversation_id is empty")
    if not cells["label"]:
        return None
    value = read_value(cells["label"])
    if value is None:
        raise ConfigError(f"{where}: label must be pass or fail, or a score from 0 to 1, got {cells['label']!r}")
    return Said(cells["conversation_id"], value, cells.get("criterion") or None)


def read_value(value: object) -> bool | float | None:
    """Understand a label: a word, a truth value, or a score from 0 to 1; None when it is none of these."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _PASS:
        return True
    if text in _FAIL:
        return False
    try:
        score = float(text)
    except ValueError:
        return None
    if not math.isfinite(score) or not 0 <= score <= 1:
        return None
    return bool(score) if score in (0.0, 1.0) else score


def of_feedback(rows: Iterable[tuple[str, str, object]], criteria: Iterable[str]) -> tuple[list[Said], list[str]]:
    """Read feedback (conversation, name, value) as statements, and say what of it was not understood.

    Of the whole speak the names judge, label, pass, passed and verdict; of a criterion its own name, `judge/` before it
    or not. Where several people spoke, the majority counts, and a tie is no label.
    """
    known = {normal(name): name for name in criteria}
    said: dict[tuple[str, str | None], list[bool | float]] = {}
    notes: Counter[str] = Counter()
    for conversation_id, name, raw in rows:
        criterion = known.get(normal(name.removeprefix("judge/")))
        if criterion is None and name.strip().lower() not in _WHOLE:
            notes[f"feedback named {name!r} is about neither the whole nor a criterion"] += 1
            continue
        value = read_value(raw)
        if value is None:
            notes[f"feedback {raw!r} is neither pass nor fail nor a score from 0 to 1"] += 1
            continue
        said.setdefault((conversation_id, criterion), []).append(value)
    told = []
    for (conversation_id, criterion), values in said.items():
        one = _majority(values)
        if one is None:
            notes["people disagree evenly"] += 1
        else:
            told.append(Said(conversation_id, one, criterion))
    return told, [f"{note}: {count} left out" for note, count in notes.items()]


def _majority(values: Sequence[bool | float]) -> bool | float | None:
    if len(values) == 1:
        return values[0]
    # Of several scores the mean would be no person's; each counts as the side it is on.
    votes = sum(float(value) >= 0.5 for value in values)
    return None if 2 * votes == len(values) else 2 * votes > len(values)


def to_labels(said: Iterable[Said], thresholds: Mapping[str, float]) -> Iterator[Label]:
    """Turn statements on known conversations into labels; a score passes by the threshold of the judge's."""
    for one in said:
        if one.conversation_id in thresholds:
            passed = one.value if isinstance(one.value, bool) else meets(one.value, thresholds[one.conversation_id])
            yield Label(one.conversation_id, passed, one.criterion)
