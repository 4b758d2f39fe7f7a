"""Which part of a trace belongs to which turn, and checks on one turn alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..conversation import ConversationLog
from ..errors import ConfigError
from ..transcript import Transcript
from .contract import Check, EvidenceError, Finding, ReasonedCheck, find, label_of, require_check
from .evidence import UNPLACED_CALLS

_ROWS = ("runs", "spans", "content")


def turns_of_traces(transcript: Transcript, turns: int) -> dict[Any, int]:
    """Map the id of each trace to the 0-based turn it belongs to.

    One trace per turn, in the order of the rows, is what most bots make; a single turn owns everything. Raises
    `EvidenceError` where it is neither.
    """
    traces = [run.get("trace_id") for run in transcript.runs]
    seen = {row.get("trace_id") for row in transcript.spans}
    if turns == 1:
        return dict.fromkeys([*traces, *seen], 0)
    # How many ends of turns the ingest found; 0 where the bot's spans have no such thing.
    ends = (transcript.completeness or {}).get("turns_seen") or turns
    if len(set(traces)) != turns or len(traces) != turns or ends != turns:
        raise EvidenceError(f"which spans belong to which turn is not known: {len(traces)} traces for {turns} turns")
    if seen - set(traces):
        raise EvidenceError("which spans belong to which turn is not known: some belong to no trace that is listed")
    return {trace: number for number, trace in enumerate(traces)}


def at_turn(turn: int, of: Check) -> Check:
    """Hold when the check holds of one turn alone: what was said, took time and was called in it.

    Turns count from 1, and from the end with -1. Unknown when the conversation had no such turn, or when the
    check looks into the trace and it is not known which spans belong to the turn. What models cost and the final
    state belong to no turn.
    """
    if isinstance(turn, bool) or not isinstance(turn, int) or turn == 0:
        raise ConfigError(f"at_turn counts turns from 1, or from the end with -1, got {turn!r}")
    require_check("at_turn", of)

    def reason(transcript: Transcript, log: ConversationLog) -> Finding:
        place = turn - 1 if turn > 0 else log.turns_taken + turn
        if not 0 <= place < log.turns_taken:
            return Finding(None, f"the conversation had {log.turns_taken} turns, and no turn {turn}")
        found = find(of, _within(transcript, log.turns_taken, place), _alone(log, place))
        where = f"turn {place + 1}: "
        return replace(found, doubt=found.doubt and where + found.doubt, why=found.why and where + found.why)

    return ReasonedCheck(f"at_turn({turn}, {label_of(of)})", reason)


def _alone(log: ConversationLog, place: int) -> ConversationLog:
    is_last = place == log.turns_taken - 1
    return ConversationLog(
        log.conversation_id,
        [log.turns[place]],
        terminated=log.terminated and is_last,
        ended_by=log.ended_by if is_last else None,
    )


def _within(transcript: Transcript, turns: int, place: int) -> Transcript:
    if turns == 1:
        return transcript
    try:
        turn_of = turns_of_traces(transcript, turns)
    except EvidenceError as error:
        return _Unplaced(transcript, str(error))

    def mine(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if turn_of.get(row.get("trace_id")) == place]

    return replace(
        transcript,
        runs=mine(transcript.runs),
        spans=mine(transcript.spans),
        content=mine(transcript.content),
        completeness=_unplaced_calls(transcript.completeness),
    )


def _unplaced_calls(completeness: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Calls that left no span are known by name only: whose turn they belong to cannot be said."""
    if completeness is None:
        return None
    return {**completeness, "unresolved_calls": [], UNPLACED_CALLS: completeness.get("unresolved_calls") or []}


class _Unplaced(Transcript):
    """A trace that cannot be divided; a check that looks into it is told so, one that does not is served."""

    def __init__(self, whole: Transcript, reason: str) -> None:
        self.conversation_id, self.completeness, self._reason = whole.conversation_id, whole.completeness, reason

    def __getattr__(self, name: str) -> Any:
        # Asked only for what was not set: the rows.
        if name in _ROWS:
            raise EvidenceError(self._reason)
        raise AttributeError(name)
