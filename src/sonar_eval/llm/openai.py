"""A client for every endpoint that speaks OpenAI's chat completions: OpenAI, vLLM, Ollama, llama.cpp, LiteLLM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import LLMAnswerError
from .answer import error_in
from .contract import ChatReply, LLMConfig, Message, ToolRequest, ToolSchema, Usage, count_of
from .limiter import Sleep
from .provider import KEY_HEADER, ProviderClient, join_path, key_headers
from .transport import READ_TIMEOUT_S, JSONTransport, RetryPolicy

if TYPE_CHECKING:
    import httpx


class OpenAIClient(ProviderClient):
    """Talk to `base_url` (which ends before `/chat/completions`, often in `/v1`; a query is kept).

    Raises `ConfigError` when it is made for what is no address. Asking raises `LLMTransportError`,
    `LLMRequestError` or `LLMAnswerError`, each quoting model and provider. Asks again
    as `retry` says, and leaves out what a model refuses to take. The key goes into `key_header`, after "Bearer"
    in that of the default. `sleep` and `transport` (httpx's) are the seams for tests and special networks.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        key_header: str = KEY_HEADER,
        timeout_s: float = READ_TIMEOUT_S,
        retry: RetryPolicy | None = None,
        extra_body: Mapping[str, Any] | None = None,
        sleep: Sleep = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        key = (api_key or "").strip()
        wire = JSONTransport(
            join_path(base_url, "/chat/completions"),
            key_headers(key, key_header),
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
        written = [_write_message(message) for message in messages]
        if system:
            written.insert(0, {"role": "system", "content": system})
        body: dict[str, Any] = {
            "model": config.model,
            "messages": written,
            "temperature": config.temperature,
            "max_tokens": config.max_tokens,
        }
        if config.seed is not None:
            # Several providers take no seed beyond 32 bits.
            body["seed"] = config.seed % 2**31
        if tools:
            body["tools"] = [_write_tool(tool) for tool in tools]
        return body

    def _read(self, body: Any, model: str) -> ChatReply:
        return _read_reply(body, model, self._wire)

    def _read_usage(self, usage: Any) -> Usage:
        usage = usage if isinstance(usage, dict) else {}
        details = usage.get("prompt_tokens_details")
        cached = count_of(details.get("cached_tokens")) if isinstance(details, dict) else None
        return Usage(count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens")), cached or 0)


def _write_message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    return written


def _write_tool(tool: ToolSchema) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }


def _read_reply(body: Any, model: str, wire: JSONTransport) -> ChatReply:
    try:
        choice = body["choices"][0]
        message = choice["message"]
        refusal = message.get("refusal")
        text = _read_text(message.get("content"))
        calls = tuple(_read_call(call, place) for place, call in enumerate(message.get("tool_calls") or ()))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise LLMAnswerError(f"{model} at {wire.url} answered no chat completion: {wire.excerpt(str(body))}") from error
    if error_in(body) is not None:
        raise LLMAnswerError(f"{model} at {wire.url} answered an error: {wire.excerpt(str(body))}")
    if refusal and not text:
        raise LLMAnswerError(f"{model} at {wire.url} refused: {refusal}")
    finish = choice.get("finish_reason")
    return ChatReply(text, calls, finish_reason=finish, model=body.get("model") or model)


def _read_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content if part.get("type") == "text")


def _read_call(call: dict[str, Any], place: int) -> ToolRequest:
    function = call["function"]
    raw = function.get("arguments")
    raw = raw.strip() if isinstance(raw, str) else raw
    identity = call.get("id") or f"call_{place}"
    try:
        arguments = json.loads(raw) if isinstance(raw, str) and raw else raw or {}
    except ValueError:
        arguments = raw
    if isinstance(arguments, dict):
        return ToolRequest(identity, function["name"], arguments)
    return ToolRequest(identity, function["name"], {}, error=f"arguments are no JSON object: {str(raw)[:200]}")
