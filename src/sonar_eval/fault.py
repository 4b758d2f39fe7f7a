"""What to break, in which calls, and what became of it: plain values, and the count of one trial."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .damage import Corruption, Truncation
from .predicate import says_nothing, unfit


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
    CORRUPT = "corrupt"
    """The call takes place; values in its output are wrong, the shape stays."""
    TRUNCATE = "truncate"
    """The call takes place; the end of its output is missing."""


@dataclass(frozen=True)
class ToolCall:
    """A call on its way to a tool; `call_index` is 0-based per target."""

    target: str
    args: dict[str, Any] = field(default_factory=dict)
    call_index: int = 0


@dataclass(frozen=True)
class FaultRule:
    """Break calls of the tool `target`: all of them, or those that every condition given picks.

    `payload` is the output for `REPLACE_OUTPUT`, seconds for `LATENCY`, a text for the two that raise, how many
    values to spoil for `CORRUPT` and the share to keep for `TRUNCATE`. Calls are counted as they reach the tool,
    retries included. Raises `ValueError` for a payload or a condition that makes no sense.
    """

    target: str
    action: Action
    when_call_index: int | None = None
    when: Callable[[ToolCall], bool] | None = None
    payload: Any = None
    first: int | None = None
    """Only the first so many calls of the tool."""
    probability: float | None = None
    """How likely each call is hit; which ones are is settled by the seed and the call's index."""
    for_s: float | None = None
    """From the first call that the other conditions pick, every call for so many seconds."""
    seed: int | None = None
    """For probability, `CORRUPT` and `TRUNCATE`; None takes the trial's, so that trials differ."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", Action(self.action))
        self._require("when_call_index", _is_count(self.when_call_index, 0), "be a whole number >= 0")
        self._require("first", _is_count(self.first, 1), "be a whole number >= 1")
        self._require("probability", _is_number(self.probability, 0, 1), "lie between 0 and 1")
        self._require("for_s", self.for_s != 0 and _is_number(self.for_s, 0), "be seconds, more than 0")
        self._require("seed", _is_count(self.seed), "be a whole number")
        if self.for_s is not None and self.first is not None:
            raise ValueError(f"fault rule for {self.target!r}: first and for_s exclude each other")
        if self.when is not None and (problem := unfit(self.when)):
            raise ValueError(f"fault rule for {self.target!r}: when {problem}")
        wanted = _PAYLOADS.get(self.action)
        if wanted is not None and not wanted[0](self.payload):
            raise ValueError(f"fault rule for {self.target!r}: {self.action} wants {wanted[1]}, got {self.payload!r}")

    def _require(self, name: str, sound: bool, wanted: str) -> None:
        if not sound:
            raise ValueError(f"fault rule for {self.target!r}: {name} must {wanted}, got {getattr(self, name)!r}")

    def matches(self, call: ToolCall) -> bool:
        """Tell whether target, index, `first` and `when` pick `call`; chance and time are the interceptor's.

        Raises what `when` does, and `TypeError` where its answer is neither yes nor no.
        """
        if call.target != self.target:
            return False
        if self.when_call_index is not None and call.call_index != self.when_call_index:
            return False
        if self.first is not None and call.call_index >= self.first:
            return False
        if self.when is None:
            return True
        answer = self.when(call)
        if empty := says_nothing(answer):
            raise TypeError(f"it {empty}")
        return bool(answer)

    @property
    def draws(self) -> bool:
        """Tell whether chance has a part in it."""
        return self.probability is not None or self.action in (Action.CORRUPT, Action.TRUNCATE)

    @property
    def condition(self) -> str:
        """Say in words which calls are meant, beyond the index; empty for all."""
        said = []
        if self.first is not None:
            said.append(f"first {self.first} calls")
        if self.probability is not None:
            said.append(f"probability {self.probability:g}")
        if self.for_s is not None:
            said.append(f"for {self.for_s:g} s")
        return ", ".join(said)


def _is_number(value: Any, least: float, most: float = math.inf) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and least <= value <= most


def _is_count(value: Any, least: float = -math.inf) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least)


_PAYLOADS: dict[Action, tuple[Callable[[Any], bool], str]] = {
    Action.LATENCY: (lambda payload: _is_number(payload, 0), "seconds as a number >= 0"),
    Action.CORRUPT: (lambda payload: _is_count(payload, 1), "how many values to spoil, a whole number >= 1"),
    Action.TRUNCATE: (
        lambda payload: payload != 1 and _is_number(payload, 0, 1),
        "the share to keep, from 0 to less than 1",
    ),
}


@dataclass(frozen=True)
class Firing:
    """One fault that took place."""

    rule: int
    target: str
    action: Action
    call_index: int
    """0-based per target, by the count of whoever kept it: one interceptor, or the ledger of the trial."""


class FaultLedger:
    """What became of the calls of one trial, whichever interceptor saw them; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}
        self._firings: list[Firing] = []
        self._began: dict[int, float] = {}
        self._mistakes: list[str] = []

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

    def lasts(self, rule: int, for_s: float, now: float, *, begins: bool) -> bool:
        """Tell whether the outage of a rule is on; it begins with the first call that `begins` it."""
        with self._lock:
            if rule not in self._began:
                if not begins:
                    return False
                self._began[rule] = now
            return now - self._began[rule] <= for_s

    def note_mistake(self, said: str) -> None:
        """Note that a rule could not be followed, whatever the bot makes of it."""
        with self._lock:
            if said not in self._mistakes:
                self._mistakes.append(said)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """What was wrong with the rules themselves: no failure of the bot's."""
        with self._lock:
            return tuple(self._mistakes)

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
    seed: int | None = field(default=None, compare=False, repr=False)
    """Set for a trial: what its rules draw from, unless they have a seed of their own."""

    def seed_of(self, rule: FaultRule) -> int:
        """Return what a rule draws from."""
        return rule.seed if rule.seed is not None else self.seed or 0


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
    condition: str = ""
    """Which calls were meant, beyond the index; empty for all."""


def draw(seed: int, rule: int, call_index: int, what: str) -> float:
    """Return a number in 0..1 (1 excluded) that hangs on nothing but what is given: no thread can change it."""
    digest = hashlib.sha256(f"{seed}\x00{rule}\x00{call_index}\x00{what}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def damage_of(rule: FaultRule, chance: float) -> Corruption | Truncation:
    """Make what a rule does to an output."""
    seed = int(chance * 2**53)
    if rule.action is Action.CORRUPT:
        return Corruption(seed, 1 if rule.payload is None else rule.payload)
    return Truncation(chance if rule.payload is None else rule.payload)
