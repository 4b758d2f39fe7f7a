"""Work in threads, also while the interpreter goes down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

_V = TypeVar("_V")


async def run_in(pool: Executor, work: Callable[[], _V]) -> _V:
    """Do `work` in a thread of the pool, or here and now when no thread takes any more."""
    try:
        doing = asyncio.get_running_loop().run_in_executor(pool, work)
    except RuntimeError:
        # An embedded server outlives the pools of its process by the time between two exit handlers.
        return work()
    try:
        return await doing
    finally:
        # A failure would hold this frame, which holds the future, which holds the failure: and with it what was
        # worked on, until the garbage collector comes by.
        del doing
