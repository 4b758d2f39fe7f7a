"""Whether another trial may start, and why not; and how trials under way are ended."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .assertions import Severity
from .budget import Budget
from .results import TrialResult

INTERRUPTED = "interrupted"


class Brake:
    """Let trials of one scenario start, until there is a reason not to."""

    def __init__(self, budget: Budget, *, stop_early: bool = False) -> None:
        self.budget = budget
        self.reason: str | None = None
        self.decided = False
        """Whether the reason is that a safety verdict can no longer change."""
        self._stop_early = stop_early
        self._under_way = 0

    def pull(self, reason: str) -> None:
        """Let no further trial start; the first reason holds."""
        if self.reason is None:
            self.reason = reason

    def start(self) -> bool:
        """Tell whether another trial may start, and count it as under way when it may."""
        if self.reason is None and not self.budget.allows(self._under_way):
            self.pull(self.budget.words)
        if self.reason is not None:
            return False
        self._under_way += 1
        return True

    def end(self) -> None:
        """Count a trial as no longer under way."""
        self._under_way -= 1

    def look(self, trial: TrialResult) -> None:
        """Take note of what a finished trial means for those that have not started."""
        if not self._stop_early or not trial.counted or self.reason is not None:
            return
        failed = [
            result.name
            for result in trial.assertions
            if result.severity is Severity.SAFETY_CRITICAL and not result.passed and not result.unknown
        ]
        if failed:
            self.decided = True
            self.pull(f"decided: {failed[0]} did not hold in trial {trial.index + 1}")


class Shelter:
    """Cancel the tasks of trials, but none while it releases what its trial holds."""

    def __init__(self) -> None:
        self._inside: set[asyncio.Task[Any]] = set()
        self._doomed: set[asyncio.Task[Any]] = set()
        self._asked: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Put off a cancellation of the current task until the block is done."""
        task = asyncio.current_task()
        assert task is not None
        self._inside.add(task)
        try:
            yield
        finally:
            self._inside.discard(task)
            if task in self._doomed:
                self._doomed.discard(task)
                task.cancel()

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task, at once or when it leaves the block."""
        self._asked.add(task)
        if task in self._inside:
            self._doomed.add(task)
        else:
            task.cancel()

    def has_asked(self) -> bool:
        """Tell whether the current task was cancelled here; any other cancellation of it is the work of its trial."""
        return asyncio.current_task() in self._asked
