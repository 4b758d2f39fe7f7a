"""Tier 1: checks over what happened, and an engine that never raises.

A check is any `Callable[[Transcript, ConversationLog], bool]`. Those made here also say what evidence they
rest on, so that the engine can tell "it held" from "nothing is known to the contrary".
"""

from ..conversation import ConversationLog
from ..transcript import ToolInvocation, Transcript
from .catalog import CHECKS
from .combine import all_of, any_of, negate
from .contract import WARNING, Assertion, AssertionResult, Check, EvidenceError, Finding, Severity
from .engine import AssertionEngine
from .evidence import Evidence, EvidencedCheck
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

__all__ = [
    "CHECKS",
    "WARNING",
    "Assertion",
    "AssertionEngine",
    "AssertionResult",
    "Check",
    "ConversationLog",
    "Evidence",
    "EvidenceError",
    "EvidencedCheck",
    "Finding",
    "Severity",
    "ToolInvocation",
    "Transcript",
    "all_of",
    "any_of",
    "at_turn",
    "bot_never_said",
    "bot_said",
    "conversation_finished",
    "final_state",
    "max_cost",
    "max_latency",
    "max_total_tokens",
    "max_turns",
    "negate",
    "no_tool_errors",
    "no_unresolved_calls",
    "recovered_from_fault",
    "tool_call_count",
    "tool_called_with",
    "tool_not_called",
    "tool_order",
    "tool_was_called",
]
