"""One check of a judge, from the runs it judged to what is known of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..report import JudgeCheck, Label, check_judge
from ..sweep.schema import SweepConf
from .cells import JudgedTrial, draw, journal_folder, load_trials
from .judges import judged_by, second_grader
from .labels import of_feedback, read_csv, to_labels
from .verdicts import ROUNDS, SUMMARY_FILE, Journal, Question, ask_all, questions

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What is to be checked, and by what."""

    places: Sequence[str]
    tracking_uri: str
    sample: int = 50
    second: str | None = None
    labels: Path | None = None
    feedback: bool = False
    seed: int = 0
    concurrency: int = 4


def run_check(settings: Settings, tell: Tell) -> JudgeCheck:
    """Check a judge, and keep what was found beside the runs; raises `ConfigError` before a judge is asked in vain."""
    trials = load_trials(settings.places, settings.tracking_uri)
    other = second_grader(settings.second) if settings.second else None
    labels, notes = _labels(settings, trials)
    sample = draw(trials, settings.sample, settings.seed)
    if not sample:
        raise ConfigError(
            "no judged trial can be judged again: that takes its transcript and the configuration of its cell "
            "(.hydra/config.yaml or config.json)"
        )
    for note in notes:
        tell(f"note: {note}")
    asked = questions(sample, lambda trial: judged_by(_conf(trial)), "configured")
    if other is not None:
        asked += questions(sample, lambda trial: judged_by(_conf(trial), other), "second")
    journal = Journal.open(journal_folder(settings.places[0]))
    _announce(asked, journal, len(sample), tell)
    verdicts = asyncio.run(ask_all(asked, journal, concurrency=settings.concurrency))
    rounds = [
        {
            question.trial.conversation_id: verdicts[question.key]
            for question in asked
            if question.role == "configured" and question.round_number == place
        }
        for place in range(ROUNDS)
    ]
    second = {question.trial.conversation_id: verdicts[question.key] for question in asked if question.role == "second"}
    found = check_judge(
        ", ".join(dict.fromkeys(question.judge.name for question in asked if question.role == "configured")),
        [trial.seen for trial in trials],
        rounds,
        repeats=max(question.judge.repeats for question in asked if question.role == "configured"),
        second=(settings.second, second) if settings.second else None,
        labels=labels,
    )
    _keep(settings.places, found)
    return found


def _conf(trial: JudgedTrial) -> SweepConf:
    assert trial.cell.conf is not None
    return trial.cell.conf


def _announce(asked: Sequence[Question], journal: Journal, size: int, tell: Tell) -> None:
    """Say how often a model will be called, and find out before that whether the judges can be made."""
    open_ones = [question for question in asked if question.key not in journal.known]
    for judge in {question.judge.digest: question.judge for question in open_ones}.values():
        judge.grader(0)
    calls = sum(question.judge.repeats for question in open_ones)
    known = len(asked) - len(open_ones)
    kept = f"; {known} verdicts are known from before" if known else ""
    tell(f"{calls} judge calls for {len(open_ones)} verdicts on {size} trials{kept}")


def _labels(settings: Settings, trials: Sequence[JudgedTrial]) -> tuple[list[Label], list[str]]:
    thresholds = {
        trial.conversation_id: trial.cell.conf.grader.threshold if trial.cell.conf else 0.5 for trial in trials
    }
    criteria = {name for trial in trials for name in trial.seen.verdict.criteria}
    said = read_csv(settings.labels) if settings.labels is not None else []
    notes: list[str] = []
    if settings.feedback:
        from ..tracking.feedback import human_feedback

        rows = [(row.conversation_id, row.name, row.value) for row in human_feedback(settings.tracking_uri, thresholds)]
        told, notes = of_feedback(rows, criteria)
        in_file = {(one.conversation_id, one.criterion) for one in said}
        said = [*said, *(one for one in told if (one.conversation_id, one.criterion) not in in_file)]
        if not told:
            notes.append(f"no feedback of people on these conversations in {settings.tracking_uri}")
    labels = list(to_labels(said, thresholds))
    unknown = len(said) - len(labels)
    if unknown and not labels:
        raise ConfigError(f"none of the {unknown} labelled conversations is among these {len(trials)} judged trials")
    if unknown:
        notes.append(f"labels about conversations that are not among these judged trials: {unknown}")
    strange = sorted({label.criterion for label in labels if label.criterion is not None} - criteria)
    if strange:
        known = ", ".join(sorted(criteria)) or "none (the rubric is a text)"
        raise ConfigError(f"--labels: unknown criterion {', '.join(map(repr, strange))}; the rubric's: {known}")
    return labels, notes


def _keep(places: Sequence[str], found: JudgeCheck) -> None:
    """Write a summary beside each of the runs: a comparison of them looks for it."""
    text = json.dumps(found.to_dict(), ensure_ascii=False, indent=1)
    for place in places:
        path = journal_folder(place) / SUMMARY_FILE
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
