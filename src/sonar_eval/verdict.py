"""Reading what a judge wrote: a score, or a verdict per criterion, in whatever clothes it comes; nothing is guessed.

A score that may mean two things (8, of 10 or of 100?) is no score, and an answer that contradicts itself is none.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .rubric import Criterion, normal

TOLERANCE = 0.05
CONTRADICTION = 0.5
"""A stated score further than this from what the criteria beside it give contradicts them."""
_WRAPPERS = ("result", "verdict", "output", "response", "evaluation", "data", "judgment", "judgement", "assessment")
_SCORE_KEYS = ("score", "overall_score", "rating")
_REASON_KEYS = ("reasoning", "reason", "explanation", "rationale")
_CRITERIA_KEYS = ("criteria", "verdicts", "results", "criterion_verdicts")
_NAME_KEYS = ("name", "criterion")
_VERDICT_KEYS = ("verdict", "result", "status", "outcome", "passed")
_THINK = re.compile(r"<(/?)(?:think(?:ing)?|thoughts?|reasoning|reflection)(?:\s[^<>]*)?>", re.IGNORECASE)
_CUT_SCORE = re.compile(r"[\"']?score[\"']?\s*:\s*([\"']?)((?:[^,}\n\"']|,(?=\s*\d))+)\1", re.IGNORECASE)
_QUOTED_SCORE = re.compile(r"[\"']score[\"']\s*:\s*([\"']?)((?:[^,}\n\"']|,(?=\s*\d))+)\1", re.IGNORECASE)
_CUT_REASON = re.compile(r"[\"']?(?:reasoning|reason)[\"']?\s*:\s*[\"'](.*)", re.IGNORECASE | re.DOTALL)
_TRIED = 500
_SHOWN = 80
_FRACTION = re.compile(r"(-?[\d.]+)\s*(?:/|\bof\b|\bout of\b)\s*([\d.]+)", re.IGNORECASE)


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
    """Read a judge's answer: JSON, fenced or not, slightly damaged, or cut off in its reasoning.

    With `criteria` each of them must have a verdict; the score is then the weighted share of passed ones among
    those that the judge could tell, whatever score it states beside them.
    """
    text = (raw or "").strip()
    if not _is_sound(text):
        text = without_thinking(text).strip()
    if not text:
        return Reading(None, raw or "", "the judge said nothing outside its thinking")
    return _read_criteria(text, criteria) if criteria else _read_score(text)


def without_thinking(text: str) -> str:
    """Take reasoning blocks out, nested ones and one that never closes too.

    A block that only closes was opened by the prompt: everything before it is thinking.
    """
    kept, depth, place = [], 0, 0
    for tag in _THINK.finditer(text):
        if depth == 0:
            kept.append(text[place : tag.start()])
        if tag.group(1) and depth == 0:
            kept.clear()
        depth = max(depth - 1, 0) if tag.group(1) else depth + 1
        place = tag.end()
    if depth == 0:
        kept.append(text[place:])
    return "".join(kept)


def share_passed(criteria: Sequence[Criterion], results: Sequence[CriterionResult]) -> float | None:
    """Return the weighted share of passed criteria among those that the judge could tell; None without one."""
    told = passed = 0.0
    for criterion, result in zip(criteria, results, strict=True):
        told += criterion.weight if result.verdict is not CriterionVerdict.CANNOT_TELL else 0
        passed += criterion.weight if result.verdict is CriterionVerdict.PASSED else 0
    return passed / told if told else None


def _read_score(text: str) -> Reading:
    sound = list(_sound(text))
    found = [answer for body, _, _ in sound for answer in _unwrap(body)]
    if found:
        return _agreeing(found, _from_object(found[0]), _beside(text, sound))
    # An object that can be read to its end was not cut off: it just holds no verdict.
    whole = any(isinstance(body, dict) for body, _, _ in sound)
    for body in _repaired(text):
        found = _unwrap(body)
        if found:
            return _agreeing(found, _from_object(found[0]), text)
        whole = whole or isinstance(body, dict)
    cut = None if whole else _CUT_SCORE.search(text)
    if cut is None:
        return Reading(None, text, "no verdict in what the judge said")
    reason = _CUT_REASON.search(text)
    score = cut.group(2).strip()
    reading = _reading(score, reason.group(1).rstrip("\"'} \n`") if reason else "")
    return _agreeing([{"score": score}], reading, text)


def _agreeing(found: Sequence[Mapping[str, Any]], reading: Reading, beside: str) -> Reading:
    """Refuse a reading beside which the answer holds another one."""
    said = {repr(_number(_score_of(answer))) for answer in found}
    numbers = (_number(match.group(2)) for match in _QUOTED_SCORE.finditer(beside))
    said |= {repr(number) for number in numbers if number is not None}
    if len(said) > 1:
        return Reading(None, reading.reasoning, f"the answer contradicts itself: scores {', '.join(sorted(said))}")
    problem = _contradiction(reading.score, found[0]) if reading.problem is None else reading.problem
    return Reading(reading.score, reading.reasoning, problem)


def _contradiction(score: float | None, answer: Mapping[str, Any]) -> str | None:
    """Say that a score does not go with the verdicts on criteria that stand beside it."""
    words = [_WORDS.get(_word(value)) for _, value, _ in _rows(answer, ())]
    passed, failed = words.count(CriterionVerdict.PASSED), words.count(CriterionVerdict.FAILED)
    if score is None or not passed + failed or abs(score - passed / (passed + failed)) <= CONTRADICTION:
        return None
    return f"the answer contradicts itself: score {score:g} beside {passed} passed and {failed} failed criteria"


def _read_criteria(text: str, criteria: Sequence[Criterion]) -> Reading:
    names = [normal(criterion.name) for criterion in criteria]
    bodies = [body for body, _, _ in _sound(text)]
    if not any(_rows(body, names) for body in bodies):
        bodies = next(([body] for body in _repaired(text) if _rows(body, names)), [])
    rows = [row for body in bodies for row in _rows(body, names)]
    if not rows:
        return Reading(None, text, "no verdict on any criterion in what the judge said")
    results = []
    for criterion, name in zip(criteria, names, strict=True):
        said = {_word(value): reason for row, value, reason in reversed(rows) if row == name}
        if len({_WORDS.get(word, word) for word in said}) != 1 or not set(said) <= set(_WORDS):
            return Reading(None, text, f"criterion {criterion.name!r}: {_wrong(list(said))}")
        word, reason = list(said.items())[-1]
        results.append(CriterionResult(criterion.name, _WORDS[word], reason))
    return _with_score(criteria, tuple(results), [answer for body in bodies for answer in _answers(body)])


def _with_score(
    criteria: Sequence[Criterion], results: tuple[CriterionResult, ...], answers: Sequence[Mapping[str, Any]]
) -> Reading:
    reasoning = next((said for answer in answers if (said := _reason(answer))), "")
    score = share_passed(criteria, results)
    stated = [number for answer in answers if (number := _number(_score_of(answer))) is not None]
    wrong = [number for number in stated if score is not None and abs(number - score) > CONTRADICTION]
    if wrong or len(set(stated)) > 1:
        said = ", ".join(f"{number:g}" for number in stated)
        of_criteria = "none" if score is None else f"{score:g}"
        problem = f"the answer contradicts itself: score {said} stated, {of_criteria} by its own criteria"
        return Reading(None, reasoning, problem, results)
    return Reading(score, reasoning, None, results)


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
        return [_row(called, lowered)]
    inner = next((lowered[key] for key in _CRITERIA_KEYS if isinstance(lowered.get(key), list | dict)), None)
    if isinstance(inner, dict):
        return [_row(str(name), value) for name, value in inner.items()]
    if inner is not None:
        return _rows(inner, names)
    direct = [_row(str(name), value) for name, value in body.items() if normal(str(name)) in names]
    return direct or next((rows for key in _WRAPPERS if (rows := _rows(lowered.get(key), names))), [])


def _row(name: str, value: Any) -> tuple[str, Any, str]:
    if not isinstance(value, Mapping):
        return normal(name), value, ""
    lowered = _lowered(value)
    return normal(name), next((lowered[key] for key in _VERDICT_KEYS if key in lowered), None), _reason(lowered)


def _word(value: Any) -> str:
    return normal(str(value)).replace("’", "'").strip(" .!")


def _answers(body: Any) -> list[Mapping[str, Any]]:
    """List the objects of an answer that may state a score or a reasoning for the whole."""
    if isinstance(body, list):
        return [answer for entry in body for answer in _answers(entry)]
    if not isinstance(body, Mapping):
        return []
    lowered = _lowered(body)
    if any(isinstance(lowered.get(key), str) for key in _NAME_KEYS):
        return []
    return [lowered, *(answer for key in _WRAPPERS for answer in _answers(lowered.get(key)))]


def _sound(text: str) -> Iterator[tuple[Any, int, int]]:
    """Yield what parses as data, with its place, from each opening brace that is not inside such data already."""
    decoder = json.JSONDecoder(strict=False, object_pairs_hook=_object)
    end = 0
    for start in _openings(text):
        if start < end:
            continue
        try:
            body, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield body, start, end


def _is_sound(text: str) -> bool:
    """Tell whether the whole of it is data: tags within are words of the judge, and no thinking."""
    return next(((start, end) for _, start, end in _sound(text)), None) == (0, len(text))


def _repaired(text: str) -> Iterator[Any]:
    """Yield what parses once trailing commas are gone, or as a Python literal."""
    end = max(text.rfind("}"), text.rfind("]")) + 1
    for start in _openings(text):
        candidate = re.sub(r",\s*([}\]])", r"\1", text[start:end])
        for parse in (lambda source: json.loads(source, strict=False), ast.literal_eval):
            try:
                yield parse(candidate)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue


def _openings(text: str) -> list[int]:
    places = [place for place, character in enumerate(text) if character in "{["]
    # A model that runs wild writes nothing else; each place tried costs as much as the text is long.
    return places if len(places) <= 2 * _TRIED else places[:_TRIED] + places[-_TRIED:]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs; a key with two values has neither."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        made[key] = f"{made[key]} and {value}" if key in made and made[key] != value else value
    return made


def _beside(text: str, sound: Sequence[tuple[Any, int, int]]) -> str:
    """Return the text without what was parsed of it."""
    ends = [0, *(end for _, _, end in sound)]
    starts = [*(start for _, start, _ in sound), len(text)]
    return " ".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _unwrap(body: Any) -> list[dict[str, Any]]:
    """List the verdicts in parsed data: objects with a score, at the top, in a list or in a wrapper."""
    if isinstance(body, list):
        return [answer for entry in body for answer in _unwrap(entry)]
    if not isinstance(body, dict):
        return []
    lowered = _lowered(body)
    if any(key in lowered for key in _SCORE_KEYS):
        return [lowered]
    return next((found for key in _WRAPPERS if (found := _unwrap(lowered.get(key)))), [])


def _lowered(body: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).lower(): value for key, value in body.items()}


def _score_of(answer: Mapping[str, Any]) -> Any:
    return next((answer[key] for key in _SCORE_KEYS if key in answer), None)


def _reason(answer: Mapping[str, Any]) -> str:
    return next((str(answer[key]) for key in _REASON_KEYS if answer.get(key)), "")


def _from_object(found: Mapping[str, Any]) -> Reading:
    return _reading(_score_of(found), _reason(found))


def _reading(score: Any, reasoning: str) -> Reading:
    value = _number(score)
    if value is None or not math.isfinite(value):
        return Reading(None, reasoning, f"score {repr(score)[:_SHOWN]} is no number")
    if not -TOLERANCE <= value <= 1 + TOLERANCE:
        return Reading(value, reasoning, f"score {repr(score)[:_SHOWN]} lies outside 0..1 and names no scale")
    return Reading(value, reasoning)


def _number(score: Any) -> float | None:
    if isinstance(score, bool) or not isinstance(score, int | float | str):
        return None
    text = score.strip() if isinstance(score, str) else repr(score)
    fraction = _FRACTION.fullmatch(text)
    try:
        if fraction:
            return float(fraction.group(1)) / float(fraction.group(2))
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return float(text)
    except (ValueError, ZeroDivisionError):
        return None
