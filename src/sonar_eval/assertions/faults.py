"""Checks on what the bot made of a fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..conversation import ConversationLog
from ..errors import ConfigError
from ..interceptor import Action
from ..transcript import ToolInvocation, Transcript, unplaced_faults
from .confession import confesses
from .contract import Check, EvidenceError, Finding, ReasonedCheck
from .evidence import Evidence, gap
from .logic import conjunction, disjunction
from .matching import compiled
from .naming import is_name, require_name, suggestion
from .turns import turns_of_traces

_Tells = Callable[[str], bool | None]


def recovered_from_fault(
    tool: str | None = None, *, told: str | Sequence[str] | None = None, alternatives: Sequence[str] = ()
) -> Check:
    """Hold when after every injected fault the bot told the user, or succeeded another way.

    Telling is a message, in the turn of the fault or later, that matches `told`: a regular expression, or a list of
    phrases; upper and lower case alike. By default it is one that plainly states, in English, that something did not
    work: "no problem" and "if it fails" tell nothing, and where words may mean either it is unknown. Succeeding is a
    later call that worked, of the same tool or of one of `alternatives`; a delayed call that worked succeeded itself.
    `tool` looks at the faults of one tool alone. Where no fault took place it is unknown: not exercised; and so it is
    where a fault did, and the trace does not tell which call it hit.
    """
    if tool is not None:
        require_name("recovered_from_fault", tool)
    if isinstance(alternatives, str) or not isinstance(alternatives, Collection) or not all(map(is_name, alternatives)):
        raise ConfigError(f"recovered_from_fault: alternatives must be a list of tools, got {alternatives!r}")
    tells = _telling(told)

    def reason(transcript: Transcript, log: ConversationLog) -> Finding:
        calls = transcript.calls_by_start
        hit = [place for place, call in enumerate(calls) if call.fault and tool in (None, call.name)]
        unplaced = [name for name in unplaced_faults(transcript) if tool in (None, name)]
        if not hit and not unplaced:
            return Finding(None, _not_exercised(calls, tool))
        return conjunction(
            [
                *(_recovery(transcript, log, calls, place, tells, alternatives) for place in hit),
                *(
                    Finding(None, f"which call of {name} a fault hit cannot be told from the trace")
                    for name in unplaced
                ),
            ]
        )

    return ReasonedCheck(f"recovered_from_fault({tool or ''})", reason)


def _telling(told: str | Sequence[str] | None) -> _Tells:
    """Make what says of a message whether it tells of a fault; None when that is not clear."""
    if told is None:
        return confesses
    words = _words(told)
    return lambda text: words.search(text) is not None


def _words(told: str | Sequence[str]) -> re.Pattern[str]:
    if isinstance(told, str):
        words = compiled(told, case=False)
        if words.search(""):
            raise ConfigError(f"recovered_from_fault: told {told!r} is found in any message, even an empty one")
        return words
    if not isinstance(told, Collection) or not told or not all(isinstance(one, str) and one.strip() for one in told):
        raise ConfigError(f"recovered_from_fault: told must be a pattern or a list of phrases, got {told!r}")
    return compiled("|".join(rf"(?<!\w){re.escape(phrase)}(?!\w)" for phrase in told), case=False)


def _not_exercised(calls: Sequence[ToolInvocation], tool: str | None) -> str:
    faulted = list(dict.fromkeys(call.name for call in calls if call.fault))
    if tool is None or not faulted:
        called = ", ".join(dict.fromkeys(call.name for call in calls)) or "none"
        return f"not exercised: no call in the trace was hit by a fault; called: {called}"
    meant = suggestion(tool, faulted)
    return f"not exercised: no call of {tool} was hit by a fault; hit: {', '.join(faulted)}" + (
        f"; {meant}" if meant else ""
    )


def _recovery(
    transcript: Transcript,
    log: ConversationLog,
    calls: Sequence[ToolInvocation],
    place: int,
    tells: _Tells,
    alternatives: Sequence[str],
) -> Finding:
    call = calls[place]
    ways = [_succeeded(transcript, calls[place:], alternatives), _told(transcript, log, call, tells)]
    found = disjunction(ways)
    why = f"after the fault in {call.name} the bot neither told the user nor succeeded another way"
    return Finding(found.held, found.doubt, why if found.held is False else "")


def _succeeded(transcript: Transcript, calls: Sequence[ToolInvocation], alternatives: Sequence[str]) -> Finding:
    """Look for success from the faulted call on."""
    first, *later = calls
    tries = [call for call in later if call.name in (first.name, *alternatives) and not _spoilt(call)]
    if not _spoilt(first):
        tries.append(first)
    if any(call.success for call in tries):
        return Finding(True)
    if any(call.outcome_unknown for call in tries):
        return Finding(None, f"the trace does not tell whether a call after the fault in {first.name} worked")
    return Finding(False, gap(Evidence.ABSENCE, transcript), "no later call worked")


def _spoilt(call: ToolInvocation) -> bool:
    """Tell whether a fault took the place of the call's own result."""
    return bool(call.fault) and _action(call.fault) != Action.LATENCY


def _action(fault: dict[str, Any] | None) -> Any:
    return (fault or {}).get("action")


def _told(transcript: Transcript, log: ConversationLog, call: ToolInvocation, tells: _Tells) -> Finding:
    said = [tells("\n".join(turn.delivered)) for turn in log.turns]
    if not any(said) and None not in said:
        return Finding(False, why="the bot told nobody")
    try:
        turn_of = turns_of_traces(transcript, log.turns_taken)
    except EvidenceError as error:
        return Finding(None, str(error))
    since = turn_of.get(call.trace_id)
    if since is None:
        return Finding(None, f"of which turn the faulted call of {call.name} is, is not known")
    if any(said[since:]):
        return Finding(True)
    if None in said[since:]:
        return Finding(None, f"whether the bot told the user of the fault in {call.name} is not clear from its words")
    return Finding(False, why="the bot told nobody")
