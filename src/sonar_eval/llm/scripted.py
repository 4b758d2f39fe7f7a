"""A model that says what it is told to: for tests, demos and dry runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .contract import ChatReply, Completion, LLMConfig, Message, ToolSchema

Reply = str | ChatReply | Exception


@dataclass(frozen=True)
class Request:
    """What one call of the client was given."""

    config: LLMConfig
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]


class ScriptedClient:
    """Answer with `replies` in order, the last one for ever; a function computes each from its request.

    A reply that is an exception is raised. Every call stands in `requests`.
    """

    def __init__(self, replies: Iterable[Reply] | Callable[[Request], Reply], *, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[Request] = []
        self._compute = replies if callable(replies) else None
        self._replies = [] if callable(replies) else list(replies)
        if self._compute is None and not self._replies:
            raise ValueError("a ScriptedClient needs at least one reply")

    async def complete(self, config: LLMConfig, system: str, messages: list[Message]) -> Completion:
        """Return the text of the next reply."""
        reply = await self.chat(config, system, messages, ())
        return Completion(reply.text, reply.usage, reply.finish_reason)

    async def chat(
        self, config: LLMConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> ChatReply:
        """Return the next reply."""
        request = Request(config, system, tuple(messages), tuple(tools))
        self.requests.append(request)
        reply = self._next(request)
        if isinstance(reply, Exception):
            raise reply
        return ChatReply(reply, model=config.model) if isinstance(reply, str) else reply

    def _next(self, request: Request) -> Reply:
        if self._compute is not None:
            return self._compute(request)
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
