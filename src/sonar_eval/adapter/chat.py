"""A whole tool-calling bot out of a chat model and Python functions, traced with gen_ai spans."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode, Tracer

from ..errors import LLMError, describe
from ..interceptor import FaultSpec, InterceptDecision, ProxyInterceptor, fault_attributes
from ..llm import ChatClient, ChatReply, LLMConfig, Message, ToolRequest, ToolSchema, Usage

_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
_JSON_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True)
class Tool:
    """A Python function as a tool: what the model is told, and what is called."""

    schema: ToolSchema
    function: Callable[..., Any]


def tool(function: Callable[..., Any], *, name: str | None = None, given: Mapping[str, Any] | None = None) -> Tool:
    """Make a tool of `function`: its name, the first paragraph of its docstring, its signature.

    `given` fills parameters in that the model is not to know of.
    Raises `TypeError` for a parameter whose annotation has no JSON type, and for one that takes any number.
    """
    hints = typing.get_type_hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if given and parameter.name in given:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"parameter {parameter.name!r}: a model can only fill in parameters that have a name")
        properties[parameter.name] = _json_type(hints.get(parameter.name, str), parameter.name)
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    described = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
    parameters = {"type": "object", "properties": properties, "required": required}
    label = name or function.__name__
    return Tool(ToolSchema(label, described, parameters), _bound(function, given) if given else function)


def _bound(function: Callable[..., Any], given: Mapping[str, Any]) -> Callable[..., Any]:
    """Fill parameters in for good: unlike with a partial function, what a model writes cannot replace them."""
    if inspect.iscoroutinefunction(function):

        async def call_async(**arguments: Any) -> Any:
            return await function(**arguments, **given)

        return call_async

    def call(**arguments: Any) -> Any:
        return function(**arguments, **given)

    return call


def _json_type(hint: Any, name: str) -> dict[str, Any]:
    if hint in _JSON_TYPES:
        return {"type": _JSON_TYPES[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        kinds = {_JSON_TYPES.get(type(argument)) for argument in arguments}
        if len(kinds) == 1 and None not in kinds:
            return {"type": kinds.pop(), "enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        if len(rest) == 1:
            return _json_type(rest[0], name)
    if hint is list:
        return {"type": "array"}
    if origin is list:
        return {"type": "array", "items": _json_type(arguments[0], name)}
    if hint is dict or origin is dict:
        return {"type": "object"}
    raise TypeError(f"parameter {name!r}: no JSON type for {hint!r}; use str, int, float, bool, list or dict")


class ChatAgent:
    """Keep one conversation: ask the model, run the tools it calls, until it answers with text.

    A tool that raises tells the model so and goes on. Not safe for two turns at once.
    """

    def __init__(
        self,
        client: ChatClient,
        config: LLMConfig,
        *,
        system: str,
        tools: Sequence[Tool],
        name: str = "agent",
        provider: str = "openai",
        interceptor: ProxyInterceptor | None = None,
        max_steps: int = 12,
        tracer: Tracer | None = None,
    ) -> None:
        self._client = client
        self._config = config
        self._system = system
        self._tools = {entry.schema.name: entry for entry in tools}
        self._schemas = tuple(entry.schema for entry in tools)
        self._name = name
        self._provider = provider
        self._interceptor = interceptor or ProxyInterceptor(FaultSpec())
        self._max_steps = max_steps
        self._tracer = tracer or trace.get_tracer("sonar_eval.adapter.chat")
        self.messages: list[Message] = []

    async def reply(self, text: str) -> str:
        """Take one user message to the model's answer; returns "" when it stops without one.

        Raises the client's `LLMError` untouched.
        """
        self.messages.append(Message("user", text))
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self._name,
            "gen_ai.provider.name": self._provider,
        }
        with self._tracer.start_as_current_span(f"invoke_agent {self._name}", attributes=attributes) as span:
            answer = await self._until_answered()
            _put_json(span, "gen_ai.output.messages", [_as_genai(Message("assistant", answer))] if answer else [])
            return answer

    async def _until_answered(self) -> str:
        for _ in range(self._max_steps):
            step = await self._ask_model()
            self.messages.append(Message("assistant", step.text, tool_calls=step.tool_calls))
            if not step.tool_calls:
                return step.text
            for call in step.tool_calls:
                result = await self._run_tool(call)
                self.messages.append(Message("tool", result, tool_call_id=call.id, name=call.name))
        return ""

    async def _ask_model(self) -> ChatReply:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._provider,
            "gen_ai.request.model": self._config.model,
            "gen_ai.request.temperature": self._config.temperature,
            "gen_ai.request.max_tokens": self._config.max_tokens,
        }
        with self._tracer.start_as_current_span(f"chat {self._config.model}", attributes=attributes) as span:
            _put_json(span, "gen_ai.system_instructions", [{"type": "text", "content": self._system}])
            _put_json(span, "gen_ai.input.messages", [_as_genai(message) for message in self.messages])
            try:
                reply = await self._client.chat(self._config, self._system, self.messages, self._schemas)
            except LLMError as error:
                if isinstance(error.usage, Usage):
                    _put_usage(span, error.usage)
                raise
            _put_reply(span, reply)
            return reply

    async def _run_tool(self, call: ToolRequest) -> str:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }
        # Recorded by hand below: the model goes on after a failed tool, so nothing escapes the block.
        with self._tracer.start_as_current_span(f"execute_tool {call.name}", attributes=attributes) as span:
            _put_json(span, "gen_ai.tool.call.arguments", call.arguments)
            try:
                result, decision = await self._dispatch(call)
                written = result if isinstance(result, str) else _as_json(result)
            except Exception as error:
                _mark_fault(span, getattr(error, "sonar_decision", None), self._interceptor)
                span.record_exception(error)
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR, str(error)))
                return _as_json({"error": describe(error)})
            _mark_fault(span, decision, self._interceptor)
            span.set_attribute("gen_ai.tool.call.result", written)
            return written

    async def _dispatch(self, call: ToolRequest) -> tuple[Any, InterceptDecision]:
        if call.error:
            raise ValueError(call.error)
        if call.name not in self._tools:
            raise LookupError(f"there is no tool {call.name!r}; there are {', '.join(self._tools)}")
        return await self._interceptor.run(call.name, call.arguments, self._tools[call.name].function)


def _mark_fault(span: Span, decision: InterceptDecision | None, interceptor: ProxyInterceptor) -> None:
    if decision is not None:
        span.set_attributes(fault_attributes(decision, interceptor.spec.rules))


def _put_json(span: Span, key: str, value: Any) -> None:
    span.set_attribute(key, _as_json(value))


def _as_json(value: Any) -> str:
    """Write a value in the letters it has: a model reads `\\u00f6` as six signs, not as one."""
    written = json.dumps(value, ensure_ascii=False, default=str)
    # Half a surrogate pair has no bytes in UTF-8, so that a span would lose the whole attribute.
    return json.dumps(value, default=str) if _HALF_A_PAIR.search(written) else written


def _put_reply(span: Span, reply: ChatReply) -> None:
    finish = reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
    answer = _as_genai(Message("assistant", reply.text, tool_calls=reply.tool_calls))
    _put_json(span, "gen_ai.output.messages", [{**answer, "finish_reason": finish}])
    span.set_attribute("gen_ai.response.finish_reasons", [finish])
    if reply.model:
        span.set_attribute("gen_ai.response.model", reply.model)
    _put_usage(span, reply.usage)


def _put_usage(span: Span, usage: Usage) -> None:
    if usage.input_tokens is not None:
        span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
    if usage.output_tokens is not None:
        span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
    if usage.cached_tokens:
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)


def _as_genai(message: Message) -> dict[str, Any]:
    parts: list[Mapping[str, Any]] = []
    if message.role == "tool":
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "response": message.content})
    elif message.content:
        parts.append({"type": "text", "content": message.content})
    parts.extend(
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    )
    return {"role": message.role, "parts": parts}
