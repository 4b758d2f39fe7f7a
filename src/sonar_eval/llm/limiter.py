"""How many requests a provider is sent at a time: found out by asking, for all who ask alike."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

Sleep = Callable[[float], Awaitable[None]]

START = 64
MOST = 512


@dataclass
class Waits:
    """How often requests were sent, put off and sent again, and how long was waited in all."""

    requests: int = 0
    """Sent, counting each time that one was sent again."""
    limited: int = 0
    """Answered with a rate limit or an overload."""
    retries: int = 0
    """Sent again, for whatever reason."""
    retry_wait_s: float = 0.0
    queued: int = 0
    """Held back because enough were under way, or the provider had asked to be left alone."""
    queue_wait_s: float = 0.0

    def since(self, earlier: Waits) -> Waits:
        """Return what was added after `earlier`."""
        before = asdict(earlier)
        return Waits(**{name: value - before[name] for name, value in asdict(self).items()})

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.requests} requests to models: {self.limited} rate limited, {self.retries} sent again after "
            f"{self.retry_wait_s:.1f} s of waiting, {self.queued} held back for {self.queue_wait_s:.1f} s"
        )


class WaitCounter:
    """Count waits from any thread; what is counted here is counted in `above` too."""

    def __init__(self, above: WaitCounter | None = None) -> None:
        self._counts = Waits()
        self._above = above
        self._lock = threading.Lock()

    def add(self, **more: float) -> None:
        """Add to the counts that are named."""
        with self._lock:
            for name, value in more.items():
                setattr(self._counts, name, getattr(self._counts, name) + value)
        if self._above is not None:
            self._above.add(**more)

    def read(self) -> Waits:
        """Return the counts as they are now."""
        with self._lock:
            return Waits(**asdict(self._counts))


WAITS = WaitCounter()
"""What all clients of this process waited."""


class Ticket:
    """The right to have one request under way."""

    def __init__(self, epoch: int, loop: asyncio.AbstractEventLoop) -> None:
        self.epoch = epoch
        self.loop = loop
        self.ready: asyncio.Future[None] | None = None


class AdaptiveLimiter:
    """Let `start` requests be under way at a time, fewer after a rate limit, and slowly more while all goes well.

    Grows by one per round of answers and halves per round with a refusal (AIMD: Chiu and Jain, 1989). Never
    below 1, never above `most`. Bound to no event loop: may be shared by threads and by the cells of a notebook.
    """

    def __init__(
        self,
        *,
        start: int = START,
        most: int = MOST,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        waits: WaitCounter | None = None,
    ) -> None:
        self._limit = float(start)
        self._most = most
        self._sleep = sleep
        self._clock = clock
        self._waits = waits or WaitCounter()
        self._lock = threading.Lock()
        self._under_way: set[Ticket] = set()
        self._queue: deque[Ticket] = deque()
        self._quiet_until = 0.0
        self._epoch = 0

    @property
    def limit(self) -> int:
        """Tell how many may be under way."""
        return int(self._limit)

    async def enter(self, rested_until: float = 0.0) -> Ticket:
        """Wait for a place, and for the end of a pause that goes beyond `rested_until`; then `leave` must follow."""
        began = self._clock()
        ticket, waiting = self._line_up()
        try:
            if waiting is not None:
                await waiting
            rested = await self._rest(rested_until)
        except BaseException:
            self._give_back(ticket)
            raise
        if rested or waiting is not None:
            self._waits.add(queued=1, queue_wait_s=self._clock() - began)
        return ticket

    def leave(self, ticket: Ticket, *, limited: bool = False, answered: bool = True) -> None:
        """Give the place back: `limited` narrows the way, an answer widens it, anything else says nothing."""
        with self._lock:
            if limited and ticket.epoch == self._epoch:
                # Requests that were under way together meet the same limit: one lesson, not many.
                self._epoch += 1
                self._limit = max(1.0, self._limit / 2)
            elif answered and not limited and len(self._under_way) >= self.limit:
                self._limit = min(float(self._most), self._limit + 1 / self._limit)
        self._give_back(ticket)

    def pause(self, seconds: float) -> float:
        """Let nobody in for `seconds`, as the provider asked; returns when that ends, for `enter`."""
        with self._lock:
            self._quiet_until = max(self._quiet_until, self._clock() + seconds)
            return self._quiet_until

    async def _rest(self, rested_until: float) -> bool:
        rested = False
        while (until := self._quiet_until) > max(rested_until, self._clock()):
            left = until - self._clock()
            # Those who waited for the same moment must not all come at it.
            await self._sleep(left + random.uniform(0, min(1.0, left)))
            rested, rested_until = True, until
        return rested

    def _line_up(self) -> tuple[Ticket, asyncio.Future[None] | None]:
        loop = asyncio.get_running_loop()
        with self._lock:
            ticket = Ticket(self._epoch, loop)
            self._forget_closed_loops()
            if len(self._under_way) < self.limit and not self._queue:
                self._under_way.add(ticket)
                return ticket, None
            ticket.ready = loop.create_future()
            self._queue.append(ticket)
            self._admit()
            return ticket, ticket.ready

    def _give_back(self, ticket: Ticket) -> None:
        with self._lock:
            self._under_way.discard(ticket)
            if ticket in self._queue:
                self._queue.remove(ticket)
            self._admit()

    def _admit(self) -> None:
        """Let in whom there is room for; those whose loop is closed will never come."""
        while self._queue and len(self._under_way) < self.limit:
            ticket = self._queue.popleft()
            ticket.epoch = self._epoch
            try:
                ticket.loop.call_soon_threadsafe(_open, ticket)
            except RuntimeError:
                continue
            self._under_way.add(ticket)

    def _forget_closed_loops(self) -> None:
        self._under_way = {ticket for ticket in self._under_way if not ticket.loop.is_closed()}


def _open(ticket: Ticket) -> None:
    if ticket.ready is not None and not ticket.ready.done():
        ticket.ready.set_result(None)
