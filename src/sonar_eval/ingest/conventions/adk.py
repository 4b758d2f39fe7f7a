"""Google's Agent Development Kit: where its tool spans keep what GenAI has other names for."""

from __future__ import annotations

from typing import Any

from ..span import Span
from ..values import plain
from .contract import Convention, Reading

_MERGED = "(merged tools)"


class ADK(Convention):
    """Read the `gcp.vertex.agent.*` attributes."""

    kind_rank = 0
    roots = frozenset(("gcp", "gen_ai.tool"))

    def kind(self, span: Span) -> str | None:
        """Tell only that the span that sums up parallel calls is no call of its own."""
        return "other" if span.attributes.get("gen_ai.tool.name") == _MERGED else None

    def read(self, span: Span, kind: str) -> Reading | None:
        """Take arguments and result of a tool."""
        if kind != "tool":
            return None
        result = span.first("gcp.vertex.agent.tool_response")
        return Reading(
            arguments=span.first("gcp.vertex.agent.tool_call_args"),
            result=None if _is_absent(result) else result,
        )


def _is_absent(result: Any) -> bool:
    return (
        isinstance(result, str) and "<not specified>" in result and plain(result).value == {"result": "<not specified>"}
    )
