"""What the harness asks of a language model, whoever serves it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ..usage import Price


@dataclass(frozen=True)
class LLMConfig:
    """Which model, and how it is to sample."""

    model: str
    temperature: float = 1.0
    max_tokens: int = 1024
    seed: int | None = None
    """Handed to providers that take one; the same for the same trial index in every variant."""
    price: Price | None = None
    """What its tokens cost, where that is known."""


@dataclass(frozen=True)
class ToolRequest:
    """A tool call that a model asks for."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    """Why `arguments` is empty although the model wrote some: it was no JSON object."""


@dataclass(frozen=True)
class Message:
    """One message: `role` is user, assistant or tool."""

    role: str
    content: str
    tool_calls: tuple[ToolRequest, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    """The tool's name, on a message of role tool."""


@dataclass(frozen=True)
class ToolSchema:
    """A tool as a model is told of it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Usage:
    """Tokens of one call, or of several; None where the provider did not say."""

    input_tokens: int | None = None
    """All that went in, whether cached or not."""
    output_tokens: int | None = None
    cached_tokens: int = 0
    """The part of the input that was read from the provider's cache."""
    cache_write_tokens: int = 0
    """The part of the input that was put into the provider's cache."""
    calls: int = 1

    def __add__(self, other: Usage) -> Usage:
        """Add two up."""
        return add_usage((self, other))


def add_usage(usages: Collection[Usage]) -> Usage:
    """Add up what several calls took; what one of them does not know is not known of all."""
    return Usage(
        _sum_known([usage.input_tokens for usage in usages]),
        _sum_known([usage.output_tokens for usage in usages]),
        sum(usage.cached_tokens for usage in usages),
        sum(usage.cache_write_tokens for usage in usages),
        sum(usage.calls for usage in usages),
    )


def _sum_known(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def count_of(value: Any) -> int | None:
    """Take a number of tokens as a provider gives it; what is no count is not known."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@dataclass(frozen=True)
class ChatReply:
    """What a model answered: text, tool calls, or both."""

    text: str
    tool_calls: tuple[ToolRequest, ...] = ()
    usage: Usage = Usage()
    finish_reason: str | None = None
    model: str | None = None
    """The model that answered, as the provider names it."""


class Completion(str):
    """The text of an answer that also carries what the provider said about it."""

    usage: Usage
    finish_reason: str | None

    def __new__(cls, text: str, usage: Usage = Usage(), finish_reason: str | None = None) -> Completion:
        """Make the text, with its usage and finish reason beside it."""
        made = super().__new__(cls, text)
        made.usage = usage
        made.finish_reason = finish_reason
        return made


class LLMClient(Protocol):
    """A model that completes a conversation with text."""

    async def complete(self, config: LLMConfig, system: str, messages: list[Message]) -> str:
        """Return the next message of the assistant."""
        ...


@runtime_checkable
class ChatClient(Protocol):
    """A model that can also call tools: the brain of a bot."""

    async def chat(
        self, config: LLMConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> ChatReply:
        """Return the next step of the assistant."""
        ...
