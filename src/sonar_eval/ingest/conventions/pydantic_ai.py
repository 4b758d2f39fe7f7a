"""pydantic-ai: its 1.x spans, which name no operation, and its deferred calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..span import Span
from ..values import count, items, label
from .contract import Convention, MessageReading, Reading
from .genai_events import read_event

_TOTALS = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.aggregated_usage.input_tokens")
_DEFERRAL = "pydantic_ai.tool.deferral.name"


class PydanticAI(Convention):
    """Tell kinds by what else is on a span, once no other convention does."""

    kind_rank = 6

    def kind(self, span: Span) -> str | None:
        """Take a tool's name for a tool, and token totals with an agent's name for that agent."""
        if span.first("gen_ai.tool.name"):
            return "tool"
        is_agent = span.first("agent_name", "gen_ai.agent.name") is not None
        totals = any(count(span.attributes.get(key)) is not None for key in _TOTALS)
        return "agent" if is_agent and totals else None

    def read(self, span: Span, kind: str) -> Reading | None:
        """Say what is left for this convention to say."""
        model, deferral = span.first("model_name"), span.first(_DEFERRAL)
        if model is None and deferral is None:
            return None
        deferred = kind == "tool" and deferral is not None
        return Reading(model=label(model), unsettled=f"deferred: {label(deferral)}" if deferred else None)

    def messages(self, span: Span) -> Iterator[MessageReading]:
        """Read the attribute `events`, which holds GenAI's older events as JSON."""
        entries, _ = items(span.attributes.get("events"))
        for entry in entries:
            if isinstance(entry, Mapping):
                yield from read_event(entry.get("event.name"), entry)
