"""A client for Anthropic's messages API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import LLMAnswerError
from .contract import ChatReply, LLMConfig, Message, ToolRequest, ToolSchema, Usage, count_of
from .limiter import Sleep
from .provider import ProviderClient, join_path, key_headers
from .transport import READ_TIMEOUT_S, JSONTransport, RetryPolicy

if TYPE_CHECKING:
    import httpx

BASE_URL = "https://api.anthropic.com"
_VERSION = "2023-06-01"
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
}


class AnthropicClient(ProviderClient):
    """Talk to Anthropic's `/v1/messages`, or a proxy that speaks it.

    Errors, retries and seams are those of `OpenAIClient`. There is no seed on this API: the one of a config is
    left out.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str = BASE_URL,
        *,
        key_header: str = "x-api-key",
        timeout_s: float = READ_TIMEOUT_S,
        retry: RetryPolicy | None = None,
        extra_body: Mapping[str, Any] | None = None,
        sleep: Sleep = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        key = (api_key or "").strip()
        wire = JSONTransport(
            join_path(base_url, "/v1/messages"),
            {"anthropic-version": _VERSION, **key_headers(key, key_header)},
            key=key,
            timeout_s=timeout_s,
            retry=retry,
            sleep=sleep,
            transport=transport,
        )
        super().__init__(wire, extra_body)

    def _body(
        self, config: LLMConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": config.model,
            "max_tokens": config.max_tokens,
            "temperature": config.temperature,
            "messages": _write_messages(messages),
        }
        if system:
            body["system"] = system
        if tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools
            ]
        return body

    def _read(self, body: Any, model: str) -> ChatReply:
        return _read_reply(body, model, self._wire)

    def _read_usage(self, usage: Any) -> Usage:
        """Read the counts; this API leaves what the cache took part in out of the input tokens."""
        usage = usage if isinstance(usage, dict) else {}
        read, written = (count_of(usage.get(f"cache_{part}_input_tokens")) or 0 for part in ("read", "creation"))
        fresh = count_of(usage.get("input_tokens"))
        whole = None if fresh is None else fresh + read + written
        return Usage(whole, count_of(usage.get("output_tokens")), read, written)


def _write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages as blocks; neighbours of one role become one, as the API wants results of tools together."""
    written: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if written and written[-1]["role"] == role:
            written[-1]["content"] += blocks
        elif blocks:
            written.append({"role": role, "content": blocks})
    return written


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.content}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.content}] if message.content else []
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in message.tool_calls
    ]
    return blocks


def _read_reply(body: Any, model: str, wire: JSONTransport) -> ChatReply:
    try:
        blocks = list(body["content"])
        stop = body.get("stop_reason")
        text = "".join(block["text"] for block in blocks if block.get("type") == "text")
        calls = tuple(_read_call(block) for block in blocks if block.get("type") == "tool_use")
    except (KeyError, TypeError, AttributeError) as error:
        raise LLMAnswerError(f"{model} at {wire.url} answered no message: {wire.excerpt(str(body))}") from error
    if stop == "refusal":
        raise LLMAnswerError(f"{model} at {wire.url} refused (stop_reason='refusal'): {wire.excerpt(text)}")
    # An answer without anything in it is told of in the provider's own words, but a cut-off is one everywhere.
    finish = _FINISH.get(stop, stop) if text or calls or stop == "max_tokens" else stop
    return ChatReply(text, calls, finish_reason=finish, model=body.get("model") or model)


def _read_call(block: dict[str, Any]) -> ToolRequest:
    arguments = block.get("input")
    if isinstance(arguments, dict):
        return ToolRequest(block["id"], block["name"], arguments)
    shown = json.dumps(arguments, ensure_ascii=False, default=str)[:200]
    return ToolRequest(block["id"], block["name"], {}, error=f"arguments are no JSON object: {shown}")
