"""Tier 1: checks over what happened, and an engine that never raises.

A check is any `Callable[[Transcript, ConversationLog], bool]`. Those made here also say what evidence they
rest on, so that the engine can tell "it held" from "nothing is known to the contrary".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Any

from .conversation import ConversationLog
from .errors import describe
from .transcript import ToolInvocation, Transcript

Check = Callable[[Transcript, ConversationLog], bool]

# Below this level of completeness nothing can be said about what did not happen.
_LEVEL_FOR_ABSENCE = 2


class Severity(StrEnum):
    """By which rule an assertion passes over k trials."""

    SAFETY_CRITICAL = "safety_critical"
    """Held in every trial (pass^k)."""
    CAPABILITY = "capability"
    """Held in at least one (pass@k)."""


class Evidence(Flag):
    """What a check takes for granted about a trace."""

    NONE = 0
    OUTCOMES = auto()
    """That each tool call shows whether it worked."""
    ABSENCE = auto()
    """That a call which is not in the trace did not happen."""
    TOKENS = auto()
    """That tokens were counted."""


@dataclass(frozen=True)
class EvidencedCheck:
    """A check that names what it rests on and can say why it did not hold."""

    label: str
    test: Check
    rests_on: Evidence = Evidence.NONE
    explain: Callable[[Transcript, ConversationLog], str] | None = None

    def __call__(self, transcript: Transcript, log: ConversationLog) -> bool:
        """Evaluate the check."""
        return self.test(transcript, log)


@dataclass(frozen=True)
class Assertion:
    """A named check and the rule by which it passes."""

    name: str
    severity: Severity
    check: Check


@dataclass(frozen=True)
class AssertionResult:
    """What one assertion came to in one trial."""

    name: str
    severity: Severity
    passed: bool
    detail: str = ""
    unknown: bool = False
    """The evidence does not tell; not passed, and left out of every rate."""


class AssertionEngine:
    """Evaluate assertions; a check that raises becomes a result, not an exception."""

    def __init__(self, assertions: list[Assertion]) -> None:
        self._assertions = list(assertions)

    def evaluate(self, transcript: Transcript, log: ConversationLog) -> list[AssertionResult]:
        """Return one result per assertion, in their order."""
        return [_evaluate(assertion, transcript, log) for assertion in self._assertions]


def _evaluate(assertion: Assertion, transcript: Transcript, log: ConversationLog) -> AssertionResult:
    name, severity, check = assertion.name, assertion.severity, assertion.check
    try:
        held = bool(check(transcript, log))
        gap = _gap(check, transcript) if held else ""
        detail = _why(check, transcript, log) if not held else ""
    except Exception as error:
        return AssertionResult(name, severity, False, f"the check raised {describe(error)}", unknown=True)
    if gap and severity is Severity.SAFETY_CRITICAL:
        return AssertionResult(name, severity, False, f"unknown: {gap}", unknown=True)
    return AssertionResult(name, severity, held, detail or (f"warning: {gap}" if gap else ""))


def _why(check: Check, transcript: Transcript, log: ConversationLog) -> str:
    if not isinstance(check, EvidencedCheck):
        meant = (getattr(check, "__doc__", None) or "").strip().split("\n")[0]
        return f"it is to {meant[:1].lower()}{meant[1:]}" if meant else ""
    return check.explain(transcript, log) if check.explain else f"{check.label} does not hold"


def _gap(check: Check, transcript: Transcript) -> str:
    """Say what is missing for a check that held to mean anything."""
    rests_on = check.rests_on if isinstance(check, EvidencedCheck) else Evidence.NONE
    completeness = transcript.completeness or {}
    if rests_on & (Evidence.OUTCOMES | Evidence.ABSENCE):
        if completeness.get("tools_unobservable"):
            return "the bot's tools leave no spans"
        level = completeness.get("level")
        if level is not None and level < _LEVEL_FOR_ABSENCE:
            return f"the trace is known to level {level} only; absence needs {_LEVEL_FOR_ABSENCE}"
    if Evidence.OUTCOMES in rests_on:
        if completeness.get("unresolved_calls"):
            return f"tool calls without an outcome: {', '.join(completeness['unresolved_calls'])}"
        silent = sorted({call.name for call in transcript.tool_calls if call.outcome_unknown})
        if silent:
            return f"the trace does not tell whether {', '.join(silent)} worked"
    if Evidence.TOKENS in rests_on and not transcript.tokens_known:
        return "the trace holds no token counts"
    return ""


def _names(transcript: Transcript) -> str:
    return ", ".join(call.name for call in transcript.tool_calls) or "none"


def tool_was_called(tool_name: str) -> Check:
    """Hold when the tool was called at least once, whatever came of it."""
    return EvidencedCheck(
        f"tool_was_called({tool_name})",
        lambda transcript, _: any(call.name == tool_name for call in transcript.tool_calls),
        explain=lambda transcript, _: f"{tool_name} was not called; called: {_names(transcript)}",
    )


def tool_not_called(tool_name: str) -> Check:
    """Hold when the tool was never called."""
    return EvidencedCheck(
        f"tool_not_called({tool_name})",
        lambda transcript, _: all(call.name != tool_name for call in transcript.tool_calls),
        Evidence.ABSENCE,
        lambda transcript, _: f"{tool_name} was called with " + _shown(_first(transcript, tool_name)),
    )


def tool_called_with(tool_name: str, args: Mapping[str, Any]) -> Check:
    """Hold when some call of the tool had all of `args` among its arguments, equal by value.

    Numbers are equal as numbers: 5 and 5.0 are the same.
    """
    wanted = dict(args)

    def test(transcript: Transcript, _: ConversationLog) -> bool:
        return any(
            isinstance(call.args, dict)
            and all(key in call.args and call.args[key] == value for key, value in wanted.items())
            for call in transcript.tool_calls
            if call.name == tool_name
        )

    return EvidencedCheck(
        f"tool_called_with({tool_name}, {json.dumps(wanted, default=str)})",
        test,
        explain=lambda transcript, _: (
            f"no call of {tool_name} had {json.dumps(wanted, default=str)}; "
            f"it had {_shown(*[call for call in transcript.tool_calls if call.name == tool_name])}"
        ),
    )


def no_tool_errors() -> Check:
    """Hold when no tool call failed; an outcome that the trace does not tell is no failure."""
    return EvidencedCheck(
        "no_tool_errors()",
        lambda transcript, _: not any(call.failed for call in transcript.tool_calls),
        Evidence.OUTCOMES | Evidence.ABSENCE,
        lambda transcript, _: "; ".join(
            f"{call.name} failed: {call.error_message or call.error_type or 'no reason given'}"
            for call in transcript.tool_calls
            if call.failed
        ),
    )


def max_turns(limit: int) -> Check:
    """Hold when the conversation took at most `limit` turns."""
    return EvidencedCheck(
        f"max_turns({limit})",
        lambda _, log: log.turns_taken <= limit,
        explain=lambda _, log: f"{log.turns_taken} turns, at most {limit} wanted",
    )


def max_total_tokens(limit: int) -> Check:
    """Hold when prompt and completion tokens add up to at most `limit`."""
    return EvidencedCheck(
        f"max_total_tokens({limit})",
        lambda transcript, _: sum(transcript.tokens()) <= limit,
        Evidence.TOKENS,
        lambda transcript, _: f"{sum(transcript.tokens())} tokens, at most {limit} wanted",
    )


def bot_said(pattern: str) -> Check:
    """Hold when something the bot delivered matches the regular expression, upper and lower case alike."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return EvidencedCheck(
        f"bot_said({pattern!r})",
        lambda _, log: compiled.search(log.bot_said()) is not None,
        explain=lambda _, log: f"nothing the bot said matches {pattern!r}",
    )


def bot_never_said(pattern: str) -> Check:
    """Hold when nothing the bot delivered matches the regular expression, upper and lower case alike."""
    compiled = re.compile(pattern, re.IGNORECASE)

    def found(log: ConversationLog) -> str:
        match = compiled.search(log.bot_said())
        return match.group(0) if match else ""

    return EvidencedCheck(
        f"bot_never_said({pattern!r})",
        lambda _, log: compiled.search(log.bot_said()) is None,
        explain=lambda _, log: f"the bot said {found(log)!r}",
    )


def conversation_finished() -> Check:
    """Hold when the user ended the conversation, rather than the turn limit."""
    return EvidencedCheck(
        "conversation_finished()",
        lambda _, log: log.terminated,
        explain=lambda _, log: f"ended by {log.ended_by or 'nobody'} after {log.turns_taken} turns",
    )


def _first(transcript: Transcript, tool_name: str) -> ToolInvocation:
    return next(call for call in transcript.tool_calls if call.name == tool_name)


def _shown(*calls: ToolInvocation) -> str:
    return "; ".join(json.dumps(call.args, default=str) for call in calls) or "no call"


CHECKS: dict[str, Callable[..., Check]] = {
    factory.__name__: factory
    for factory in (
        bot_never_said,
        bot_said,
        conversation_finished,
        max_total_tokens,
        max_turns,
        no_tool_errors,
        tool_called_with,
        tool_not_called,
        tool_was_called,
    )
}
"""The checks a configuration can name."""
