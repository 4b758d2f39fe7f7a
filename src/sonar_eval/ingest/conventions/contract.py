"""What a convention can tell of a span."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from ..span import Span


@dataclass(frozen=True)
class MessageReading:
    """One message of a model's input or output."""

    role: str
    value: Any
    output: bool
    kind: str = "message"
    """message, tool_arguments (a call the model asks for) or tool_result."""
    name: str | None = None
    call_id: str | None = None


@dataclass
class Reading:
    """What one convention understood; None or empty where it has no opinion."""

    kind: str | None = None
    """tool, llm, agent, chain, retriever, embedding or other."""
    tool_name: str | None = None
    call_id: str | None = None
    arguments: Any = None
    result: Any = None
    success: bool | None = None
    success_basis: str | None = None
    error_type: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model: str | None = None
    finish_reason: str | None = None
    fault: dict[str, Any] | None = None
    messages: list[MessageReading] = field(default_factory=list)

    def fill(self, other: Reading) -> None:
        """Take from `other` what is still missing here."""
        for entry in fields(self):
            if getattr(self, entry.name) in (None, []):
                setattr(self, entry.name, getattr(other, entry.name))


class Convention(Protocol):
    """One way of naming things on spans."""

    def read(self, span: Span) -> Reading:
        """Say what this convention understands of `span`."""
        ...
