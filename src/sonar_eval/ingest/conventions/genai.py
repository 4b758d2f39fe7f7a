"""OpenTelemetry's GenAI conventions: current names first, then the older ones still in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..span import Span
from ..values import count, label, plain
from .contract import Convention, MessageReading, Reading, finish_reason
from .messages import read_messages

_KINDS = {
    "execute_tool": "tool",
    **dict.fromkeys(("chat", "text_completion", "generate_content"), "llm"),
    # litellm names its own function here.
    **dict.fromkeys(("completion", "acompletion", "atext_completion", "responses", "aresponses"), "llm"),
    **dict.fromkeys(("invoke_agent", "invoke_workflow"), "agent"),
    "embeddings": "embedding",
    **dict.fromkeys(("retrieval", "search_memory"), "retriever"),
    "create_agent": "other",
}
_NO_ID = (None, "<not specified>")
# The convention's name, that of OpenLLMetry and Strands, and those of pydantic-ai.
_CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cached_tokens",
)
_CACHED_IN_SUM = (
    "gen_ai.aggregated_usage.cache_read.input_tokens",
    "gen_ai.aggregated_usage.details.cache_read_tokens",
)
_DETAILS = "gen_ai.client.inference.operation.details"


class GenAI(Convention):
    """Read the `gen_ai.*` attributes, and the event that carries messages instead of them."""

    kind_rank = 2

    def kind(self, span: Span) -> str | None:
        """Tell by the operation; frameworks put names of their own there, all of them steps of some chain."""
        operation = span.attributes.get("gen_ai.operation.name")
        if not isinstance(operation, str) or not operation:
            return None
        return _KINDS.get(operation, "other" if "memory" in operation else "chain")

    def read(self, span: Span, kind: str) -> Reading | None:
        """Say what the span holds, by what it is."""
        if kind == "tool":
            return _tool(span)
        return _usage(span, kind) if kind in ("llm", "agent") else None

    def messages(self, span: Span) -> Iterator[MessageReading]:
        """Read messages from attributes and events."""
        return _messages(span)


def _tool(span: Span) -> Reading:
    call_id = label(span.first("gen_ai.tool.call.id"))
    reading = Reading(
        tool_name=label(span.first("gen_ai.tool.name")),
        call_id=None if call_id in _NO_ID else call_id,
        arguments=span.first("gen_ai.tool.call.arguments", "tool_arguments", "gen_ai.tool.arguments"),
        result=span.first("gen_ai.tool.call.result", "tool_response", "gen_ai.tool.result"),
    )
    if reading.arguments is None or reading.result is None:
        for message in _messages(span):
            if message.kind == "tool_arguments" and reading.arguments is None:
                reading.arguments = message.value
            if message.kind == "tool_result" and reading.result is None:
                reading.result = message.value
    return reading


def _usage(span: Span, kind: str) -> Reading:
    summed = kind == "agent"
    reasons = plain(span.first("gen_ai.response.finish_reasons")).value
    return Reading(
        input_tokens=_tokens(span, "input_tokens", "prompt_tokens", summed=summed),
        output_tokens=_tokens(span, "output_tokens", "completion_tokens", summed=summed),
        cached_tokens=_first_count(span, [*_CACHED, *(_CACHED_IN_SUM if summed else ())]),
        model=label(span.first("gen_ai.response.model", "gen_ai.request.model")),
        response_id=label(span.first("gen_ai.response.id")),
        finish_reason=finish_reason(reasons if isinstance(reasons, list) else [reasons]),
    )


def _tokens(span: Span, name: str, old_name: str, *, summed: bool) -> int | None:
    keys = [f"gen_ai.usage.{name}", f"gen_ai.usage.{old_name}"]
    if summed:
        keys.append(f"gen_ai.aggregated_usage.{name}")
    return _first_count(span, keys)


def _first_count(span: Span, keys: list[str]) -> int | None:
    return next((found for key in keys if (found := count(span.attributes.get(key))) is not None), None)


def _messages(span: Span) -> Iterator[MessageReading]:
    """Read messages from the attributes and from the events that carry some of them; Strands sends one event each."""
    sources: list[dict[str, Any]] = [span.attributes]
    sources += [event.attributes for event in span.events if event.name == _DETAILS]
    for key, role, output in (
        ("gen_ai.system_instructions", "system", False),
        ("gen_ai.input.messages", "user", False),
        ("gen_ai.output.messages", "assistant", True),
    ):
        for source in sources:
            yield from read_messages(source.get(key), role=role, output=output)
