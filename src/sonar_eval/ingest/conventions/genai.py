"""OpenTelemetry's GenAI conventions: current names first, then the older ones still in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..span import Span
from ..values import plain
from .contract import MessageReading, Reading

_KINDS = {
    "execute_tool": "tool",
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "invoke_agent": "agent",
    "invoke_workflow": "agent",
    "embeddings": "embedding",
    "retrieval": "retriever",
    "search_memory": "retriever",
    "create_agent": "other",
}
_NO_ID = ("", "<not specified>")
_DETAILS = "gen_ai.client.inference.operation.details"
_FINISH = {
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "tool-calls", "function_call"), "tool_calls"),
    **dict.fromkeys(("stop", "end_turn", "STOP", "completed"), "stop"),
    **dict.fromkeys(("length", "max_tokens"), "length"),
}


class GenAI:
    """Read the `gen_ai.*` attributes and events."""

    def read(self, span: Span) -> Reading:
        """Say what the span is and, by what it is, what it holds."""
        reading = Reading(kind=_kind(span))
        if reading.kind == "tool":
            _read_tool(span, reading)
        if reading.kind in ("llm", "agent"):
            _read_usage(span, reading)
        if reading.kind == "llm":
            reading.messages = list(_messages(span))
        return reading


def _kind(span: Span) -> str | None:
    operation = span.attributes.get("gen_ai.operation.name")
    if isinstance(operation, str) and operation:
        # Frameworks put values of their own here, all of them steps of some chain.
        return _KINDS.get(operation, "chain")
    return "tool" if span.first("gen_ai.tool.name") else None


def _read_tool(span: Span, reading: Reading) -> None:
    name = span.first("gen_ai.tool.name")
    reading.tool_name = str(name) if name else span.name.removeprefix("execute_tool ")
    call_id = span.first("gen_ai.tool.call.id")
    reading.call_id = None if call_id in _NO_ID else call_id
    reading.arguments = span.first("gen_ai.tool.call.arguments", "tool_arguments", "gen_ai.tool.arguments")
    reading.result = span.first("gen_ai.tool.call.result", "tool_response", "gen_ai.tool.result")
    for event in span.events:
        if event.name == "gen_ai.tool.message" and reading.arguments is None:
            reading.arguments = event.attributes.get("content")
        if event.name == "gen_ai.choice" and reading.result is None:
            reading.result = event.attributes.get("message")
    for message in _messages(span):
        if message.kind == "tool_arguments" and reading.arguments is None:
            reading.arguments = message.value
        if message.kind == "tool_result" and reading.result is None:
            reading.result = message.value
    if span.attributes.get("gen_ai.tool.status") == "error":
        reading.success, reading.success_basis = False, "gen_ai.tool.status"


def _read_usage(span: Span, reading: Reading) -> None:
    reading.input_tokens = _count(span, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
    reading.output_tokens = _count(span, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
    model = span.first("gen_ai.response.model", "gen_ai.request.model")
    reading.model = str(model) if model else None
    reasons = plain(span.first("gen_ai.response.finish_reasons")).value
    if isinstance(reasons, list) and reasons:
        reading.finish_reason = _FINISH.get(str(reasons[0]), str(reasons[0]))


def _count(span: Span, *keys: str) -> int | None:
    value = span.first(*keys)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _messages(span: Span) -> Iterator[MessageReading]:
    """Read messages from the attributes, else from the events that carry them."""
    sources = [span.attributes, *(event.attributes for event in span.events if event.name == _DETAILS)]
    for source in sources:
        yield from _parts(source.get("gen_ai.system_instructions"), role="system")
    for key, output in (("gen_ai.input.messages", False), ("gen_ai.output.messages", True)):
        for source in sources:
            raw = source.get(key)
            if plain(raw).redaction and not _as_list(raw):
                # Withheld or cut: that there was something is all that is left to tell.
                yield MessageReading("assistant" if output else "user", raw, output)
            for message in _as_list(raw):
                if isinstance(message, dict):
                    yield from _parts(message.get("parts"), role=str(message.get("role", "")), output=output)


def _parts(parts: Any, *, role: str, output: bool = False) -> Iterator[MessageReading]:
    for part in _as_list(parts):
        if not isinstance(part, dict):
            continue
        match part.get("type"):
            case "text":
                yield MessageReading(role, part.get("content"), output)
            case "tool_call":
                yield MessageReading(
                    role, part.get("arguments"), output, "tool_arguments", part.get("name"), part.get("id")
                )
            case "tool_call_response":
                result = part.get("response", part.get("result"))
                yield MessageReading(role, result, output, "tool_result", part.get("name"), part.get("id"))


def _as_list(value: Any) -> list[Any]:
    found = plain(value).value
    return found if isinstance(found, list) else []
