"""What frameworks wrap around a tool's arguments and result, and what the wrapping says of the outcome."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..values import Plain, leading_text, plain, read_structure

_CALL_KEYS = {"args", "kwargs", "sanitize_inputs_outputs"}
_QUOTED = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_SHOWN_MESSAGE = re.compile(rf"content=({_QUOTED}) .*tool_call_id=.*", re.DOTALL)
_MAX_LAYERS = 4


@dataclass(frozen=True)
class Unwrapped:
    """What was inside, and what the envelope says."""

    plain: Plain
    failed: bool = False
    handed_over: bool = False
    """Whether the tool gave no result but told its graph where to go on."""


@dataclass(frozen=True)
class _Layer:
    inside: Any
    failed: bool = False


def open_arguments(raw: Any) -> Plain:
    """Take a tool's arguments out of what they were sent in."""
    opened = plain(raw)
    value = opened.value
    if opened.cut and isinstance(value, str):
        # OpenLLMetry puts the input first, and more about the run than about the call behind it.
        whole = leading_text(value, "input_str")
        return opened if whole is None else Plain(plain(whole).value, opened.redaction)
    if isinstance(value, dict):
        return Plain(_arguments(value), opened.redaction, opened.cut)
    return opened


def open_result(raw: Any) -> Unwrapped:
    """Take a tool's result out of what it was sent in, with what that says of the outcome."""
    opened = plain(raw)
    failed = False
    for _ in range(_MAX_LAYERS):
        if _is_handover(opened.value):
            return Unwrapped(opened, failed, handed_over=True)
        layer = next((found for read in _LAYERS if (found := read(opened.value))), None)
        if layer is None:
            break
        failed = failed or layer.failed
        inner = plain(layer.inside)
        opened = Plain(inner.value, opened.redaction or inner.redaction, opened.cut or inner.cut)
    return Unwrapped(opened, failed)


def _arguments(held: dict[str, Any]) -> Any:
    if "input_str" in held and held.keys() & {"tags", "metadata", "inputs"}:
        inputs = held.get("inputs")
        return inputs if isinstance(inputs, dict) else plain(held["input_str"]).value
    if held.keys() == {"tool_name", "arguments"}:
        return plain(held["arguments"]).value
    if "kwargs" in held and held.keys() <= _CALL_KEYS and isinstance(held["kwargs"], dict):
        if not held.get("args"):
            return held["kwargs"]
        return held if held["kwargs"] else held["args"]
    return held


def _langchain(value: Any) -> _Layer | None:
    """Open LangChain's ToolMessage, in the forms it is serialized in."""
    if not isinstance(value, dict):
        return None
    data, kwargs = value.get("data"), value.get("kwargs")
    if value.get("type") == "tool" and isinstance(data, dict) and "content" in data:
        return _Layer(data["content"], data.get("status") == "error")
    if "lc" in value and isinstance(kwargs, dict) and "content" in kwargs:
        return _Layer(kwargs["content"], kwargs.get("status") == "error")
    if value.get("type") == "tool" and "tool_call_id" in value and "content" in value:
        return _Layer(value["content"], value.get("status") == "error")
    return None


def _shown_message(value: Any) -> _Layer | None:
    """Open a ToolMessage that was turned to text as Python shows it."""
    shown = _SHOWN_MESSAGE.fullmatch(value) if isinstance(value, str) and value.startswith("content=") else None
    if shown is None:
        return None
    content = read_structure(f"[{shown.group(1)}]")
    inside = content[0] if isinstance(content, list) and len(content) == 1 else shown.group(1)
    return _Layer(inside, "status='error'" in value[shown.end(1) :])


def _output(value: Any) -> _Layer | None:
    """Open OpenLLMetry's `{"output": …, "kwargs": …}`."""
    if not isinstance(value, dict) or "output" not in value or not value.keys() <= {"output", "kwargs"}:
        return None
    inside = value["output"]
    is_wrapped = isinstance(value.get("kwargs"), dict) or (isinstance(inside, dict) and "lc" in inside)
    return _Layer(inside) if is_wrapped else None


def _flagged(value: Any) -> _Layer | None:
    """Open a result that says itself whether it is an error, as MCP, AutoGen and Strands have it."""
    if not isinstance(value, dict):
        return None
    inner = value.get("toolResult")
    if isinstance(inner, dict):
        value = inner
    flags = [value[key] for key in ("isError", "is_error") if isinstance(value.get(key), bool)]
    if not flags and not ("toolUseId" in value and "content" in value):
        return None
    failed = any(flags) or value.get("status") == "error"
    for key in ("structuredContent", "structured_content", "content", "result"):
        if value.get(key) is not None:
            return _Layer(value[key], failed)
    return _Layer(None, failed) if flags and any(flags) and len(value) == 1 else None


def _response(value: Any) -> _Layer | None:
    """Open Gemini's function response."""
    is_response = isinstance(value, dict) and "response" in value and "name" in value
    return _Layer(value["response"]) if is_response and value.keys() <= {"id", "name", "response"} else None


def _typed(value: Any) -> _Layer | None:
    """Open Vercel's `{"type": "json", "value": …}`."""
    if isinstance(value, dict) and value.keys() == {"type", "value"} and isinstance(value["type"], str):
        return _Layer(value["value"], value["type"].startswith("error"))
    return None


def _texts(value: Any) -> _Layer | None:
    """Open a list of blocks that are all text, or a single one of JSON, as Strands and MCP write results."""
    if not isinstance(value, list) or not value or not all(isinstance(block, dict) for block in value):
        return None
    if len(value) == 1 and value[0].keys() == {"json"}:
        return _Layer(value[0]["json"])
    if all(isinstance(block.get("text"), str) and _is_text_block(block) for block in value):
        return _Layer("\n".join(block["text"] for block in value))
    return None


def _is_text_block(block: Mapping[str, Any]) -> bool:
    named = block.get("type", "text") in ("text", "output_text")
    return named and block.keys() <= {"text", "type", "annotations", "meta", "_meta"}


def _is_handover(value: Any) -> bool:
    """Tell whether a tool returned LangGraph's Command."""
    if not isinstance(value, dict):
        return False
    output, path = value.get("output"), value.get("id")
    if isinstance(output, dict) and (value.keys() <= {"output", "kwargs"}):
        return _is_handover(output)
    is_command = isinstance(path, list) and bool(path) and path[-1] == "Command"
    return is_command or {"graph", "update", "resume", "goto"} <= value.keys()


_LAYERS: tuple[Callable[[Any], _Layer | None], ...] = (
    _langchain,
    _output,
    _flagged,
    _response,
    _typed,
    _texts,
    _shown_message,
)
