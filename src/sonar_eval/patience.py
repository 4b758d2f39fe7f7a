"""Time that is nobody's: the clock of a step stands still while a provider is not there or asks to be left alone.

Without it a rate limit would look like a slow bot, and a provider that hangs like a bot that does. The time in which a
provider works on what it then answers is the step's: it is charged once there is a sign that it does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token


class StepClock:
    """The time of one step, such as a turn of the bot, with its limit where there is one."""

    # Most clocks never stand still, and there are two in every turn.
    _waiting = 0
    _since = _waited_s = _charged_s = 0.0
    _left_s: float | None = None

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._began = time.perf_counter()

    @property
    def taken_s(self) -> float:
        """Tell how long the step has taken, without what does not count."""
        return time.perf_counter() - self._began - self._waited_s

    def charge(self, seconds: float) -> None:
        """Count `seconds` of the time since it stands still after all."""
        self._charged_s += seconds

    def hear(self, seconds: float) -> None:
        """Have the limit strike now if `seconds` more are too many, of the time since the clock stands still."""
        if self._left_s is not None and self._counted(self._charged_s + seconds) > self._left_s:
            self._reschedule(self._loop.time())

    def stop(self) -> None:
        """Stand still; whoever waits at the same time shares it."""
        self._waiting += 1
        if self._waiting > 1:
            return
        self._since, self._charged_s = time.perf_counter(), 0.0
        ends = self._limit.when()
        if ends is not None:
            self._left_s = ends - self._loop.time()
            self._reschedule(None)

    def go_on(self) -> None:
        """Run again, once nobody waits any more."""
        self._waiting -= 1
        if self._waiting:
            return
        counted_s = self._counted(self._charged_s)
        self._waited_s += time.perf_counter() - self._since - counted_s
        if self._left_s is not None:
            self._reschedule(self._loop.time() + self._left_s - counted_s)

    def _counted(self, charged_s: float) -> float:
        """Return what counts of the time since the clock stands still: what was asked for side by side, only once."""
        return min(charged_s, time.perf_counter() - self._since)

    def is_here(self) -> bool:
        """Tell whether this is the step's own event loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _reschedule(self, when: float | None) -> None:
        # Work that outlives its step, or a limit that just struck: there is nothing left to move.
        with suppress(RuntimeError):
            self._limit.reschedule(when)


_step: ContextVar[StepClock | None] = ContextVar("step", default=None)


def begin_step(clock: StepClock) -> Token[StepClock | None]:
    """Let `clock` be that of the step which begins, under a limit that is to be entered next."""
    return _step.set(clock)


def end_step(token: Token[StepClock | None]) -> None:
    """Go back to the step before."""
    _step.reset(token)


@contextmanager
def not_counted() -> Iterator[StepClock | None]:
    """Leave the block out of the time of the step that it is part of, but for what is charged to the step's clock.

    Gives None where there is no step.
    """
    clock = _step.get()
    if clock is None or not clock.is_here():
        yield None
        return
    clock.stop()
    try:
        yield clock
    finally:
        clock.go_on()
