"""Vercel's AI SDK: `ai.*` attributes on spans named after its functions."""

from __future__ import annotations

from collections.abc import Iterator

from ..span import Span
from ..values import count, items, label
from .contract import Convention, MessageReading, Reading, finish_reason
from .messages import read_message, read_messages

_AGENTS = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")


class Vercel(Convention):
    """Read the telemetry of `generateText` and its like; `operation.name` there is not GenAI's."""

    kind_rank = 4
    roots = frozenset(("ai",))

    def kind(self, span: Span) -> str | None:
        """Tell by the function."""
        operation = span.attributes.get("ai.operationId")
        if not isinstance(operation, str):
            return None
        if operation == "ai.toolCall":
            return "tool"
        if operation.endswith((".doGenerate", ".doStream")):
            return "llm"
        if operation.endswith(".doEmbed"):
            return "embedding"
        return "agent" if operation in _AGENTS else None

    def read(self, span: Span, kind: str) -> Reading | None:
        """Say what the span holds, by what it is."""
        if kind == "tool":
            return Reading(
                tool_name=label(span.first("ai.toolCall.name")),
                call_id=label(span.first("ai.toolCall.id")),
                arguments=span.first("ai.toolCall.args"),
                result=span.first("ai.toolCall.result"),
            )
        if kind not in ("llm", "agent"):
            return None
        return Reading(
            input_tokens=count(span.first("ai.usage.inputTokens", "ai.usage.promptTokens")),
            output_tokens=count(span.first("ai.usage.outputTokens", "ai.usage.completionTokens")),
            cached_tokens=count(span.first("ai.usage.cachedInputTokens", "ai.usage.inputTokenDetails.cacheReadTokens")),
            model=label(span.first("ai.response.model", "ai.model.id")),
            response_id=label(span.first("ai.response.id")),
            finish_reason=finish_reason([span.attributes.get("ai.response.finishReason")]),
        )

    def messages(self, span: Span) -> Iterator[MessageReading]:
        """Read the prompt, the text that came back and the calls it asks for."""
        yield from read_messages(span.attributes.get("ai.prompt.messages"), role="user", output=False)
        calls, _ = items(span.attributes.get("ai.response.toolCalls"))
        said = {"content": span.attributes.get("ai.response.text"), "tool_calls": calls}
        yield from read_message(said, role="assistant", output=True)
