"""The Model Context Protocol: a tool that runs on another server."""

from __future__ import annotations

from ..span import Span
from ..values import label
from .contract import Convention, Reading


class MCP(Convention):
    """Read the `mcp.*` attributes; all else on these spans is GenAI's."""

    kind_rank = 5
    roots = frozenset(("mcp",))

    def kind(self, span: Span) -> str | None:
        """Tell by the method."""
        return "tool" if span.attributes.get("mcp.method.name") == "tools/call" else None

    def read(self, span: Span, kind: str) -> Reading | None:
        """Take the tool's name from where older instrumentors put it."""
        if kind != "tool" or "mcp.method.name" not in span.attributes:
            return None
        return Reading(tool_name=label(span.first("mcp.tool.name", "mcp.request.argument.name")))
