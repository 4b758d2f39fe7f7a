"""One thread that writes: whatever waits goes into one transaction, and is answered when it is committed."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from ..span import Span
from .record import Added, Batch
from .store import SpanStore
from .untraced import untraced

log = logging.getLogger(__name__)

_SPANS_PER_COMMIT = 4000
_RESCUE_S = 2.0
_CLOSE_S = 30.0


class WriterClosedError(RuntimeError):
    """The writer is closed: nothing was written, and nothing will be."""


class _Entry(NamedTuple):
    batch: Batch
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Added]


_Outcome = tuple[asyncio.Future[Added], Added | Exception]


class SpanWriter:
    """Write spans to `store` from a thread of its own; `close` writes what still waits."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store
        self._waiting: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="span-writer", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Tell whether what is handed over will be written."""
        return self._thread.is_alive() and not self._closed

    async def add(self, tenant: str, spans: Sequence[Span]) -> Added:
        """Hand over the spans of one request; returns when they are committed, raises what the database raised.

        Who is cancelled while waiting stops waiting; the spans are written nevertheless.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Added] = loop.create_future()
        with self._lock:
            if self._closed:
                raise WriterClosedError("the span writer is closed")
            self._waiting.put(_Entry(Batch(tenant, spans), loop, done))
        return await done

    def close(self) -> None:
        """Write what waits, then end."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            log.error("the span writer did not end within %g s", _CLOSE_S)

    def _work(self) -> None:
        with untraced():
            ending = False
            while not ending:
                group, ending = self._next_group()
                if group:
                    _settle(group, self._commit(group))

    def _next_group(self) -> tuple[list[_Entry], bool]:
        """Wait for an entry and take what else is there; True when it was the last."""
        group: list[_Entry] = []
        size = 0
        entry = self._waiting.get()
        while entry is not None:
            group.append(entry)
            size += len(entry.batch.spans)
            if size >= _SPANS_PER_COMMIT:
                return group, False
            try:
                entry = self._waiting.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _commit(self, group: list[_Entry]) -> Sequence[Added | Exception]:
        began = time.monotonic()
        try:
            return self._store.add_all([entry.batch for entry in group])
        except Exception as error:
            if len(group) == 1 or time.monotonic() - began > _RESCUE_S:
                return [error] * len(group)
            return self._rescue(group, error)

    def _rescue(self, group: list[_Entry], error: Exception) -> list[Added | Exception]:
        """Write request by request: one that cannot be written must not cost its neighbours.

        Not for long: when it is the database that is in trouble, each would wait for it in turn, and all of their
        senders give up before they are told to come again.
        """
        deadline = time.monotonic() + _RESCUE_S
        results: list[Added | Exception] = []
        for entry in group:
            if time.monotonic() > deadline:
                results.append(error)
            else:
                results += self._commit([entry])
        return results


def _settle(group: Sequence[_Entry], results: Sequence[Added | Exception]) -> None:
    """Tell those who wait, with one call into each of their loops."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for entry, result in zip(group, results, strict=True):
        by_loop.setdefault(entry.loop, []).append((entry.done, result))
    for loop, outcomes in by_loop.items():
        try:
            loop.call_soon_threadsafe(_tell, outcomes)
        except RuntimeError:
            log.warning("%d requests were stored for a loop that has ended", len(outcomes))


def _tell(outcomes: Sequence[_Outcome]) -> None:
    for done, result in outcomes:
        if done.done():
            continue
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)
