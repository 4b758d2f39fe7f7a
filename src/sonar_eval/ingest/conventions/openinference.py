"""OpenInference: `openinference.span.kind` and flattened `llm.*` attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..span import Span
from ..values import count, label, plain
from .contract import Convention, MessageReading, Reading, finish_reason
from .messages import indexed, read_message

_KINDS = {
    "TOOL": "tool",
    "LLM": "llm",
    "AGENT": "agent",
    "CHAIN": "chain",
    "PROMPT": "chain",
    "RETRIEVER": "retriever",
    "RERANKER": "retriever",
    "EMBEDDING": "embedding",
}
_PLAIN = {f"message.{name}" for name in ("role", "content", "name", "tool_call_id")}


class OpenInference(Convention):
    """Read what Arize's instrumentors and processors write."""

    kind_rank = 1
    roots = frozenset(
        (
            "openinference",
            "llm",
            "input",
            "output",
            "tool",
            "tool_call",
        )
    )

    def kind(self, span: Span) -> str | None:
        """Tell by the span kind; a tool whose name has "agent" in it is stamped an agent, but keeps its tool name."""
        stamped = span.attributes.get("openinference.span.kind")
        if not isinstance(stamped, str) or not stamped:
            return None
        stamped = stamped.upper()
        if stamped in ("AGENT", "CHAIN", "UNKNOWN") and _tool_name(span):
            return "tool"
        return _KINDS.get(stamped, "other")

    def read(self, span: Span, kind: str) -> Reading | None:
        """Say what the span holds, by what it is."""
        if kind == "tool":
            return Reading(
                tool_name=_tool_name(span),
                call_id=label(span.first("tool.id", "tool_call.id")),
                arguments=span.first("input.value"),
                result=span.first("output.value"),
            )
        if kind not in ("llm", "agent"):
            return None
        return Reading(
            input_tokens=count(span.attributes.get("llm.token_count.prompt")),
            output_tokens=count(span.attributes.get("llm.token_count.completion")),
            cached_tokens=count(span.attributes.get("llm.token_count.prompt_details.cache_read")),
            cumulative=_continues(span) if kind == "agent" else None,
            model=label(span.first("llm.model_name")),
            finish_reason=finish_reason([span.attributes.get("llm.finish_reason")]),
        )

    def messages(self, span: Span) -> Iterator[MessageReading]:
        """Read the numbered messages; chains and agents repeat those of the model calls below them."""
        for prefix, output in (("llm.input_messages.", False), ("llm.output_messages.", True)):
            role = "assistant" if output else "user"
            for fields in indexed(span.attributes, prefix):
                yield from read_message(_message(fields), role=role, output=output)


def _tool_name(span: Span) -> str | None:
    name = span.attributes.get("tool.name")
    return label(name) if isinstance(name, str) else None


def _continues(span: Span) -> bool:
    """Tell whether an agent went on with what it had, by the argument smolagents has for that."""
    asked = plain(span.attributes.get("input.value")).value if "llm.token_count.prompt" in span.attributes else None
    return isinstance(asked, dict) and asked.get("reset") is False


def _message(fields: dict[str, Any]) -> dict[str, Any]:
    """Gather one message from its attributes; its text may stand in one place, in several, or in both."""
    message = {name: fields.get(f"message.{name}") for name in ("role", "content", "name", "tool_call_id")}
    if not fields.keys() <= _PLAIN:
        message["tool_calls"] = list(_calls(fields))
        if message["content"] is None:
            texts = indexed(fields, "message.contents.")
            message["content"] = [{"text": text.get("message_content.text")} for text in texts]
    return message


def _calls(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for call in indexed(fields, "message.tool_calls."):
        yield {
            "id": call.get("tool_call.id"),
            "name": call.get("tool_call.function.name"),
            "arguments": call.get("tool_call.function.arguments"),
        }
    if "message.function_call_name" in fields:
        arguments = fields.get("message.function_call_arguments_json")
        yield {"name": fields["message.function_call_name"], "arguments": arguments}
