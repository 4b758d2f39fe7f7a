"""Marking the calls that a fault hit, where the bot did not do it on its spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..interceptor import Action, Firing
from .view import ToolInvocation, Transcript

_RAISING = (Action.ERROR, Action.TIMEOUT)
_UNPLACED = "unplaced_faults"


def mark_faults(transcript: Transcript, firings: Sequence[Firing], calls_seen: Mapping[str, int]) -> Transcript:
    """Return the trace with the firings of a trial's interceptors, by the trial's count, on the calls they hit.

    A tool whose calls the bot marked itself keeps them as they are. Where calls cannot be paired (the trace shows more
    or fewer than were seen, or a call that was made to fail and did not) or marks are missing, the tool is noted in
    `completeness`, as one that was hit nobody knows where.
    """
    marks: dict[tuple[str, str | None], dict[str, Any]] = {}
    unplaced = []
    calls = transcript.calls_by_start if firings else []
    for target in dict.fromkeys(firing.target for firing in firings):
        mine = [call for call in calls if call.name == target]
        hits = [firing for firing in firings if firing.target == target]
        marked = sum(bool(call.fault) for call in mine)
        placed = {} if marked or len(mine) != calls_seen.get(target, 0) else _pair(mine, hits)
        marks |= placed
        if marked + len(placed) < len(hits):
            unplaced.append(target)
    return _with_marks(transcript, marks, unplaced)


def carry_marks(earlier: Transcript | None, later: Transcript) -> Transcript:
    """Return the later trace of a conversation with the marks that the earlier one had."""
    if earlier is None:
        return later
    marks = {
        (str(span.get("span_id", "")), span.get("trace_id")): span["fault"]
        for span in earlier.spans
        if span.get("fault")
    }
    return _with_marks(later, marks, unplaced_faults(earlier))


def unplaced_faults(transcript: Transcript) -> list[str]:
    """Name the tools of which a call was hit by a fault, and it is not known which."""
    return list((transcript.completeness or {}).get(_UNPLACED) or ())


def _with_marks(
    transcript: Transcript, marks: Mapping[tuple[str, str | None], dict[str, Any]], unplaced: Sequence[str]
) -> Transcript:
    completeness = {**(transcript.completeness or {}), _UNPLACED: list(unplaced)}
    if not marks:
        return replace(transcript, completeness=completeness) if unplaced else transcript
    spans = [
        _marked(span, marks.get((str(span.get("span_id", "")), span.get("trace_id")))) for span in transcript.spans
    ]
    return replace(transcript, spans=spans, completeness=completeness if unplaced else transcript.completeness)


def _pair(calls: Sequence[ToolInvocation], firings: Sequence[Firing]) -> dict[tuple[str, str | None], dict[str, Any]]:
    hit = [(calls[firing.call_index], firing) for firing in firings if firing.call_index < len(calls)]
    if len(hit) < len(firings) or any(firing.action in _RAISING and not call.failed for call, firing in hit):
        return {}
    marks: dict[tuple[str, str | None], dict[str, Any]] = {
        (call.span_id, call.trace_id): {
            "action": str(firing.action),
            "rule": firing.rule,
            "call_index": firing.call_index,
        }
        for call, firing in hit
    }
    # Two that hit one call were counted apart by somebody else.
    return marks if len(marks) == len(firings) else {}


def _marked(span: dict[str, Any], mark: dict[str, Any] | None) -> dict[str, Any]:
    return {**span, "fault": mark} if mark is not None and not span.get("fault") else span
