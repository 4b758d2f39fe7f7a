"""Is the trace of a conversation whole? Levels of knowing, from a count down to mere quiet.

3  counted: the bot's process said how many spans it made, and all of them are here
2  structural: every turn has its end, nothing is missing in between, and nothing more came for a while
1  quiet: nothing more came for a while, and that is all one can say
0  known not to be whole, or not yet
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor

from ..transcript import wire
from .mapping import Mapped

# A collector on the way may deliver the marker before the last batch.
_REORDER_GRACE_S = 1.0


@dataclass(frozen=True)
class Circumstances:
    """What is known beside the spans; times are the server's monotonic clock, in seconds."""

    quiet_s: float
    """Since the last span of the conversation was stored."""
    quiet_wanted_s: float
    turns: int | None = None
    """How many turns the user took; None when the asker did not say."""
    traces: Sequence[str] = ()
    """Traces that must be there, when the asker handed trace ids to the bot."""
    refused: int = 0
    """Requests of this tenant that were refused since the conversation began."""


@dataclass
class Assessment:
    """How far a trace is known to be whole, and why not further."""

    level: int
    complete: bool
    final: bool
    """Whether waiting cannot change it any more."""
    reasons: list[str] = field(default_factory=list)
    spans: int = 0
    expected: int | None = None
    open: int = 0
    orphans: int = 0
    turns_seen: int = 0
    unresolved_calls: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Marker:
    started: int
    ended: int
    xor: int


def assess(mapped: Sequence[Mapped], around: Circumstances) -> Assessment:
    """Say how far the spans of one conversation are known to be whole."""
    markers = _markers(mapped)
    spans = [entry for entry in mapped if entry.span.name != wire.MARKER_NAME]
    found = Assessment(
        0,
        False,
        False,
        spans=len(spans),
        orphans=_orphans(spans),
        turns_seen=_turns_seen(spans),
        unresolved_calls=unresolved_calls(spans),
    )
    if around.refused:
        found.reasons.append(f"{around.refused} requests of this tenant were refused since the conversation began")
    if markers:
        _by_count(found, spans, markers, around)
    else:
        _by_structure(found, spans, around)
    return found


def _markers(mapped: Sequence[Mapped]) -> list[_Marker]:
    """Take one marker per process: that of the highest count, should it have been sent twice."""
    best: dict[str, _Marker] = {}
    for entry in mapped:
        marker = _read_marker(entry) if entry.span.name == wire.MARKER_NAME else None
        process = str(entry.span.attributes.get(wire.MARKER_PROCESS, ""))
        if marker is not None and (process not in best or marker.started > best[process].started):
            best[process] = marker
    return list(best.values())


def _read_marker(entry: Mapped) -> _Marker | None:
    """Read what the bot's process wrote; a marker that makes no sense is none."""
    attributes = entry.span.attributes
    started, ended = attributes.get(wire.MARKER_STARTED), attributes.get(wire.MARKER_ENDED)
    try:
        summed = int(str(attributes.get(wire.MARKER_XOR)), 16)
    except ValueError:
        return None
    if not (isinstance(started, int) and isinstance(ended, int) and 0 <= ended <= started):
        return None
    return _Marker(started, ended, summed)


def _by_count(found: Assessment, spans: Sequence[Mapped], markers: Sequence[_Marker], around: Circumstances) -> None:
    counted = [int(entry.span.span_id, 16) for entry in spans if entry.span.conversation_id is not None]
    expected = sum(marker.started for marker in markers)
    found.expected, found.open = expected, sum(marker.started - marker.ended for marker in markers)
    missing = expected - len(counted)
    quiet = around.quiet_s >= around.quiet_wanted_s
    if missing == 0 and reduce(xor, counted, 0) == reduce(xor, (marker.xor for marker in markers), 0):
        found.level, found.complete, found.final = 3, True, True
    elif missing > found.open:
        found.final = around.quiet_s >= min(_REORDER_GRACE_S, around.quiet_wanted_s)
        found.reasons.append(f"{missing - found.open} of {expected} spans were lost on their way")
    elif missing > 0:
        # A tool that hangs never ends its span: all that can come is here, but what is open may yet have failed.
        found.level = 1 if quiet else 0
        found.complete = found.final = quiet
        found.reasons.append(f"{missing} spans had not ended when the bot was torn down")
    else:
        found.level = 1 if quiet else 0
        found.complete = found.final = quiet
        found.reasons.append(f"{len(counted)} spans came where the bot's processes counted {expected}")


def _by_structure(found: Assessment, spans: Sequence[Mapped], around: Circumstances) -> None:
    if around.quiet_s < around.quiet_wanted_s:
        found.reasons.append(f"quiet for {around.quiet_s:.1f} s of {around.quiet_wanted_s:g} s")
        return
    found.final = True
    if around.refused:
        return
    if around.turns is not None and 0 < found.turns_seen < around.turns:
        # This bot's turns do leave ends: one without was lost. A bot whose turns leave none is merely quiet.
        found.reasons.append(
            f"{found.turns_seen} of {around.turns} turns left an end in the trace, so the spans of "
            f"{around.turns - found.turns_seen} were lost on their way"
        )
        return
    holes = list(_holes(found, spans, around))
    found.reasons += holes
    found.level, found.complete = (1 if holes else 2), True


def _holes(found: Assessment, spans: Sequence[Mapped], around: Circumstances) -> Iterator[str]:
    """Name what keeps the structure from proving that nothing is missing."""
    here = {entry.span.trace_id for entry in spans if not entry.span.parent_span_id or entry.span.has_remote_parent}
    absent = [trace for trace in around.traces if trace not in here]
    if absent:
        yield f"{len(absent)} of {len(around.traces)} turns have no trace with a head"
    if around.turns is None and not around.traces:
        yield "how many turns there were is not known here"
    elif around.turns is not None and found.turns_seen < around.turns:
        yield f"{found.turns_seen} of {around.turns} turns left an end in the trace"
    if found.orphans:
        yield f"{found.orphans} spans have a parent that did not come"
    if found.unresolved_calls:
        yield f"tool calls without an outcome: {', '.join(found.unresolved_calls)}"


def _orphans(spans: Sequence[Mapped]) -> int:
    here = {(entry.span.trace_id, entry.span.span_id) for entry in spans}
    return sum(
        entry.span.parent_span_id is not None
        and not entry.span.has_remote_parent
        and (entry.span.trace_id, entry.span.parent_span_id) not in here
        for entry in spans
    )


def _turns_seen(spans: Sequence[Mapped]) -> int:
    """Count what ends a turn: an agent at the head of a trace; without agents, a model call that asks for no tool."""
    traces: dict[str, list[Mapped]] = {}
    for entry in spans:
        traces.setdefault(entry.span.trace_id, []).append(entry)
    return sum(_ends(trace) for trace in traces.values())


def _ends(trace: list[Mapped]) -> int:
    if any(entry.kind == "agent" for entry in trace):
        return 1
    return sum(entry.kind == "llm" and not _asked_for(entry) for entry in trace)


def _asked_for(entry: Mapped) -> list[tuple[str | None, str]]:
    """List the tool calls that a model's output asks for: id and name."""
    return [
        (message.call_id, message.name or "")
        for message in entry.reading.messages
        if message.output and message.kind == "tool_arguments"
    ]


def unresolved_calls(spans: Sequence[Mapped]) -> list[str]:
    """Name the tool calls that a model asked for and of which neither span nor result came."""
    asked = dict.fromkeys(call for entry in spans if entry.kind == "llm" for call in _asked_for(entry))
    ran = [entry.reading for entry in spans if entry.kind == "tool"]
    answered = {
        message.call_id
        for entry in spans
        for message in entry.reading.messages
        if message.kind == "tool_result" and message.call_id
    }
    ids = {reading.call_id for reading in ran if reading.call_id} | answered
    # Frameworks that keep no call ids, or give them anew, leave only the names to count.
    asked_ids = {call_id for call_id, _ in asked}
    spare = Counter(reading.tool_name or "" for reading in ran if reading.call_id not in asked_ids - {None})
    missing = []
    for call_id, name in asked:
        if call_id in ids:
            continue
        if spare[name] > 0:
            spare[name] -= 1
        else:
            missing.append(name)
    return missing
