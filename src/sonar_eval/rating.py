"""A score with the scale that it states; one that may mean two things (8, of 10 or of 100?) is none."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOLERANCE = 0.05
SCORE_KEYS = ("score", "overall_score", "final_score", "total_score", "rating", "overall_rating")
_MAX_KEYS = (
    *("max", "maximum", "max_score", "maximum_score", "max_possible_score", "score_max", "max_rating"),
    *("max_points", "scale_max", "out_of", "possible"),
)
_MIN_KEYS = ("min", "minimum", "min_score", "minimum_score", "score_min", "min_rating", "scale_min")
_SCALE_KEYS = ("scale", "range", "score_scale", "score_range", "rating_scale")
_FRACTION = re.compile(r"(-?[\d.]+)\s*(?:/|\bof\b|\bout of\b)\s*([\d.]+)", re.IGNORECASE)
_SCALE = re.compile(
    r"(?:from\s+)?(?:(?P<low>-?\d+(?:\.\d+)?)\s*(?:-|–|—|to|\.{2,}|…|,)\s*|/\s*|(?:out\s+)?of\s+)?(?P<high>\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_SHOWN = 80
_UNIT = (0.0, 1.0)


@dataclass(frozen=True)
class Rating:
    """What a score means on 0..1, or the `problem` with it; one that lies outside keeps its `value`."""

    value: float | None
    problem: str | None = None


def read_rating(answers: Sequence[Mapping[str, Any]]) -> Rating:
    """Read the one score that all `answers` state, on the one scale that any of them states.

    Without a scale, or on one of 0..1, a score is what it says. On another one it is mapped to 0..1; a score that
    would mean one thing there and another on 0..1 is none, for 0..1 was asked for.
    """
    stated = [answer[key] for answer in answers for key in SCORE_KEYS if key in answer]
    numbers = {repr(number(score)) for score in stated if number(score) is not None}
    if len(numbers) > 1:
        return Rating(None, f"the answer contradicts itself: scores {', '.join(sorted(numbers))}")
    value = next((found for score in stated if (found := number(score)) is not None), None)
    # A rating beside a score may be a word (good); a score may not.
    wrong = [answer[key] for answer in answers for key in SCORE_KEYS if "score" in key and _is_none(answer, key)]
    said = repr((wrong or stated or [None])[0])[:_SHOWN]
    if wrong or value is None or not math.isfinite(value):
        return Rating(None, f"score {said} is no number")
    scales = set(_scales(answers))
    if None in scales:
        return Rating(None, f"score {said} stands beside a scale that cannot be read")
    if len(scales) > 1:
        return Rating(None, f"score {said} stands beside more than one scale")
    if scales == {_UNIT} or not scales:
        outside = not -TOLERANCE <= value <= 1 + TOLERANCE
        named = "" if scales else " and names no scale"
        return Rating(value, f"score {said} lies outside 0..1{named}" if outside else None)
    return _mapped(value, said, next(scale for scale in scales if scale is not None), _own_scale(stated))


def _mapped(value: float, said: str, scale: tuple[float, float], own: set[float]) -> Rating:
    low, high = scale
    told = f"score {said} beside a scale of {low:g} to {high:g}"
    if own:
        # It was divided already; the scale beside it must be the same one.
        return Rating(value) if own == {high} and low == 0 and 0 <= value <= 1 else Rating(None, f"{told} has two")
    if not low <= value <= high or low >= high:
        return Rating(None, f"{told} lies outside of it")
    mapped = (value - low) / (high - low)
    if 0 <= value <= 1 and not math.isclose(mapped, value, abs_tol=1e-9):
        return Rating(None, f"{told} may be meant on 0..1 or on that")
    return Rating(mapped)


def number(score: Any) -> float | None:
    """Read a number, a fraction or a percentage; None for anything else."""
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


def _is_none(answer: Mapping[str, Any], key: str) -> bool:
    return key in answer and number(answer[key]) is None


def _own_scale(stated: Sequence[Any]) -> set[float]:
    texts = [score.strip() for score in stated if isinstance(score, str)]
    fractions = {float(found.group(2)) for text in texts if (found := _FRACTION.fullmatch(text))}
    return fractions | {100.0 for text in texts if text.endswith("%")}


def _scales(answers: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, float] | None]:
    """List the scales that answers state; None for one that cannot be read."""
    for answer in answers:
        low = next((number(answer[key]) for key in _MIN_KEYS if answer.get(key) is not None), 0.0)
        for key in _MAX_KEYS:
            if answer.get(key) is not None:
                high = number(answer[key])
                yield None if low is None or high is None else (low, high)
        yield from (_scale(answer[key]) for key in _SCALE_KEYS if answer.get(key) is not None)


def _scale(said: Any) -> tuple[float, float] | None:
    text = ", ".join(map(str, said)) if isinstance(said, list) else str(said)
    text = text.strip("()[] ")
    if text in ("%", "percent"):
        return 0.0, 100.0
    found = _SCALE.fullmatch(text)
    if found is None or isinstance(said, bool):
        return None
    return float(found.group("low") or 0), float(found.group("high"))
