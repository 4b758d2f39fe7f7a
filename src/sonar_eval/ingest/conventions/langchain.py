"""LangChain and LangGraph: outcomes that only they have, whoever instruments them."""

from __future__ import annotations

from ..span import Span
from ..values import label
from .contract import Convention, Reading

# How LangGraph hands control over; its instrumentors record them as exceptions on a span that is OK.
_HANDOVERS = ("GraphInterrupt", "NodeInterrupt", "GraphBubbleUp", "ParentCommand", "Command")


class LangChain(Convention):
    """Read what is behind the outcome of a tool."""

    def read(self, span: Span, kind: str) -> Reading | None:
        """Tell a handover from a failure, and that a failure may show in the result alone."""
        if kind != "tool" or not (span.events or "lang" in span.scope):
            return None
        raised = next(
            (event.attributes.get("exception.type") for event in span.events if event.name == "exception"), ""
        )
        name = (label(raised) or "").rpartition(".")[2]
        return Reading(
            unsettled=name if name in _HANDOVERS else None,
            told_by_result=("langchain" in span.scope or "langgraph" in span.scope) or None,
        )
