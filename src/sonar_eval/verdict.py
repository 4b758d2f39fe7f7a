"""Reading what a judge wrote: a score, or a verdict per criterion, in whatever clothes it comes; nothing is guessed.

A score that may mean two things is none, and an answer that contradicts itself is none. What contradicts a score:
another score; criteria beside it whose share of passed lies more than `CONTRADICTION` away; "failed" beside a score of
`CLEARLY_PASSED` or more, "passed" beside one of `CLEARLY_FAILED` or less. "failed" beside 0.75 does not: where the bar
lies is for the threshold to say, and a judge that has one of its own in mind is still sure of its score.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum
from typing import Any

from .answer import Answer, Piece, put, read_answer
from .answer import without_thinking as without_thinking
from .rating import SCORE_KEYS, number, read_rating
from .rubric import Criterion, normal

CONTRADICTION = 0.5
"""A stated score further than this from what the criteria beside it give contradicts them."""
CLEARLY_PASSED = 0.9
CLEARLY_FAILED = 0.1
_WRAPPERS = ("result", "verdict", "output", "response", "evaluation", "data", "judgment", "judgement", "assessment")
_REASON_KEYS = ("reasoning", "reason", "explanation", "rationale")
_CRITERIA_KEYS = ("criteria", "verdicts", "results", "criterion_verdicts")
_NAME_KEYS = ("name", "criterion")
_VERDICT_KEYS = ("verdict", "result", "status", "outcome", "passed", "pass")
_FAILED_KEYS = ("failed", "fail")
_NUMBER = r"-?(?:\d+(?:[.,]\d+)*|\.\d+)(?:\s*%|\s*(?:/|of\b|out of\b)\s*\d+(?:\.\d+)?)?"
_MARKS = r"[\s\"'`*_]*"
_STATED_KEY = re.compile(rf"[\"'](?:{'|'.join(SCORE_KEYS)})[\"']\s*:\s*[\"']?({_NUMBER})", re.IGNORECASE)
_MENTIONED = re.compile(
    rf"(?P<kind>[^\W_]*)[\s\"'`*_(]+score\b{_MARKS}(?::|=|of\b|is\b){_MARKS}(?P<score>{_NUMBER})", re.IGNORECASE
)
_NO_VERDICT = {
    "passing",
    "pass",
    "perfect",
    "full",
    "maximum",
    "max",
    "minimum",
    "min",
    "threshold",
    "highest",
    "lowest",
}
"""Kinds of scores that are bounds, and say nothing of this conversation."""
_LABEL = rf"{_MARKS}(?:(?:my|the|final|overall|total)\s+)*"
_SCORE_LINE = re.compile(rf"{_LABEL}(?:score|rating){_MARKS}[:=]{_MARKS}(?P<score>{_NUMBER}){_MARKS}\.?", re.IGNORECASE)
_REASON_LINE = re.compile(
    rf"{_LABEL}(?:{'|'.join(_REASON_KEYS)}){_MARKS}[:=]{_MARKS}(?P<said>.*)", re.IGNORECASE | re.DOTALL
)


class CriterionVerdict(StrEnum):
    """What a judge says of one criterion."""

    PASSED = "passed"
    FAILED = "failed"
    CANNOT_TELL = "cannot_tell"
    """What was shown does not tell; counts neither for nor against the bot."""


_WORDS = {
    **dict.fromkeys(("passed", "pass", "met", "true"), CriterionVerdict.PASSED),
    **dict.fromkeys(("failed", "fail", "not met", "unmet", "false"), CriterionVerdict.FAILED),
    **dict.fromkeys(("cannot tell", "can not tell", "can't tell", "unknown", "unclear"), CriterionVerdict.CANNOT_TELL),
}


@dataclass(frozen=True)
class CriterionResult:
    """The verdict on one criterion, with the judge's reason."""

    name: str
    verdict: CriterionVerdict
    reason: str = ""


@dataclass(frozen=True)
class Reading:
    """What was understood: `score` as the judge meant it, not clamped, or None with the `problem`.

    Criteria of which the judge could tell none leave neither score nor problem.
    """

    score: float | None
    reasoning: str
    problem: str | None = None
    criteria: tuple[CriterionResult, ...] = ()


def read_verdict(raw: str | None, criteria: Sequence[Criterion] = ()) -> Reading:
    """Read a judge's answer: JSON, fenced or not, slightly damaged, or cut off in its reasoning; or lines of fields.

    With `criteria` each of them must have a verdict; the score is then the weighted share of passed ones among
    those that the judge could tell, whatever score it states beside them.
    """
    answer = read_answer((raw or "").strip())
    if answer.is_empty:
        return Reading(None, raw or "", "the judge said nothing outside its thinking")
    try:
        return _read_criteria(raw or "", answer, criteria) if criteria else _read_score(raw or "", answer)
    except RecursionError:
        return Reading(None, raw or "", "what the judge said is nested too deeply")


def share_passed(criteria: Sequence[Criterion], results: Sequence[CriterionResult]) -> float | None:
    """Return the weighted share of passed criteria among those that the judge could tell; None without one."""
    pairs = list(zip(criteria, results, strict=True))
    told = fsum(row.weight for row, result in pairs if result.verdict is not CriterionVerdict.CANNOT_TELL)
    return (
        fsum(row.weight for row, result in pairs if result.verdict is CriterionVerdict.PASSED) / told if told else None
    )


def _read_score(raw: str, answer: Answer) -> Reading:
    verdicts = [piece for piece in answer.pieces if _states_score(piece)]
    if not verdicts and not any(isinstance(piece.body, dict) for piece in answer.pieces):
        return _read_fields(raw, answer)
    if not verdicts:
        # Data that holds no verdict is an answer without one, whatever the words beside it are.
        return Reading(None, raw, "no verdict in what the judge said")
    levels = [level for piece in verdicts for level in _levels(piece.body)]
    reasoning = next((said for level in levels if (said := _reason(level))), "")
    rating = read_rating(levels)
    if rating.problem is not None or rating.value is None:
        return Reading(rating.value, reasoning, rating.problem)
    if all(piece.quoted for piece in verdicts):
        return Reading(None, reasoning, "the only verdict is quoted in the midst of a sentence")
    rows = [row for piece in verdicts for row in _rows(piece.body, ())]
    problem = (
        _other_scores(rating.value, answer)
        or _contradiction(rating.value, rows)
        or _clash(rating.value, [word for level in levels for word in _said_of_whole(level)])
    )
    return Reading(None if problem else rating.value, reasoning, problem)


def _states_score(piece: Piece) -> bool:
    """Tell whether data states a score; a form with a blank in it, as it was asked for, states none."""
    stated = [level[key] for level in _levels(piece.body) for key in SCORE_KEYS if key in level]
    return any(piece.sound or number(score) is not None or score is None for score in stated)


def _read_fields(raw: str, answer: Answer) -> Reading:
    """Read an answer in lines, "Score: …" and "Reasoning: …", and nothing else; anybody may be quoted in mere prose."""
    first, _, rest = answer.text.partition("\n")
    start, _, last = answer.text.rpartition("\n")
    found = _SCORE_LINE.fullmatch(first.strip())
    reason = _REASON_LINE.match(rest.strip())
    if found is None or (reason is None and rest.strip()):
        found, reason = _SCORE_LINE.fullmatch(last.strip()), _REASON_LINE.match(start.strip())
        if reason is None or start.rstrip().endswith(":"):
            found = None
    value = number(found.group("score")) if found else None
    if found is None or value is None:
        return Reading(None, raw, "no verdict in what the judge said")
    said = reason.group("said").strip() if reason else ""
    rating = read_rating([{"score": found.group("score")}])
    problem = rating.problem or _other_scores(value, answer)
    return Reading(None if problem else rating.value, said, problem)


def _other_scores(score: float, answer: Answer) -> str | None:
    """Say that another score is stated beside the one that was read."""
    beside = [*answer.words, *(piece.rest for piece in answer.pieces)]
    said = [found.group(1) for text in beside for found in _STATED_KEY.finditer(text)]
    for words in answer.words:
        found = _MENTIONED.finditer(f" {words}")
        said += [one.group("score") for one in found if one.group("kind").lower() not in _NO_VERDICT]
    other = next((one for one in said if number(one) != score), None)
    return f"the answer contradicts itself: scores {score:g} and {other}" if other is not None else None


def _contradiction(score: float, rows: Sequence[tuple[str, Any, str]]) -> str | None:
    """Say that a score does not go with the verdicts on criteria that stand beside it."""
    words = [_WORDS.get(_word(value)) for _, value, _ in rows]
    passed, failed = words.count(CriterionVerdict.PASSED), words.count(CriterionVerdict.FAILED)
    if not passed + failed or abs(score - passed / (passed + failed)) <= CONTRADICTION:
        return None
    return f"the answer contradicts itself: score {score:g} beside {passed} passed and {failed} failed criteria"


def _said_of_whole(level: Mapping[str, Any], names: Sequence[str] = ()) -> Iterator[CriterionVerdict]:
    """List the verdicts in words on the whole; a key that is a criterion's name speaks of that one."""
    for key in (*_VERDICT_KEYS, *_FAILED_KEYS):
        word = _WORDS.get(_word(level.get(key)))
        if word is not None and key not in names:
            yield _opposite(word) if key in _FAILED_KEYS else word


def _opposite(word: CriterionVerdict) -> CriterionVerdict:
    turned = {CriterionVerdict.PASSED: CriterionVerdict.FAILED, CriterionVerdict.FAILED: CriterionVerdict.PASSED}
    return turned.get(word, word)


def _clash(score: float | None, words: Sequence[CriterionVerdict]) -> str | None:
    """Say that a score does not go with the words beside it, or these with one another."""
    fits = {
        CriterionVerdict.PASSED: score is None or score > CLEARLY_FAILED,
        CriterionVerdict.FAILED: score is None or score < CLEARLY_PASSED,
        CriterionVerdict.CANNOT_TELL: score is None,
    }
    if len(set(words)) <= 1 and all(fits[word] for word in words):
        return None
    said = ", ".join(dict.fromkeys(words))
    return f"the answer contradicts itself: {said}" + ("" if score is None else f" beside score {score:g}")


def _read_criteria(raw: str, answer: Answer, criteria: Sequence[Criterion]) -> Reading:
    names = [normal(criterion.name) for criterion in criteria]
    pieces = [piece for piece in answer.pieces if _rows(piece.body, names)]
    rows = [row for piece in pieces for row in _rows(piece.body, names)]
    if not rows:
        return Reading(None, raw, "no verdict on any criterion in what the judge said")
    if all(piece.quoted for piece in pieces):
        return Reading(None, raw, "the only verdict is quoted in the midst of a sentence")
    results = []
    for criterion, name in zip(criteria, names, strict=True):
        said = {_word(value): reason for row, value, reason in reversed(rows) if row == name}
        if len({_WORDS.get(word, word) for word in said}) != 1 or not set(said) <= set(_WORDS):
            return Reading(None, raw, f"criterion {criterion.name!r}: {_wrong(list(said))}")
        word, reason = list(said.items())[-1]
        results.append(CriterionResult(criterion.name, _WORDS[word], reason))
    levels = [level for piece in answer.pieces for level in _levels(piece.body)]
    return _with_score(criteria, tuple(results), levels)


def _with_score(
    criteria: Sequence[Criterion], results: tuple[CriterionResult, ...], levels: Sequence[Mapping[str, Any]]
) -> Reading:
    reasoning = next((said for level in levels if (said := _reason(level))), "")
    score = share_passed(criteria, results)
    names = [normal(criterion.name) for criterion in criteria]
    levels = [{key: value for key, value in level.items() if normal(key) not in names} for level in levels]
    stated = read_rating(levels)
    of_criteria = "none" if score is None else f"{score:g}"
    problem = _clash(score, [word for level in levels for word in _said_of_whole(level)])
    if stated.value is not None and score is not None and abs(stated.value - score) > CONTRADICTION:
        problem = f"the answer contradicts itself: score {stated.value:g} stated, {of_criteria} by its own criteria"
    elif stated.problem is not None and any(key in level for level in levels for key in SCORE_KEYS):
        problem = f"{stated.problem}; {of_criteria} by its own criteria" if "contradicts" in stated.problem else problem
    return Reading(None if problem else score, reasoning, problem, results)


def _wrong(words: Sequence[str]) -> str:
    if not words:
        return "the judge gave no verdict on it"
    if len(words) > 1:
        return f"the answer contradicts itself: {', '.join(words)}"
    return f"verdict {words[0]!r} is none of {', '.join(CriterionVerdict)}"


def _rows(body: Any, names: Sequence[str]) -> list[tuple[str, Any, str]]:
    """List name, verdict and reason of each criterion that an answer speaks of."""
    if isinstance(body, list):
        return [row for entry in body for row in _rows(entry, names)]
    if not isinstance(body, Mapping):
        return []
    lowered = _lowered(body)
    called = next((lowered[key] for key in _NAME_KEYS if isinstance(lowered.get(key), str)), None)
    if called is not None:
        return _rows_of(called, lowered)
    inner = next((lowered[key] for key in _CRITERIA_KEYS if isinstance(lowered.get(key), list | dict)), None)
    if isinstance(inner, dict):
        return [row for name, value in inner.items() for row in _rows_of(str(name), value)]
    if inner is not None:
        return _rows(inner, names)
    direct = [row for name, value in body.items() if normal(str(name)) in names for row in _rows_of(str(name), value)]
    return direct or [row for key in _WRAPPERS for row in _rows(lowered.get(key), names)]


def _rows_of(name: str, value: Any) -> list[tuple[str, Any, str]]:
    """List what is said of one criterion: one verdict, or each of several that contradict one another."""
    if not isinstance(value, Mapping):
        return [(normal(name), value, "")]
    lowered = _lowered(value)
    reason = _reason(lowered)
    words = list(dict.fromkeys(_said_of_whole(lowered)))
    if words:
        first = next((_word(lowered[key]) for key in _VERDICT_KEYS if key in lowered), None)
        # A word that is none is as bad as another verdict, where it stands first.
        said: list[Any] = [first] if first is not None and first not in _WORDS else []
        return [(normal(name), word, reason) for word in [*said, *words]]
    return [(normal(name), next((lowered[key] for key in _VERDICT_KEYS if key in lowered), None), reason)]


def _word(value: Any) -> str:
    return normal(str(value)).replace("’", "'").strip(" .!")


def _levels(body: Any) -> list[Mapping[str, Any]]:
    """List the objects of an answer that may state a score, a verdict or a reasoning for the whole."""
    if isinstance(body, list):
        return [level for entry in body for level in _levels(entry)]
    if not isinstance(body, Mapping):
        return []
    lowered = _lowered(body)
    if any(isinstance(lowered.get(key), str) for key in _NAME_KEYS):
        return []
    return [lowered, *(level for key in _WRAPPERS for level in _levels(lowered.get(key)))]


def _lowered(body: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in body.items():
        put(made, str(key).lower(), value)
    return made


def _reason(answer: Mapping[str, Any]) -> str:
    return next((str(answer[key]) for key in _REASON_KEYS if answer.get(key)), "")
