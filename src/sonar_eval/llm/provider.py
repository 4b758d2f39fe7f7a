"""What the clients of all providers do alike: ask, ask again, respect what a model refuses, never stay silent."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from ..errors import ConfigError, LLMAnswerError, LLMError, LLMRequestError, LLMSilenceError
from ..web import is_address
from .answer import error_in
from .contract import ChatReply, Completion, LLMConfig, Message, ToolSchema, Usage
from .limiter import Waits
from .quirks import Quirks
from .tab import Tab
from .transport import JSONTransport

KEY_HEADER = "authorization"


class ProviderClient(ABC):
    """A model behind HTTP; what is asked and how answers are read is the provider's."""

    def __init__(self, wire: JSONTransport, extra_body: Mapping[str, Any] | None) -> None:
        self._wire = wire
        self._extra = dict(extra_body or {})
        self._quirks = Quirks()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wire.url!r})"

    @property
    def waits(self) -> Waits:
        """Tell how often this client had to wait so far, and how long."""
        return self._wire.waits

    async def complete(self, config: LLMConfig, system: str, messages: list[Message]) -> Completion:
        """Return the assistant's text, asking once more when it is silent; raise `LLMAnswerError` without any."""
        with Tab() as tab:
            reply = await self._reply(tab, config, system, messages, ())
            if not reply.text.strip() and reply.finish_reason != "length":
                reply = await self._reply(tab, config, system, messages, ())
            if not reply.text.strip():
                raise self._no_text(config, reply)
            return Completion(reply.text, reply.usage, reply.finish_reason)

    def _no_text(self, config: LLMConfig, reply: ChatReply) -> LLMAnswerError:
        told = f"(finish_reason={reply.finish_reason!r}, max_tokens={config.max_tokens}, usage={reply.usage})"
        where = f"{config.model} at {self._wire.url}"
        if reply.finish_reason == "length":
            return LLMAnswerError(f"{where} answered without text: it was cut off before it began {told}")
        return LLMSilenceError(f"{where} answered without text {told}")

    async def chat(
        self, config: LLMConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> ChatReply:
        """Return text and tool calls of the assistant's next step; either may be empty.

        Its usage, and that of an error, is of all that was answered on the way there.
        """
        with Tab() as tab:
            return await self._reply(tab, config, system, messages, tools)

    async def _reply(
        self, tab: Tab, config: LLMConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> ChatReply:
        body = {**self._body(config, system, messages, tools), **self._extra}
        try:
            answered = await self._ask(tab, config.model, body)
            tab.note(self._taken(answered))
            reply = self._read(answered, config.model)
        except LLMError as error:
            # What a provider says is quoted, and it may repeat the key.
            error.args = (self._wire.hide(str(error)),)
            raise
        return replace(reply, usage=tab.total or reply.usage)

    async def _ask(self, tab: Tab, model: str, body: dict[str, Any]) -> Any:
        while True:
            adapted = self._quirks.adapt(model, body)
            try:
                return await self._wire.post(model, adapted, lost=lambda answered: tab.note(self._taken(answered)))
            except LLMRequestError as error:
                if not self._quirks.learn(model, adapted, str(error)):
                    raise

    def _taken(self, body: Any) -> Usage | None:
        """Tell what an answer took, of whatever use it is; None for an error that tells of nothing."""
        told = body.get("usage") if isinstance(body, dict) else None
        return None if told is None and error_in(body) else self._read_usage(told)

    @abstractmethod
    def _body(
        self, config: LLMConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> dict[str, Any]:
        """Write a request."""

    @abstractmethod
    def _read(self, body: Any, model: str) -> ChatReply:
        """Read an answer but for its usage; raise `LLMAnswerError` when there is nothing to use in it."""

    @abstractmethod
    def _read_usage(self, usage: Any) -> Usage:
        """Read the counts of an answer; what is not told is not known."""


def join_path(base_url: str, path: str) -> str:
    """Put `path` behind that of `base_url` and before its query; a version that both have is written once.

    Raises `ConfigError` for what is no address on the web.
    """
    parts = _split(base_url.strip())
    before = parts.path.rstrip("/")
    version = path.rpartition("/")[0]
    if version and before.endswith(version):
        before = before.removesuffix(version)
    return urlunsplit(parts._replace(path=before + path))


def _split(address: str) -> SplitResult:
    if is_address(address):
        return urlsplit(address)
    bare = re.sub(r"^https?:/*", "", address)
    misses_only_the_scheme = re.match("[^/]", bare) and "://" not in bare
    example = f"http://{bare} or https://{bare}" if misses_only_the_scheme else "http://localhost:8000/v1"
    raise ConfigError(f"base_url must begin with http:// or https:// and name a host, got {address!r}; write {example}")


def key_headers(key: str, header: str) -> dict[str, str]:
    """Write the key into the header that the provider reads it from."""
    if not key:
        return {}
    return {header: f"Bearer {key}" if header.lower() == KEY_HEADER else key}
