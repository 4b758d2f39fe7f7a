"""Asking judges, each verdict on disk before the next is asked for."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BoundaryError, ConfigError
from ..grader import Grader
from ..records import SCHEMA_VERSION, read_trial
from ..report import Judged
from ..store import read_jsonl
from .cells import JudgedTrial
from .judges import Judge

VERDICTS_FILE = "judge-check.jsonl"
SUMMARY_FILE = "judge-check.json"
ROUNDS = 2
_GIVE_UP = 5
"""A judge that fails so many times in a row is not asked any more."""
Key = tuple[str, str, str, int]


@dataclass(frozen=True)
class Question:
    """One verdict that is wanted: on what, by whom, for the how manieth time."""

    trial: JudgedTrial
    judge: Judge
    role: str
    """configured or second."""
    round_number: int

    @property
    def key(self) -> Key:
        """What answers it: verdicts of another judge, or by another rubric, do not."""
        return self.trial.conversation_id, self.judge.digest, self.role, self.round_number


@dataclass
class Journal:
    """Verdicts on disk, one a line; a check that was interrupted goes on from them."""

    folder: Path
    known: dict[Key, Judged] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> Journal:
        """Read what is there already; raises `ConfigError` when it cannot be added to."""
        path = folder / VERDICTS_FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                # What a crash left of a line must not spoil the next one.
                file.write("\n" if _is_cut_off(path) else "")
            journal = cls(folder)
            for row in read_jsonl(path):
                if row.get("schema_version") == SCHEMA_VERSION and row.get("score") is not None:
                    journal.known[row["conversation_id"], row["digest"], row["role"], row["round"]] = _read(row)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
        return journal

    def keep(self, question: Question, row: Mapping[str, Any]) -> Judged:
        """Write one verdict down."""
        conversation_id, digest, role, round_number = question.key
        whole = {
            "schema_version": SCHEMA_VERSION,
            "conversation_id": conversation_id,
            "arm": question.trial.cell.arm,
            "cell": question.trial.cell.name,
            "judge": question.judge.name,
            "role": role,
            "digest": digest,
            "round": round_number,
            **row,
        }
        with (self.folder / VERDICTS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(whole, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.known[question.key] = verdict = _read(whole)
        return verdict


def _is_cut_off(path: Path) -> bool:
    text = path.read_bytes()
    return bool(text) and not text.endswith(b"\n")


def _read(row: Mapping[str, Any]) -> Judged:
    return Judged(
        row["conversation_id"], row["score"], bool(row["passed"]), row.get("criteria") or {}, row.get("error")
    )


def questions(sample: Sequence[JudgedTrial], judge: Callable[[JudgedTrial], Judge], role: str) -> list[Question]:
    """List what a judge is to be asked: the configured one twice, another one once."""
    rounds = ROUNDS if role == "configured" else 1
    return [Question(trial, judge(trial), role, place) for place in range(rounds) for trial in sample]


async def ask_all(asked: Sequence[Question], journal: Journal, *, concurrency: int) -> dict[Key, Judged]:
    """Ask what the journal does not know yet; returns the verdicts on all that was asked, by key.

    A judge that gave no verdict is written down as such, and asked again the next time. Raises `ConfigError` when the
    judge fails again and again.
    """
    places, failures, graders = asyncio.Semaphore(concurrency), _Failures(), _Graders()
    verdicts = dict(journal.known)

    async def one(question: Question) -> None:
        async with places:
            if failures.given_up is None:
                row, failure = await _answer(question, graders)
                failures.note(failure)
                verdicts[question.key] = journal.keep(question, row)

    async with asyncio.TaskGroup() as group:
        for question in asked:
            if question.key not in verdicts:
                group.create_task(one(question))
    if failures.given_up is not None:
        raise ConfigError(
            f"the judge failed {_GIVE_UP} times in a row: {failures.given_up}; what it said before is kept in "
            f"{journal.folder / VERDICTS_FILE}, and the same command goes on from there"
        )
    return verdicts


@dataclass
class _Failures:
    """How often the judge failed in a row, and with what it was given up."""

    in_a_row: int = 0
    given_up: BoundaryError | None = None

    def note(self, failure: BoundaryError | None) -> None:
        self.in_a_row = self.in_a_row + 1 if failure is not None else 0
        if self.in_a_row >= _GIVE_UP and self.given_up is None:
            self.given_up = failure


class _Graders:
    """One grader for all questions that it can answer: what it learns of its provider then holds for all."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], Grader] = {}

    def of(self, question: Question) -> Grader:
        key = question.judge.digest, question.round_number
        if key not in self._made:
            self._made[key] = question.judge.grader(question.round_number)
        return self._made[key]


async def _answer(question: Question, graders: _Graders) -> tuple[dict[str, Any], BoundaryError | None]:
    trial = read_trial(dict(question.trial.record))
    assert trial.transcript is not None
    try:
        result = await graders.of(question).grade(trial.transcript, trial.log)
    except BoundaryError as failure:
        return {"score": None, "passed": False, "criteria": {}, "error": str(failure)[:500]}, failure
    criteria = {row.name: row.verdict.value for row in result.criteria}
    row = {"score": result.score, "passed": result.passed, "criteria": criteria, "error": result.error}
    return {**row, "said": result.reasoning[:300]} if result.error else row, None
