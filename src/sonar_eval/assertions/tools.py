"""Checks on which tools were called, with what, how often and in which order, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..conversation import ConversationLog
from ..errors import ConfigError
from ..transcript import ToolInvocation, Transcript
from .contract import Check, EvidenceError, Finding, ReasonedCheck, require_predicate, says_yes
from .evidence import UNPLACED_CALLS, Evidence, EvidencedCheck
from .logic import conjunction
from .matching import compiled, differences, shown
from .naming import is_name, require_name, suggestion

_SHOWN_CALLS = 5


def calls_of(transcript: Transcript, tool_name: str) -> list[ToolInvocation]:
    """List the calls of one tool."""
    return [call for call in transcript.tool_calls if call.name == tool_name]


def not_called(transcript: Transcript, tool_name: str) -> str:
    """Say that a tool was not called, which were, and which of them may be meant."""
    names = list(dict.fromkeys(call.name for call in transcript.tool_calls))
    meant = suggestion(tool_name, names)
    return f"{tool_name} was not called; called: {', '.join(names) or 'none'}" + (f"; {meant}" if meant else "")


def tool_was_called(tool_name: str) -> Check:
    """Hold when the tool was called at least once, whatever came of it."""
    require_name("tool_was_called", tool_name)
    return EvidencedCheck(
        f"tool_was_called({tool_name})",
        lambda transcript, _: bool(calls_of(transcript, tool_name)),
        explain=lambda transcript, _: not_called(transcript, tool_name),
        denial_rests_on=Evidence.ABSENCE,
    )


def tool_not_called(tool_name: str) -> Check:
    """Hold when the tool was never called."""
    require_name("tool_not_called", tool_name)
    return EvidencedCheck(
        f"tool_not_called({tool_name})",
        lambda transcript, _: not calls_of(transcript, tool_name),
        Evidence.ABSENCE,
        lambda transcript, _: f"{tool_name} was called with {_shown(calls_of(transcript, tool_name)[:1])}",
    )


def tool_called_with(
    tool_name: str,
    args: Mapping[str, Any] | None = None,
    *,
    matching: Mapping[str, str] | None = None,
    predicate: Callable[[Any], bool] | None = None,
) -> Check:
    """Hold when one and the same call of the tool meets all that is asked of its arguments.

    `args` are equal by value, objects within them taken as subsets: 5 and 5.0 are the same, further keys are left
    alone. `matching` are regular expressions to be found in arguments, upper and lower case told apart.
    `predicate` is handed the arguments. Arguments that the trace does not show in full refute nothing.
    """
    require_name("tool_called_with", tool_name)
    _require_conditions(args, matching, predicate)
    patterns = {key: compiled(pattern) for key, pattern in (matching or {}).items()}

    def fits(call: ToolInvocation) -> bool:
        if not isinstance(call.args, dict) or any(differences(dict(args or {}), call.args)):
            return False
        if not all(key in call.args and found.search(_text(call.args[key])) for key, found in patterns.items()):
            return False
        return predicate is None or says_yes(predicate, call.args)

    def test(transcript: Transcript, _: ConversationLog) -> bool:
        calls = calls_of(transcript, tool_name)
        if any(fits(call) for call in calls):
            return True
        if any(_hidden(transcript, call) for call in calls):
            raise EvidenceError(f"the trace does not show with what {tool_name} was called")
        return False

    wanted = _wanted(args, matching, predicate)

    def explain(transcript: Transcript, _: ConversationLog) -> str:
        calls = calls_of(transcript, tool_name)
        if not calls:
            return not_called(transcript, tool_name)
        return f"no call of {tool_name} had {wanted}; it had {_shown(calls)}"

    return EvidencedCheck(
        f"tool_called_with({tool_name}, {wanted})", test, explain=explain, denial_rests_on=Evidence.ABSENCE
    )


def _require_conditions(args: Any, matching: Any, predicate: Any) -> None:
    if args is None and matching is None and predicate is None:
        raise ConfigError("tool_called_with needs args, matching or predicate; to ask for no more: tool_was_called")
    for name, value in (("args", args), ("matching", matching)):
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(f"tool_called_with: {name} must be a mapping of arguments, got {value!r}")
    if predicate is not None:
        require_predicate("tool_called_with", predicate)


def _wanted(args: Any, matching: Any, predicate: Any) -> str:
    parts = [shown(dict(args))] if args is not None else []
    parts += [f"matching {shown(dict(matching))}"] if matching is not None else []
    parts += [f"predicate {getattr(predicate, '__name__', predicate)}"] if predicate is not None else []
    return ", ".join(parts)


def _hidden(transcript: Transcript, call: ToolInvocation) -> bool:
    """Tell whether the call may have had arguments that the trace does not show."""
    rows = transcript.content_for(call.span_id, trace_id=call.trace_id)
    mine = [row for row in rows if row.get("type") == "tool_arguments"]
    if mine:
        return isinstance(call.args, str) or any(row.get("redaction") or row.get("cut") for row in mine)
    # Where other calls show theirs, one that shows none had none.
    return not any(row.get("type") == "tool_arguments" for row in transcript.content)


def tool_call_count(
    tool_name: str, *, exactly: int | None = None, at_least: int | None = None, at_most: int | None = None
) -> Check:
    """Hold when the tool was called that many times, retries by the bot's framework and failed calls included."""
    require_name("tool_call_count", tool_name)
    if exactly is not None and (at_least, at_most) != (None, None):
        raise ConfigError("tool_call_count takes exactly, or at_least and at_most, not both")
    low, high = (at_least, at_most) if exactly is None else (exactly, exactly)
    for bound in (low, high):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int) or bound < 0):
            raise ConfigError(f"tool_call_count counts in whole numbers of 0 or more, got {bound!r}")
    if low is None and high is None:
        raise ConfigError("tool_call_count needs exactly, at_least or at_most")
    if low is not None and high is not None and low > high:
        raise ConfigError(f"tool_call_count: at_least {low} is more than at_most {high}")
    wanted = f"exactly {exactly}" if exactly is not None else _range(low, high)
    bounds = [
        *([_count_check(tool_name, wanted, lambda count: count >= low, low=True)] if low is not None else []),
        *([_count_check(tool_name, wanted, lambda count: count <= high, low=False)] if high is not None else []),
    ]

    def reason(transcript: Transcript, log: ConversationLog) -> Finding:
        return conjunction([bound.finding(transcript, log) for bound in bounds])

    return ReasonedCheck(f"tool_call_count({tool_name}, {wanted})", reason)


def _range(low: int | None, high: int | None) -> str:
    return " and ".join(
        f"{word} {bound}" for word, bound in (("at least", low), ("at most", high)) if bound is not None
    )


def _count_check(tool_name: str, wanted: str, within: Callable[[int], bool], *, low: bool) -> EvidencedCheck:
    """Check one bound: too many can be seen, too few may only not be here."""

    def explain(transcript: Transcript, _: ConversationLog) -> str:
        count = len(calls_of(transcript, tool_name))
        return f"{tool_name} was called {count} times, wanted {wanted}" if count else not_called(transcript, tool_name)

    return EvidencedCheck(
        f"tool_call_count({tool_name}, {wanted})",
        lambda transcript, _: within(len(calls_of(transcript, tool_name))),
        Evidence.NONE if low else Evidence.ABSENCE,
        explain,
        Evidence.ABSENCE if low else Evidence.NONE,
    )


def tool_order(tools: Sequence[str], *, strict: bool = False) -> Check:
    """Hold when calls of these tools can be found one after the other, by the time they started.

    Where the trace does not tell that of every call, they go by the order of its rows. Others may lie between, calls
    of the same tools too; with `strict` each follows directly on the one before.
    """
    wanted = [] if isinstance(tools, str) or not isinstance(tools, Iterable) else list(tools)
    if len(wanted) < 2 or not all(map(is_name, wanted)):
        raise ConfigError(f"tool_order needs the names of two tools or more, got {tools!r}")
    found = _directly if strict else _in_order

    def explain(transcript: Transcript, _: ConversationLog) -> str:
        called = [call.name for call in transcript.calls_by_start]
        absent = next((name for name in wanted if name not in called), None)
        if absent is not None:
            return not_called(transcript, absent)
        return f"wanted {', '.join(wanted)}{' in direct succession' if strict else ''}; called: {', '.join(called)}"

    return EvidencedCheck(
        f"tool_order({', '.join(wanted)}{', strict' if strict else ''})",
        lambda transcript, _: found(wanted, [call.name for call in transcript.calls_by_start]),
        # A call that is not here may lie between two that are.
        Evidence.ABSENCE if strict else Evidence.NONE,
        explain,
        Evidence.ABSENCE,
    )


def _in_order(wanted: list[str], called: list[str]) -> bool:
    rest = iter(called)
    return all(name in rest for name in wanted)


def _directly(wanted: list[str], called: list[str]) -> bool:
    return any(called[place : place + len(wanted)] == wanted for place in range(len(called)))


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


def no_unresolved_calls() -> Check:
    """Hold when every tool call has an outcome, good or bad: those in the trace, and those a model asked for."""

    def test(transcript: Transcript, _: ConversationLog) -> bool:
        completeness = transcript.completeness or {}
        if completeness.get("unresolved_calls"):
            return False
        if completeness.get(UNPLACED_CALLS):
            raise EvidenceError(
                f"of which turn these calls are is not known: {', '.join(completeness[UNPLACED_CALLS])}"
            )
        silent = [call.name for call in transcript.tool_calls if call.outcome_unknown and call.result is None]
        if silent:
            raise EvidenceError(f"the trace does not tell what came of {', '.join(dict.fromkeys(silent))}")
        return True

    return EvidencedCheck(
        "no_unresolved_calls()",
        test,
        Evidence.ABSENCE,
        lambda transcript, _: (
            "asked for, and neither run nor answered: "
            + ", ".join((transcript.completeness or {}).get("unresolved_calls") or ())
        ),
        Evidence.ABSENCE,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def _shown(calls: Sequence[ToolInvocation]) -> str:
    texts = [shown(call.args) for call in calls[:_SHOWN_CALLS]]
    more = [f"and {len(calls) - _SHOWN_CALLS} more"] if len(calls) > _SHOWN_CALLS else []
    return "; ".join([*texts, *more]) or "no call"
