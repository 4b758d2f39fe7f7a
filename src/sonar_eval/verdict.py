"""Reading what a judge wrote: one score, in whatever clothes it comes; nothing is guessed.

A score that may mean two things (8, of 10 or of 100?) is no score.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TOLERANCE = 0.05
_WRAPPERS = ("result", "verdict", "output", "response", "evaluation")
_SCORE_KEYS = ("score", "overall_score", "rating")
_REASON_KEYS = ("reasoning", "reason", "explanation", "rationale")
_THINK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_CUT_SCORE = re.compile(r"[\"']?score[\"']?\s*:\s*([\"']?)([^,}\n\"']+)\1", re.IGNORECASE)
_CUT_REASON = re.compile(r"[\"']?(?:reasoning|reason)[\"']?\s*:\s*[\"'](.*)", re.IGNORECASE | re.DOTALL)
_FRACTION = re.compile(r"(-?[\d.]+)\s*/\s*([\d.]+)")


@dataclass(frozen=True)
class Reading:
    """What was understood: `score` as the judge meant it, not clamped, or None with the `problem`."""

    score: float | None
    reasoning: str
    problem: str | None = None


def read_verdict(raw: str | None) -> Reading:
    """Read a judge's answer: JSON, fenced or not, slightly damaged, or cut off in its reasoning."""
    text = without_thinking(raw or "").strip()
    if not text:
        return Reading(None, raw or "", "the judge said nothing outside its thinking")
    whole = False
    for body in _objects(text):
        found = _unwrap(body)
        if found is not None:
            return _from_object(found)
        whole = whole or isinstance(body, dict)
    # An object that can be read to its end was not cut off: it just holds no verdict.
    cut = None if whole else _CUT_SCORE.search(text)
    if cut is None:
        return Reading(None, text, "no verdict in what the judge said")
    reason = _CUT_REASON.search(text)
    return _reading(cut.group(2).strip(), reason.group(1).rstrip("\"'} \n`") if reason else "")


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


def _objects(text: str) -> Iterator[Any]:
    """Yield what parses as data, from each opening brace that is not inside such data already; then repaired."""
    decoder = json.JSONDecoder(strict=False)
    starts = [place for place, character in enumerate(text) if character in "{["]
    end = 0
    for start in starts:
        if start < end:
            continue
        try:
            body, end = decoder.raw_decode(text, start)
        except ValueError:
            continue
        yield body
    for start in starts:
        end = max(text.rfind("}"), text.rfind("]")) + 1
        candidate = re.sub(r",\s*([}\]])", r"\1", text[start:end])
        for parse in (lambda source: json.loads(source, strict=False), ast.literal_eval):
            try:
                yield parse(candidate)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue


def _unwrap(body: Any) -> dict[str, Any] | None:
    if isinstance(body, list):
        return next((found for entry in body if (found := _unwrap(entry)) is not None), None)
    if not isinstance(body, dict):
        return None
    lowered = {str(key).lower(): value for key, value in body.items()}
    if any(key in lowered for key in _SCORE_KEYS):
        return lowered
    return next((found for key in _WRAPPERS if (found := _unwrap(lowered.get(key))) is not None), None)


def _from_object(found: dict[str, Any]) -> Reading:
    score = next(found[key] for key in _SCORE_KEYS if key in found)
    reasoning = next((str(found[key]) for key in _REASON_KEYS if found.get(key)), "")
    return _reading(score, reasoning)


def _reading(score: Any, reasoning: str) -> Reading:
    value = _number(score)
    if value is None or not math.isfinite(value):
        return Reading(None, reasoning, f"score {score!r} is no number")
    if not -TOLERANCE <= value <= 1 + TOLERANCE:
        return Reading(value, reasoning, f"score {score!r} lies outside 0..1 and names no scale")
    return Reading(value, reasoning)


def _number(score: Any) -> float | None:
    if isinstance(score, bool) or not isinstance(score, int | float | str):
        return None
    if not isinstance(score, str):
        return float(score)
    text = score.strip()
    fraction = _FRACTION.fullmatch(text)
    try:
        if fraction:
            return float(fraction.group(1)) / float(fraction.group(2))
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return float(text)
    except (ValueError, ZeroDivisionError):
        return None
