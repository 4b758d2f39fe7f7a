"""Handing records to a store without stalling the loop: those that come during a write share the next one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from .store import ResultStore


@dataclass
class _Entry:
    save: Callable[[dict[str, Any]], None]
    record: dict[str, Any]
    kept: asyncio.Future[None]
    failure: BaseException | None = None


class Recorder:
    """Keep records in `store`, from one thread at a time; whoever hands one over is told when it is kept.

    A store with `together()`, as `JSONFileStore` has, is asked for one sync per write. What was handed over is
    kept even when whoever waits for it is cancelled.
    """

    def __init__(self, store: ResultStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._waiting: list[_Entry] = []
        self._busy = False

    async def keep_trial(self, record: dict[str, Any]) -> None:
        """Return once the trial's record is kept; raises what the store does."""
        await self._keep(self._store.save_trial, record)

    async def keep_scenario(self, record: dict[str, Any]) -> None:
        """Return once the scenario's record is kept; raises what the store does."""
        await self._keep(self._store.save_scenario, record)

    async def _keep(self, save: Callable[[dict[str, Any]], None], record: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        entry = _Entry(save, record, loop.create_future())
        with self._lock:
            self._waiting.append(entry)
            idle, self._busy = not self._busy, True
        if idle:
            # The thread takes what comes meanwhile as well: no task is needed that a cancellation could end.
            try:
                loop.run_in_executor(None, self._write)
            except RuntimeError:
                # No thread is to be had when the process ends.
                self._write()
        await entry.kept

    def _write(self) -> None:
        while entries := self._take():
            try:
                self._save(entries)
            except BaseException as error:
                for entry in entries:
                    entry.failure = entry.failure or error
            for loop in {entry.kept.get_loop() for entry in entries}:
                # A loop that is closed has nobody left who waits.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(_tell, [entry for entry in entries if entry.kept.get_loop() is loop])

    def _take(self) -> list[_Entry]:
        with self._lock:
            entries, self._waiting = self._waiting, []
            self._busy = bool(entries)
            return entries

    def _save(self, entries: Sequence[_Entry]) -> None:
        together = getattr(self._store, "together", nullcontext)
        with together():
            for entry in entries:
                try:
                    entry.save(entry.record)
                except BaseException as error:
                    entry.failure = error


def _tell(entries: Sequence[_Entry]) -> None:
    for entry in entries:
        if entry.kept.done():
            continue
        if entry.failure is None:
            entry.kept.set_result(None)
        else:
            entry.kept.set_exception(_settable(entry.failure))


def _settable(error: BaseException) -> BaseException:
    # A future takes any error but this one, and would leave whoever waits for it waiting.
    return RuntimeError(f"the store raised {error!r}") if isinstance(error, StopIteration) else error
