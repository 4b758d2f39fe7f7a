"""When spans came, by this server's own monotonic clock, and who waits for more.

Bots' clocks are never asked: they are wrong, and differ. Lives on the event loop; threads may ask, not note.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from .db import Refused
from .span import Span

_REMEMBERED = 20_000
_REFUSALS_REMEMBERED = 1000
_NOBODY = ""
"""Whose key opened nothing: it cannot be told whose requests these were."""

_V = TypeVar("_V")


@dataclass(frozen=True)
class Refusal:
    """A request, or some spans of one, that was not taken; `at` is the monotonic clock."""

    at: float
    status: int
    reason: str


class Watch:
    """Somebody who waits for a conversation to grow; what came since the last wait counts."""

    def __init__(self) -> None:
        self.grown = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Return when the conversation has grown, or after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.grown.wait()
        except TimeoutError:
            pass

    def begin(self) -> None:
        """Say that what came until now is about to be read."""
        self.grown.clear()


class Arrivals:
    """Remember when each conversation and each trace last grew, and wake those who wait for it."""

    def __init__(self) -> None:
        self._forgotten_since = time.monotonic()
        self._last: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._trace_owner: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._watches: dict[tuple[str, str], set[Watch]] = {}
        self._refusals: dict[str, deque[Refusal]] = {}
        self.closing = False

    def note(self, tenant: str, spans: Iterable[Span], *, stored: bool = True) -> None:
        """Take note of spans that were just committed, or (not `stored`) that are about to be.

        Both are wanted: between the commit and its note nobody may take the conversation for quiet.
        """
        now = time.monotonic()
        for conversation in self._grown(tenant, spans):
            key = (tenant, conversation)
            gone = _remember(self._last, key, now)
            if gone is not None:
                # What is not remembered any more is at least as quiet as what was forgotten last.
                self._forgotten_since = gone
            if stored:
                for watch in self._watches.get(key, ()):
                    watch.grown.set()

    def _grown(self, tenant: str, spans: Iterable[Span]) -> set[str]:
        grown = set()
        for span in spans:
            trace = (tenant, span.trace_id)
            conversation = span.conversation_id
            if conversation is not None:
                if self._trace_owner.get(trace) != conversation:
                    _remember(self._trace_owner, trace, conversation)
                grown.add(conversation)
            elif trace in self._trace_owner:
                grown.add(self._trace_owner[trace])
        return grown

    def quiet_s(self, tenant: str, conversation_id: str) -> float:
        """Return the seconds since a conversation last grew; what was before this server started is as old as it."""
        return time.monotonic() - self._last.get((tenant, conversation_id), self._forgotten_since)

    def recall(self, refused: Iterable[Refused]) -> None:
        """Take note of refusals that an earlier server process wrote down."""
        offset = time.monotonic() - time.time()
        for entry in refused:
            self._keep(entry.tenant, Refusal(entry.at + offset, entry.status, entry.reason))

    def refuse(self, tenant: str | None, status: int, reason: str) -> None:
        """Take note that something of a tenant was refused; None when the key was that of no tenant."""
        self._keep(_NOBODY if tenant is None else tenant, Refusal(time.monotonic(), status, reason))

    def _keep(self, tenant: str, refusal: Refusal) -> None:
        self._refusals.setdefault(tenant, deque(maxlen=_REFUSALS_REMEMBERED)).append(refusal)

    def refusals(self, tenant: str | None, *, since: float) -> list[Refusal]:
        """List what was refused since a moment of the monotonic clock."""
        # Copied first: it may be asked from a thread while the loop notes one more.
        noted = tuple(self._refusals.get(_NOBODY if tenant is None else tenant, ()))
        # Copied first: it may be asked from a thread while the loop notes one more.
        noted = tuple(self._refusals.get(_NOBODY if tenant is None else tenant, ()))
        return [refusal for refusal in noted if refusal.at >= since]

    @contextmanager
    def watch(self, tenant: str, conversation_id: str) -> Iterator[Watch]:
        """Watch a conversation from now on, so that nothing is missed between looking and waiting."""
        key, watch = (tenant, conversation_id), Watch()
        self._watches.setdefault(key, set()).add(watch)
        try:
            yield watch
        finally:
            self._watches[key].discard(watch)
            if not self._watches[key]:
                del self._watches[key]

    def close(self) -> None:
        """Let nobody wait any longer: the server is about to stop."""
        self.closing = True
        for watches in self._watches.values():
            for watch in watches:
                watch.grown.set()


def _remember(memory: OrderedDict[tuple[str, str], _V], key: tuple[str, str], value: _V) -> _V | None:
    """Put a value in as the newest; returns the oldest one if it had to go."""
    memory[key] = value
    memory.move_to_end(key)
    return memory.popitem(last=False)[1] if len(memory) > _REMEMBERED else None
