"""Faults: what to break, in which call, and a record of what really broke.

Both halves of the wire form stand here, so that the harness and the bot's own process read one file.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from .errors import InjectedFault

__all__ = [
    "Action",
    "DecisionKind",
    "FaultLedger",
    "FaultRule",
    "FaultSpec",
    "Fidelity",
    "Firing",
    "InjectedFault",
    "InterceptDecision",
    "ProxyInterceptor",
    "RuleReport",
    "ToolCall",
    "ToolInterceptor",
    "deserialize_faults",
    "fault_attributes",
    "rule_reports",
    "serialize_faults",
]

FAULT_ACTION = "sonar.eval.fault.action"
FAULT_RULE = "sonar.eval.fault.rule"
FAULT_CALL = "sonar.eval.fault.call_index"


class Fidelity(StrEnum):
    """How faults reach the tools."""

    REAL = "real"
    """Posted to the bot's own process, whose tool dispatch honours them."""
    MOCKED = "mocked"
    """Applied in this process by an interceptor."""


class Action(StrEnum):
    """What a fault does to a call."""

    ERROR = "error"
    TIMEOUT = "timeout"
    REPLACE_OUTPUT = "replace_output"
    LATENCY = "latency"


class DecisionKind(StrEnum):
    """What is to happen to one call."""

    PASSTHROUGH = "passthrough"
    REPLACE = "replace"
    RAISE = "raise"
    DELAY = "delay"


@dataclass(frozen=True)
class ToolCall:
    """A call on its way to a tool; `call_index` is 0-based per target."""

    target: str
    args: dict[str, Any] = field(default_factory=dict)
    call_index: int = 0


@dataclass(frozen=True)
class FaultRule:
    """Break calls of the tool `target`: all of them, the one of `when_call_index`, or those `when` picks.

    `payload` is the output for `REPLACE_OUTPUT`, seconds for `LATENCY`, and a text for the two that raise.
    Raises `ValueError` for seconds, or an index, below 0 or of the wrong type.
    """

    target: str
    action: Action
    when_call_index: int | None = None
    when: Callable[[ToolCall], bool] | None = None
    payload: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", Action(self.action))
        index = self.when_call_index
        if index is not None and (isinstance(index, bool) or not isinstance(index, int) or index < 0):
            raise ValueError(
                f"fault rule for {self.target!r}: when_call_index must be a whole number >= 0, got {index!r}"
            )
        if self.action is Action.LATENCY and not _is_duration(self.payload):
            raise ValueError(
                f"fault rule for {self.target!r}: latency wants seconds as a number >= 0, got {self.payload!r}"
            )

    def matches(self, call: ToolCall) -> bool:
        """Tell whether this rule applies to `call`."""
        if call.target != self.target:
            return False
        if self.when_call_index is not None and call.call_index != self.when_call_index:
            return False
        return self.when is None or bool(self.when(call))


def _is_duration(payload: Any) -> bool:
    if payload is None:
        return True
    if isinstance(payload, bool) or not isinstance(payload, int | float):
        return False
    return math.isfinite(payload) and payload >= 0


@dataclass(frozen=True)
class Firing:
    """One fault that took place."""

    rule: int
    target: str
    action: Action
    call_index: int


class FaultLedger:
    """What became of the calls of one trial, whichever interceptor saw them; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}
        self._firings: list[Firing] = []

    def count(self, target: str) -> int:
        """Count a call of `target` and return how many there were before it."""
        with self._lock:
            index = self._seen.get(target, 0)
            self._seen[target] = index + 1
            return index

    def note(self, firing: Firing) -> None:
        """Note a fault that took place."""
        with self._lock:
            self._firings.append(firing)

    @property
    def firings(self) -> tuple[Firing, ...]:
        """Every fault that took place so far, in order."""
        with self._lock:
            return tuple(self._firings)

    @property
    def calls_seen(self) -> dict[str, int]:
        """How often each target was called so far."""
        with self._lock:
            return dict(self._seen)


@dataclass(frozen=True)
class FaultSpec:
    """The faults of one scenario; of several rules that match a call, the first decides alone."""

    rules: tuple[FaultRule, ...] = ()
    ledger: FaultLedger | None = field(default=None, compare=False, repr=False)
    """Set for a trial: interceptors that an adapter makes of its own note here what they did."""


@dataclass(frozen=True)
class InterceptDecision:
    """What is to happen to a call, and by which rule (its place in the spec)."""

    kind: DecisionKind
    value: Any = None
    rule: int | None = field(default=None, compare=False)
    call_index: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RuleReport:
    """What became of one rule in one trial."""

    rule: int
    target: str
    action: Action
    when_call_index: int | None
    fired: int
    calls_seen: int
    """Calls of the target, hit or not; retries by the bot's framework count."""


class ToolInterceptor(Protocol):
    """Decide what happens to each tool call."""

    def on_tool_call(self, call: ToolCall) -> InterceptDecision:
        """Return the decision for `call`."""
        ...


class ProxyInterceptor:
    """Apply a `FaultSpec` to the calls of one trial, and keep count.

    Safe to share between threads and coroutines: each call of a target gets an index of its own.
    """

    def __init__(self, spec: FaultSpec) -> None:
        self.spec = spec
        # Indices start anew with each interceptor, as they always did; the trial's ledger counts over all.
        self._own = FaultLedger()

    def on_tool_call(self, call: ToolCall) -> InterceptDecision:
        """Count the call and return what the first matching rule says; the index given is ignored."""
        index = self._own.count(call.target)
        if self.spec.ledger is not None:
            self.spec.ledger.count(call.target)
        counted = replace(call, call_index=index)
        for position, rule in enumerate(self.spec.rules):
            if rule.matches(counted):
                self._note(Firing(position, rule.target, rule.action, index))
                return replace(_decision_for(rule), rule=position, call_index=index)
        return InterceptDecision(DecisionKind.PASSTHROUGH, call_index=index)

    def _note(self, firing: Firing) -> None:
        self._own.note(firing)
        if self.spec.ledger is not None:
            self.spec.ledger.note(firing)

    async def run(
        self, target: str, args: Mapping[str, Any], tool: Callable[..., Any]
    ) -> tuple[Any, InterceptDecision]:
        """Call `tool(**args)` under the spec and return its result with the decision.

        A plain function runs in a thread. Raises what the fault or the tool raises; the decision is
        then attached to the exception as `sonar_decision`.
        """
        decision = self.on_tool_call(ToolCall(target, dict(args)))
        if decision.kind is DecisionKind.RAISE:
            decision.value.sonar_decision = decision
            raise decision.value
        if decision.kind is DecisionKind.REPLACE:
            return decision.value, decision
        if decision.kind is DecisionKind.DELAY:
            await asyncio.sleep(decision.value)
        try:
            if inspect.iscoroutinefunction(tool):
                return await tool(**args), decision
            result = await asyncio.to_thread(tool, **args)
            return await result if inspect.isawaitable(result) else result, decision
        except Exception as error:
            error.sonar_decision = decision  # type: ignore[attr-defined]
            raise

    @property
    def firings(self) -> tuple[Firing, ...]:
        """Every fault of this interceptor so far, in order."""
        return self._own.firings

    @property
    def calls_seen(self) -> dict[str, int]:
        """How often each target went through this interceptor so far."""
        return self._own.calls_seen


def rule_reports(
    spec: FaultSpec, firings: Iterable[tuple[int, int]], calls_seen: Mapping[str, int]
) -> list[RuleReport]:
    """Count per rule how often it fired; `firings` are pairs of rule position and call index."""
    fired = [rule for rule, _ in firings]
    return [
        RuleReport(
            position,
            rule.target,
            rule.action,
            rule.when_call_index,
            fired.count(position),
            calls_seen.get(rule.target, 0),
        )
        for position, rule in enumerate(spec.rules)
    ]


def fault_attributes(decision: InterceptDecision, rules: tuple[FaultRule, ...]) -> dict[str, Any]:
    """Return the span attributes that mark a faulted call, empty when no rule applied."""
    if decision.rule is None:
        return {}
    return {
        FAULT_ACTION: rules[decision.rule].action.value,
        FAULT_RULE: decision.rule,
        FAULT_CALL: decision.call_index or 0,
    }


def _decision_for(rule: FaultRule) -> InterceptDecision:
    if rule.action is Action.REPLACE_OUTPUT:
        # A copy: a tool result is often changed in place, and the next call is to see the payload as written.
        return InterceptDecision(DecisionKind.REPLACE, copy.deepcopy(rule.payload))
    if rule.action is Action.LATENCY:
        return InterceptDecision(DecisionKind.DELAY, float(rule.payload or 0.0))
    raised = TimeoutError if rule.action is Action.TIMEOUT else InjectedFault
    said = f": {rule.payload}" if isinstance(rule.payload, str) else ""
    return InterceptDecision(DecisionKind.RAISE, raised(f"injected {rule.action.value} for {rule.target}{said}"))


def serialize_faults(spec: FaultSpec) -> list[dict[str, Any]]:
    """Write the spec as plain JSON values, for a bot in a process of its own.

    Raises `ValueError` on a rule with a `when` predicate, which cannot leave this process.
    """
    for rule in spec.rules:
        if rule.when is not None:
            raise ValueError(
                f"fault rule for {rule.target!r} has a `when` predicate, which works in mocked fidelity only; "
                "use when_call_index where faults are posted to the bot"
            )
    return [
        {
            "target": rule.target,
            "action": rule.action.value,
            "when_call_index": rule.when_call_index,
            "payload": rule.payload,
        }
        for rule in spec.rules
    ]


def deserialize_faults(rows: Iterable[Mapping[str, Any]]) -> FaultSpec:
    """Read what `serialize_faults` wrote; unknown keys are left alone, `ValueError` on an unknown action."""
    return FaultSpec(
        tuple(
            FaultRule(
                str(row["target"]),
                Action(row["action"]),
                when_call_index=row.get("when_call_index"),
                payload=row.get("payload"),
            )
            for row in rows
        )
    )
