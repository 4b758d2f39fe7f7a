"""The state a bot leaves behind, as far as its adapter shows it."""

from __future__ import annotations

import inspect
import json
from typing import Any

from .contract import BotAdapter, Session


async def take_snapshot(adapter: BotAdapter, session: Session) -> Any:
    """Ask the adapter's optional `snapshot(session)`, plain or async, for plain JSON values; None without one.

    Raises what the adapter does, and `TypeError` for a state that cannot be written as JSON.
    """
    snapshot = getattr(adapter, "snapshot", None)
    if snapshot is None:
        return None
    # Not in a thread: what a bot holds, such as a connection to SQLite, often belongs to the one it was made in.
    state = snapshot(session)
    return as_json(await state if inspect.isawaitable(state) else state)


def as_json(state: Any) -> Any:
    """Return a copy of `state` as it reads once it was stored; raises `TypeError` when it is not plain JSON values."""
    try:
        return json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"a snapshot must be plain JSON values: {error}") from error
