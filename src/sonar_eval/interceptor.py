"""Faults put in front of the tools: what happens to each call, and a record of what really broke.

Both halves of the wire form stand here, so that the harness and the bot's own process read one file.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from .errors import HarnessError, InjectedFault, describe, in_thread
from .fault import (
    Action,
    FaultLedger,
    FaultRule,
    FaultSpec,
    Fidelity,
    Firing,
    RuleReport,
    ToolCall,
    damage_of,
    draw,
)

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


class DecisionKind(StrEnum):
    """What is to happen to one call."""

    PASSTHROUGH = "passthrough"
    REPLACE = "replace"
    RAISE = "raise"
    DELAY = "delay"
    ALTER = "alter"
    """The call takes place; `value` makes of its output what the bot gets."""


@dataclass(frozen=True)
class InterceptDecision:
    """What is to happen to a call, and by which rule (its place in the spec)."""

    kind: DecisionKind
    value: Any = None
    rule: int | None = field(default=None, compare=False)
    call_index: int | None = field(default=None, compare=False)

    @classmethod
    def passthrough(cls) -> InterceptDecision:
        """Let the call take place as it is."""
        return cls(DecisionKind.PASSTHROUGH)

    @classmethod
    def replace(cls, output: Any) -> InterceptDecision:
        """Give `output` without a call."""
        return cls(DecisionKind.REPLACE, output)

    @classmethod
    def raise_(cls, exc: BaseException) -> InterceptDecision:
        """Raise `exc` without a call."""
        return cls(DecisionKind.RAISE, exc)

    @classmethod
    def delay(cls, seconds: float) -> InterceptDecision:
        """Let the call take place after `seconds`."""
        return cls(DecisionKind.DELAY, seconds)


class ToolInterceptor(Protocol):
    """Decide what happens to each tool call."""

    def on_tool_call(self, call: ToolCall) -> InterceptDecision:
        """Return the decision for `call`."""
        ...


class ProxyInterceptor:
    """Apply a `FaultSpec` to the calls of one trial, and keep count.

    Safe to share between threads and coroutines: each call of a target gets an index of its own.
    """

    def __init__(self, spec: FaultSpec, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.spec = spec
        self._clock = clock
        # Indices start anew with each interceptor, as they always did; the trial's ledger counts over all.
        self._own = FaultLedger()
        self._counting = threading.Lock()

    def on_tool_call(self, call: ToolCall) -> InterceptDecision:
        """Count the call and return what the first matching rule says; the index given is ignored.

        Raises `HarnessError` for a rule whose `when` fails, and notes that in the ledger.
        """
        ledger = self.spec.ledger
        with self._counting:
            index = self._own.count(call.target)
            overall = index if ledger is None else ledger.count(call.target)
        counted = replace(call, call_index=index)
        for position, rule in enumerate(self.spec.rules):
            if self._hits(position, rule, counted):
                self._own.note(Firing(position, rule.target, rule.action, index))
                if ledger is not None:
                    ledger.note(Firing(position, rule.target, rule.action, overall))
                chance = draw(self.spec.seed_of(rule), position, index, "output")
                return replace(_decision_for(rule, chance), rule=position, call_index=index)
        return InterceptDecision(DecisionKind.PASSTHROUGH, call_index=index)

    def _hits(self, position: int, rule: FaultRule, call: ToolCall) -> bool:
        if call.target != rule.target:
            return False
        try:
            picked = rule.matches(call)
        except Exception as error:
            said = f"fault rule {position} ({rule.action} for {rule.target!r}): its `when` raised {describe(error)}"
            if self.spec.ledger is not None:
                # A bot that takes it for a failure of the tool would hide it.
                self.spec.ledger.note_mistake(said)
            raise HarnessError(said, step="fault rule") from error
        if picked and rule.probability is not None:
            picked = draw(self.spec.seed_of(rule), position, call.call_index, "hit") < rule.probability
        if rule.for_s is None:
            return picked
        return self._own.lasts(position, rule.for_s, self._clock(), begins=picked)

    def call(self, target: str, tool: Callable[..., Any], /, **args: Any) -> Any:
        """Return `tool(**args)` of a plain function, or raise, delay, replace or spoil it as the spec says.

        A delay blocks the thread. Raises `TypeError` for a coroutine function, which `acall` is for; on what a
        fault or the tool raises, the decision is attached as `sonar_decision`.
        """
        return self.run_now(target, args, tool)[0]

    async def acall(self, target: str, tool: Callable[..., Any], /, **args: Any) -> Any:
        """Return `await tool(**args)` under the spec, as `call` does; a plain function runs in a thread."""
        return (await self.run(target, args, tool))[0]

    def run_now(self, target: str, args: Mapping[str, Any], tool: Callable[..., Any]) -> tuple[Any, InterceptDecision]:
        """Call a plain function under the spec and return its result with the decision; `run` without a loop."""
        if inspect.iscoroutinefunction(tool):
            raise TypeError(f"{target}: the tool is a coroutine function; await acall(…) instead of call(…)")
        decision = self.on_tool_call(ToolCall(target, dict(args)))
        if decision.kind is DecisionKind.DELAY:
            time.sleep(decision.value)
        if decision.kind in (DecisionKind.RAISE, DecisionKind.REPLACE):
            return _instead(decision), decision
        try:
            return _altered(tool(**args), decision), decision
        except Exception as error:
            _attach(decision, error)
            raise

    async def run(
        self, target: str, args: Mapping[str, Any], tool: Callable[..., Any]
    ) -> tuple[Any, InterceptDecision]:
        """Call `tool(**args)` under the spec and return its result with the decision.

        A plain function runs in a thread. Raises what the fault or the tool raises, but `RuntimeError` for a
        `StopIteration`; the decision is then attached to the exception as `sonar_decision`.
        """
        decision = self.on_tool_call(ToolCall(target, dict(args)))
        if decision.kind is DecisionKind.DELAY:
            await asyncio.sleep(decision.value)
        if decision.kind in (DecisionKind.RAISE, DecisionKind.REPLACE):
            return _instead(decision), decision
        try:
            if inspect.iscoroutinefunction(tool):
                result = await tool(**args)
            else:
                result = await in_thread(tool, **args)
                result = await result if inspect.isawaitable(result) else result
            return _altered(result, decision), decision
        except Exception as error:
            _attach(decision, error)
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
            rule.condition,
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


def _instead(decision: InterceptDecision) -> Any:
    """Return, or raise, what stands in for a call that does not take place."""
    if decision.kind is DecisionKind.RAISE:
        decision.value.sonar_decision = decision
        raise decision.value
    return decision.value


def _attach(decision: InterceptDecision, error: Exception) -> None:
    # Past a `__setattr__` of its own: a frozen one would raise in place of the tool's error.
    with suppress(AttributeError, TypeError):
        object.__setattr__(error, "sonar_decision", decision)


def _altered(result: Any, decision: InterceptDecision) -> Any:
    return decision.value(result) if decision.kind is DecisionKind.ALTER else result


def _decision_for(rule: FaultRule, chance: float) -> InterceptDecision:
    if rule.action in (Action.CORRUPT, Action.TRUNCATE):
        return InterceptDecision(DecisionKind.ALTER, damage_of(rule, chance))
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

    Raises `ValueError` on what cannot leave this process: a `when` predicate, or a payload that is no JSON.
    """
    return [_write_rule(spec, rule) for rule in spec.rules]


def _write_rule(spec: FaultSpec, rule: FaultRule) -> dict[str, Any]:
    if rule.when is not None:
        raise ValueError(
            f"fault rule for {rule.target!r} has a `when` predicate, which works in mocked fidelity only; "
            "use when_call_index where faults are posted to the bot"
        )
    try:
        json.dumps(rule.payload, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"fault rule for {rule.target!r}: where faults are posted to the bot, the payload must be JSON: {error}"
        ) from error
    row = {
        "target": rule.target,
        "action": rule.action.value,
        "when_call_index": rule.when_call_index,
        "payload": rule.payload,
    }
    drawn_from = rule.seed if rule.seed is not None else spec.seed
    further = {**{name: getattr(rule, name) for name in _CONDITIONS}, "seed": drawn_from if rule.draws else None}
    return {**row, **{name: value for name, value in further.items() if value is not None}}


_CONDITIONS = ("first", "probability", "for_s")


def deserialize_faults(rows: Iterable[Mapping[str, Any]]) -> FaultSpec:
    """Read what `serialize_faults` wrote; unknown keys are left alone, `ValueError` on an unknown action."""
    return FaultSpec(
        tuple(
            FaultRule(
                str(row["target"]),
                Action(row["action"]),
                when_call_index=row.get("when_call_index"),
                payload=row.get("payload"),
                seed=row.get("seed"),
                **{name: row.get(name) for name in _CONDITIONS},
            )
            for row in rows
        )
    )
