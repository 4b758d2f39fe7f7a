"""The checks that a configuration can name."""

from __future__ import annotations

from collections.abc import Callable

from .combine import all_of, any_of, negate
from .contract import Check
from .faults import recovered_from_fault
from .limits import max_cost, max_latency, max_total_tokens, max_turns
from .speech import bot_never_said, bot_said, conversation_finished
from .state import final_state
from .tools import (
    no_tool_errors,
    no_unresolved_calls,
    tool_call_count,
    tool_called_with,
    tool_not_called,
    tool_order,
    tool_was_called,
)
from .turns import at_turn

CHECKS: dict[str, Callable[..., Check]] = {
    factory.__name__: factory
    for factory in (
        all_of,
        any_of,
        at_turn,
        bot_never_said,
        bot_said,
        conversation_finished,
        final_state,
        max_cost,
        max_latency,
        max_total_tokens,
        max_turns,
        negate,
        no_tool_errors,
        no_unresolved_calls,
        recovered_from_fault,
        tool_call_count,
        tool_called_with,
        tool_not_called,
        tool_order,
        tool_was_called,
    )
}
"""The checks a configuration can name."""
