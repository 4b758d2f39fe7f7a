"""Time limits: of one step, and of a trial or job across steps, with whose time it was that ran out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType

from .errors import Owner, border_error, crossed
from .patience import StepClock, begin_step, end_step


class within:  # reads as a word where it is used
    """Raise `TimeoutError` with `what` and the limit when the block takes longer; other timeouts keep their words.

    Waits for a provider that is busy or not there do not count. A block that ends too late without having been struck,
    because it blocked the loop, swallowed its cancellation, or was only charged at its end, has taken longer all the
    same.
    """

    # A class, for it is entered twice in every turn, and a generator in its place takes several times as long.
    def __init__(self, limit_s: float | None, what: str) -> None:
        self._limit_s = limit_s
        self._what = what
        self._limit = asyncio.timeout(limit_s or None)

    async def __aenter__(self) -> StepClock:
        """Start the clock of the step, and return it."""
        self._clock = StepClock(self._limit)
        self._token = begin_step(self._clock)
        await self._limit.__aenter__()
        return self._clock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as struck:
            raise TimeoutError(f"{self._what} {self._limit_s:g} s") from struck
        finally:
            end_step(self._token)
        if isinstance(error, TimeoutError) and self._limit.expired():
            raise TimeoutError(f"{self._what} {self._limit_s:g} s") from error
        if error is None and self._limit_s and self._clock.taken_s > self._limit_s:
            raise TimeoutError(f"{self._what} {self._limit_s:g} s")


@dataclass(frozen=True)
class Deadline:
    """The moment by which a trial must be over, by the clock of the running loop."""

    when: float
    said: str
    owner: Owner | None = None
    """Who is to blame; None for whoever is at work when it passes."""

    @classmethod
    def after(cls, limit_s: float | None, what: str, owner: Owner | None = None) -> Deadline | None:
        """Set one `limit_s` from now; None without a limit."""
        if limit_s is None:
            return None
        return cls(asyncio.get_running_loop().time() + limit_s, f"the {what} time limit of {limit_s:g} s", owner)

    @property
    def passed(self) -> bool:
        """Tell whether it is over."""
        return asyncio.get_running_loop().time() >= self.when


_JOB: ContextVar[Deadline | None] = ContextVar("job", default=None)
_UNTIL: ContextVar[Deadline | None] = ContextVar("until", default=None)


@asynccontextmanager
async def job_limit(limit_s: float | None) -> AsyncIterator[None]:
    """Set the deadline of every trial that is started within the block, in whatever task."""
    token = _JOB.set(Deadline.after(limit_s, "job's", Owner.HARNESS))
    try:
        yield
    finally:
        _JOB.reset(token)


def job_deadline() -> Deadline | None:
    """Return the deadline of the job that this trial is part of; None when there is none."""
    return _JOB.get()


def job_over() -> bool:
    """Tell whether the job's time is over, so that nothing more may be started."""
    deadline = _JOB.get()
    return deadline is not None and deadline.passed


@asynccontextmanager
async def until(*deadlines: Deadline | None) -> AsyncIterator[None]:
    """End the block at the first of the deadlines, with the error of whoever it is to blame for it."""
    first = min((deadline for deadline in deadlines if deadline), key=lambda deadline: deadline.when, default=None)
    if first is None:
        yield
        return
    if first.passed:
        raise border_error(first.owner or Owner.HARNESS, f"{first.said} was reached", step="trial")
    limit = asyncio.timeout_at(first.when)
    token = _UNTIL.set(first)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        owner, step = crossed(error.__cause__) or (Owner.HARNESS, "trial")
        raise border_error(first.owner or owner, f"{first.said} was reached", step=step) from error
    finally:
        _UNTIL.reset(token)


def require_time() -> None:
    """Raise when the time of `until` is over all the same, with the error of whoever is at work or of who is to blame.

    To be asked after a step that may block the loop or swallow its cancellation, and so ends late without a word.
    """
    deadline = _UNTIL.get()
    if deadline is None or not deadline.passed:
        return
    said = f"{deadline.said} was reached"
    raise border_error(deadline.owner, said, step="trial") if deadline.owner else TimeoutError(said)
