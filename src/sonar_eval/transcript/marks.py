"""Marking the calls that a fault hit, where the bot did not do it on its spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..interceptor import Action, Firing
from .view import ToolInvocation, Transcript

_RAISING = (Action.ERROR, Action.TIMEOUT)


def mark_faults(transcript: Transcript, firings: Sequence[Firing], calls_seen: Mapping[str, int]) -> Transcript:
    """Return the trace with the firings of the trial's interceptor on the calls they hit.

    A tool is left alone when it has marks already, and when its calls cannot be paired: the trace shows more or fewer
    than the interceptor saw, or a call that was made to fail and did not.
    """
    marks: dict[tuple[str, str | None], dict[str, Any]] = {}
    calls = transcript.calls_by_start if firings else []
    for target in {firing.target for firing in firings}:
        mine = [call for call in calls if call.name == target]
        if len(mine) == calls_seen.get(target, 0) and not any(call.fault for call in mine):
            marks |= _pair(mine, [firing for firing in firings if firing.target == target])
    if not marks:
        return transcript
    spans = [
        _marked(span, marks.get((str(span.get("span_id", "")), span.get("trace_id")))) for span in transcript.spans
    ]
    return replace(transcript, spans=spans)


def carry_marks(earlier: Transcript | None, later: Transcript) -> Transcript:
    """Return the later trace of a conversation with the marks that the earlier one had."""
    marks = {
        (span.get("span_id"), span.get("trace_id")): span["fault"]
        for span in (earlier.spans if earlier is not None else ())
        if span.get("fault")
    }
    if not marks:
        return later
    return replace(
        later, spans=[_marked(span, marks.get((span.get("span_id"), span.get("trace_id")))) for span in later.spans]
    )


def _pair(calls: Sequence[ToolInvocation], firings: Sequence[Firing]) -> dict[tuple[str, str | None], dict[str, Any]]:
    hit = [(calls[firing.call_index], firing) for firing in firings if firing.call_index < len(calls)]
    if len(hit) < len(firings) or any(firing.action in _RAISING and not call.failed for call, firing in hit):
        return {}
    return {
        (call.span_id, call.trace_id): {
            "action": str(firing.action),
            "rule": firing.rule,
            "call_index": firing.call_index,
        }
        for call, firing in hit
    }


def _marked(span: dict[str, Any], mark: dict[str, Any] | None) -> dict[str, Any]:
    return {**span, "fault": mark} if mark is not None and not span.get("fault") else span
