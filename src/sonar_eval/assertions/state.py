"""Checks on the state that the bot left behind, as its adapter's `snapshot` showed it before teardown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..conversation import ConversationLog
from ..errors import ConfigError
from ..transcript import Transcript
from .contract import Check, Finding, ReasonedCheck, require_predicate, says_yes
from .matching import differences

_SHOWN = 8


def final_state(expected: Any = None, *, predicate: Callable[[Any], bool] | None = None) -> Check:
    """Hold when the state after the last turn contains `expected`, and `predicate` says yes to it.

    Objects may hold more than expected, on every level; lists must be as long. A callable as `expected` is taken as
    the predicate. Unknown when the adapter has no `snapshot`, or it failed.
    """
    if callable(expected) and predicate is None:
        expected, predicate = None, expected
    if expected is None and predicate is None:
        raise ConfigError("final_state needs expected or predicate")
    if predicate is not None:
        require_predicate("final_state", predicate)
    try:
        # As the snapshot is: keys are texts, tuples are lists.
        wanted = json.loads(json.dumps(expected, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"final_state: expected must be plain JSON values: {error}") from error

    def reason(_: Transcript, log: ConversationLog) -> Finding:
        if log.final_state is None:
            return Finding(None, "there is no snapshot of the bot's state")
        against = list(differences(wanted, log.final_state)) if wanted is not None else []
        if predicate is not None and not says_yes(predicate, log.final_state):
            against.append(f"{_name(predicate)} says no to it")
        more = f"; and {len(against) - _SHOWN} more" if len(against) > _SHOWN else ""
        return Finding(not against, "", "; ".join(against[:_SHOWN]) + more)

    return ReasonedCheck(f"final_state({_name(predicate) if wanted is None else json.dumps(wanted)})", reason)


def _name(predicate: Any) -> str:
    return str(getattr(predicate, "__name__", "the predicate"))
