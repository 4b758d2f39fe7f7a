"""The older GenAI events, one per message, that some frameworks still put on their spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..span import Span
from ..values import label, plain
from .contract import Convention, MessageReading, Reading
from .messages import blocks, read_message

_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_CHOICE = "gen_ai.choice"


class GenAIEvents(Convention):
    """Read the events `gen_ai.{system,user,assistant,tool}.message` and `gen_ai.choice`."""

    def read(self, span: Span, kind: str) -> Reading | None:
        """Take a tool's arguments and result, or a model's messages, from the events."""
        if kind == "tool" and span.events:
            return Reading(
                arguments=_attribute(span, "gen_ai.tool.message", "content"),
                result=_attribute(span, _CHOICE, "message"),
            )
        return None

    def messages(self, span: Span) -> Iterator[MessageReading]:
        """Read one message from each event."""
        for event in span.events:
            yield from read_event(event.name, event.attributes)


def _attribute(span: Span, event_name: str, key: str) -> Any:
    return next((event.attributes.get(key) for event in span.events if event.name == event_name), None)


def read_event(name: Any, body: Mapping[str, Any]) -> Iterator[MessageReading]:
    """Read the message that one event carries; nothing from any other event."""
    if name == _CHOICE:
        yield from _choice(body)
    elif isinstance(name, str) and name in _ROLES:
        yield from read_message({**body, "content": blocks(body.get("content"))}, role=_ROLES[name], output=False)


def _choice(body: Mapping[str, Any]) -> Iterator[MessageReading]:
    said = plain(body.get("message")).value
    if isinstance(said, Mapping):
        content = {**said, "content": blocks(said.get("content"))}
    else:
        content = {**body, "content": blocks(body.get("message", body.get("content")))}
    yield from read_message({**content, "role": label(content.get("role")) or "assistant"}, role=None, output=True)
