"""OpenLLMetry: `traceloop.*`, and the numbered prompts and completions of its older instrumentors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..span import Span
from ..values import label
from .contract import Convention, MessageReading, Reading, finish_reason
from .messages import indexed, read_message

_KINDS = {"tool": "tool", "agent": "agent", "workflow": "agent", "task": "chain"}
_REQUESTS = {"chat": "llm", "completion": "llm", "acompletion": "llm", "embedding": "embedding", "rerank": "retriever"}


class Traceloop(Convention):
    """Read what OpenLLMetry's decorators and instrumentors write."""

    kind_rank = 3
    roots = frozenset(("traceloop", "llm", "gen_ai.prompt", "gen_ai.completion"))

    def kind(self, span: Span) -> str | None:
        """Tell by the kind of the entity, else by that of the request."""
        for key, kinds in (("traceloop.span.kind", _KINDS), ("llm.request.type", _REQUESTS)):
            told = span.attributes.get(key)
            if isinstance(told, str) and told in kinds:
                return kinds[told]
        return None

    def read(self, span: Span, kind: str) -> Reading | None:
        """Say what the span holds, by what it is."""
        if kind == "tool":
            return Reading(
                tool_name=label(span.first("traceloop.entity.name")),
                arguments=span.first("traceloop.entity.input"),
                result=span.first("traceloop.entity.output"),
            )
        if kind != "llm":
            return None
        reasons = [label(fields.get("finish_reason")) for fields in indexed(span.attributes, "gen_ai.completion.")]
        return Reading(finish_reason=finish_reason(reasons))

    def messages(self, span: Span) -> Iterator[MessageReading]:
        """Read the numbered prompts and completions."""
        for fields in indexed(span.attributes, "gen_ai.prompt."):
            yield from read_message(_message(fields), role="user", output=False)
        for fields in indexed(span.attributes, "gen_ai.completion."):
            yield from read_message(_message(fields), role="assistant", output=True)


def _message(fields: dict[str, Any]) -> dict[str, Any]:
    calls = [dict(call) for call in indexed(fields, "tool_calls.")]
    if "function_call.name" in fields:
        calls.append({"name": fields["function_call.name"], "arguments": fields.get("function_call.arguments")})
    return {**fields, "tool_calls": calls}
