"""Strands Agents: what its spans say of a tool's outcome."""

from __future__ import annotations

from ..span import Span
from .contract import Convention, Reading

_STATUS = "gen_ai.tool.status"
_CANCELLATION = "strands.cancellation.type"


class Strands(Convention):
    """Read the status of a tool, and whether it was called off."""

    roots = frozenset(("gen_ai.tool", "strands"))

    def read(self, span: Span, kind: str) -> Reading | None:
        """Say what became of a tool."""
        if kind != "tool":
            return None
        return Reading(
            failure=_STATUS if span.attributes.get(_STATUS) == "error" else None,
            unsettled=_CANCELLATION if span.first(_CANCELLATION) else None,
        )
