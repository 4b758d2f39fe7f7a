"""What a trace must show for a verdict to mean anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto

from ..conversation import ConversationLog
from ..predicate import says_nothing
from ..transcript import Transcript
from .contract import Check, EvidenceError, Finding

# Below this level of completeness nothing can be said about what did not happen.
_LEVEL_FOR_ABSENCE = 2
# Calls that a model asked for, of a turn that is not known; only in a trace that was cut down to one turn.
UNPLACED_CALLS = "unplaced_calls"


class Evidence(Flag):
    """What a check takes for granted about a trace."""

    NONE = 0
    OUTCOMES = auto()
    """That each tool call shows whether it worked."""
    ABSENCE = auto()
    """That a call which is not in the trace did not happen."""
    TOKENS = auto()
    """That the tokens of every model call were counted."""


@dataclass(frozen=True)
class EvidencedCheck:
    """A check that names what it rests on and can say why it did not hold.

    `denial_rests_on` is what it takes to be sure that it did *not* hold. A `test` that raises
    `EvidenceError` says that neither can be told.
    """

    label: str
    test: Check
    rests_on: Evidence = Evidence.NONE
    explain: Callable[[Transcript, ConversationLog], str] | None = None
    denial_rests_on: Evidence = Evidence.NONE

    def __call__(self, transcript: Transcript, log: ConversationLog) -> bool:
        """Evaluate the check; what cannot be told is not held."""
        return self.finding(transcript, log).held is True

    def finding(self, transcript: Transcript, log: ConversationLog) -> Finding:
        """Evaluate the check and weigh what it rests on."""
        try:
            answer = self.test(transcript, log)
        except EvidenceError as error:
            return Finding(None, str(error))
        if empty := says_nothing(answer):
            return Finding(None, f"{self.label} {empty}")
        if answer:
            return Finding(True, gap(self.rests_on, transcript))
        why = self.explain(transcript, log) if self.explain else f"{self.label} does not hold"
        return Finding(False, gap(self.denial_rests_on, transcript), why)


def gap(rests_on: Evidence, transcript: Transcript) -> str:
    """Say what the trace lacks of what a verdict rests on; empty when it lacks nothing."""
    if rests_on & (Evidence.OUTCOMES | Evidence.ABSENCE) and (blind := _blindness(transcript)):
        return blind
    if Evidence.OUTCOMES in rests_on and (silent := _silence(transcript)):
        return silent
    if Evidence.TOKENS in rests_on and not transcript.tokens_known:
        return (
            "not every model call tells its tokens" if any(transcript.tokens()) else "the trace holds no token counts"
        )
    return ""


def _blindness(transcript: Transcript) -> str:
    if transcript.is_empty:
        return "the trace is empty"
    completeness = transcript.completeness or {}
    if completeness.get("tools_unobservable"):
        return "the bot's tools leave no spans"
    level = completeness.get("level")
    if level is not None and level < _LEVEL_FOR_ABSENCE:
        return f"the trace is known to level {level} only; absence needs {_LEVEL_FOR_ABSENCE}"
    return ""


def _silence(transcript: Transcript) -> str:
    completeness = transcript.completeness or {}
    left = [*(completeness.get("unresolved_calls") or ()), *(completeness.get(UNPLACED_CALLS) or ())]
    if left:
        return f"tool calls without an outcome: {', '.join(left)}"
    silent = sorted({call.name for call in transcript.tool_calls if call.outcome_unknown})
    return f"the trace does not tell whether {', '.join(silent)} worked" if silent else ""
