"""A client for every endpoint that speaks OpenAI's chat completions: OpenAI, vLLM, Ollama, llama.cpp, LiteLLM."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import LLMAnswerError, LLMError, LLMRequestError, LLMSilenceError, LLMTransportError, describe
from ..web import open_client
from .contract import ChatReply, Completion, LLMConfig, Message, ToolRequest, ToolSchema, Usage

if TYPE_CHECKING:
    import httpx

# Reasoning models and judges think for minutes; httpx would give up after 5 s.
READ_TIMEOUT_S = 120.0
RETRIED_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)})
_QUOTED = 500
# Below this it is a placeholder, as local servers take, and no secret.
_SHORTEST_KEY = 8


class OpenAIClient:
    """Talk to `base_url` (which ends before `/chat/completions`, often in `/v1`).

    Raises `LLMTransportError`, `LLMRequestError` or `LLMAnswerError`, each quoting model and provider.
    `transport` is httpx's: the seam for tests and special networks.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout_s: float = READ_TIMEOUT_S,
        extra_body: Mapping[str, Any] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._key = (api_key or "").strip()
        self._timeout_s = timeout_s
        self._extra = dict(extra_body or {})
        self._transport = transport

    def __repr__(self) -> str:
        return f"OpenAIClient({self._url!r})"

    async def complete(self, config: LLMConfig, system: str, messages: list[Message]) -> Completion:
        """Return the assistant's text; raise `LLMAnswerError` when there is none."""
        reply = await self.chat(config, system, messages, ())
        if not reply.text.strip():
            cut_off = reply.finish_reason == "length"
            raise (LLMAnswerError if cut_off else LLMSilenceError)(
                f"{config.model} at {self._url} answered without text "
                f"(finish_reason={reply.finish_reason!r}, max_tokens={config.max_tokens}, usage={reply.usage})"
            )
        return Completion(reply.text, reply.usage, reply.finish_reason)

    async def chat(
        self, config: LLMConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> ChatReply:
        """Return text and tool calls of the assistant's next step; either may be empty."""
        body = self._body(config, system, messages, tools)
        try:
            return _read_reply(await self._post(config.model, body), config.model, self._url)
        except LLMError as error:
            # What a provider says is quoted, and it may repeat the key.
            if len(self._key) >= _SHORTEST_KEY:
                error.args = (str(error).replace(self._key, "[key]"),)
            raise

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
            **self._extra,
        }
        if config.seed is not None:
            # Several providers take no seed beyond 32 bits.
            body["seed"] = config.seed % 2**31
        if tools:
            body["tools"] = [_write_tool(tool) for tool in tools]
        return body

    async def _post(self, model: str, body: dict[str, Any]) -> Any:
        import httpx

        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        opened = open_client(self._url, timeout_s=self._timeout_s, headers=headers, transport=self._transport)
        try:
            # A client per call costs little beside a model's answer, and is bound to no event loop.
            async with opened as client:
                response = await client.post(self._url, json=body)
        except httpx.RequestError as error:
            raise LLMTransportError(
                f"{model} at {self._url} gave no answer (timeout {self._timeout_s:g} s): {describe(error)}"
            ) from error
        said = f"{model} at {self._url} answered HTTP {response.status_code}: {response.text[:_QUOTED]}"
        if response.status_code in RETRIED_STATUS:
            raise LLMTransportError(said)
        if response.status_code != 200:
            raise LLMRequestError(said)
        try:
            return response.json()
        except ValueError as error:
            raise LLMAnswerError(f"{model} at {self._url} answered no JSON: {response.text[:_QUOTED]}") from error


def _write_message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
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


def _read_reply(body: Any, model: str, url: str) -> ChatReply:
    try:
        choice = body["choices"][0]
        message = choice["message"]
        refusal = message.get("refusal")
        text = _read_text(message.get("content"))
        calls = tuple(_read_call(call, place) for place, call in enumerate(message.get("tool_calls") or ()))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise LLMAnswerError(f"{model} at {url} answered no chat completion: {str(body)[:_QUOTED]}") from error
    if refusal and not text:
        raise LLMAnswerError(f"{model} at {url} refused: {refusal}")
    return ChatReply(
        text, calls, _read_usage(body.get("usage")), choice.get("finish_reason"), body.get("model") or model
    )


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


def _read_usage(usage: Any) -> Usage:
    usage = usage if isinstance(usage, dict) else {}
    return Usage(usage.get("prompt_tokens"), usage.get("completion_tokens"))
