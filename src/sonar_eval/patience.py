"""Time that is not the bot's: a turn's clock stands still while a provider asks to be left alone.

Without it a rate limit would look like a slow bot, or one that hangs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar


class StepClock:
    """The time of one step, such as a turn of the bot, with its limit where there is one."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._began = time.perf_counter()
        self._waiting = 0
        self._since = self._waited_s = 0.0
        self._left_s: float | None = None

    @property
    def taken_s(self) -> float:
        """Tell how long the step has taken, without what does not count."""
        return time.perf_counter() - self._began - self._waited_s

    def stop(self) -> None:
        """Stand still; whoever waits at the same time shares it."""
        self._waiting += 1
        if self._waiting > 1:
            return
        self._since = time.perf_counter()
        ends = self._limit.when()
        if ends is not None:
            self._left_s = ends - self._loop.time()
            self._reschedule(None)

    def go_on(self) -> None:
        """Run again, once nobody waits any more."""
        self._waiting -= 1
        if self._waiting:
            return
        self._waited_s += time.perf_counter() - self._since
        if self._left_s is not None:
            self._reschedule(self._loop.time() + self._left_s)

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


@contextmanager
def step_clock(limit: asyncio.Timeout) -> Iterator[StepClock]:
    """Time a step under `limit`, which must be entered within the block."""
    clock = StepClock(limit)
    token = _step.set(clock)
    try:
        yield clock
    finally:
        _step.reset(token)


@contextmanager
def not_counted() -> Iterator[None]:
    """Leave what happens in the block out of the time of the turn that it is part of, if it is part of one."""
    clock = _step.get()
    if clock is None or not clock.is_here():
        yield
        return
    clock.stop()
    try:
        yield
    finally:
        clock.go_on()
