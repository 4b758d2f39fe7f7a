"""Ctrl-C while a cell runs: once, its running trials are finished; twice, they are cancelled. And while we exit."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..orchestrator import Orchestrator

log = logging.getLogger(__name__)

_EXIT_S = 2.0


@contextmanager
def listening(orchestrator: Orchestrator) -> Iterator[None]:
    """Let signals stop `orchestrator` while the block runs: the first Ctrl-C gently, a second or SIGTERM at once.

    A third Ctrl-C is Python's own. Off the main thread, where signals cannot be had, nothing is changed.
    """
    loop = asyncio.get_running_loop()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def once() -> None:
        log.warning("finishing the trials under way, then stopping; Ctrl-C again cancels them")
        orchestrator.stop()
        loop.add_signal_handler(signal.SIGINT, at_once)

    def at_once() -> None:
        log.warning("cancelling the trials under way")
        orchestrator.stop(now=True)
        loop.remove_signal_handler(signal.SIGINT)

    try:
        loop.add_signal_handler(signal.SIGINT, once)
        loop.add_signal_handler(signal.SIGTERM, at_once)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        for number, handler in kept.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def exit_undisturbed() -> None:
    """Let no further signal break into an exit that is under way, unless it takes long.

    Whoever presses Ctrl-C twice means the same with both.
    """
    until = time.monotonic() + _EXIT_S

    def pass_over(number: int, frame: FrameType | None) -> None:
        if time.monotonic() > until:
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_over)


def came_of_interrupt(error: BaseException) -> bool:
    """Tell whether an error is only what cleaning up after an interrupt ran into."""
    earlier: BaseException | None = error
    while earlier is not None and not isinstance(earlier, KeyboardInterrupt):
        earlier = earlier.__cause__ or earlier.__context__
    return earlier is not None
