"""Messages to and from a model, in the shapes that frameworks and providers write them in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..values import items, label, plain_text, read_structure
from .contract import MessageReading

_CALLS = ("tool_call", "tool-call", "tool_use", "function_call", "function", "toolUse", "functionCall")
_RESULTS = (
    "tool_call_response",
    "tool-result",
    "tool_result",
    "function_call_output",
    "toolResult",
    "function_response",
    "functionResponse",
)
_TEXTS = ("text", "output_text", "input_text")
# OpenAI's items have an id of their own beside that of the call.
_IDS = ("call_id", "toolCallId", "toolUseId", "tool_use_id", "tool_call_id", "id")
# What smolagents and pydantic-ai have a model call to give its answer; no tool runs for it.
_ANSWERS = ("final_answer", "final_result")
_ROLES = {"model": "assistant", "ai": "assistant", "human": "user", "developer": "system", "function": "tool"}
_NAMES = ("name", "toolName", "tool_name")


class _Place(NamedTuple):
    role: str | None
    output: bool
    call_id: str | None = None
    name: str | None = None


def read_messages(raw: Any, *, role: str | None, output: bool) -> Iterator[MessageReading]:
    """Read a list of messages, written as JSON or structured; `role` is that of messages that name none."""
    if raw is None or raw == "":
        return
    place = _Place(role, output)
    entries, whole = items(raw)
    if whole.cut:
        # The calls that are still whole can be counted; what was said is shown once, as far as it goes.
        yield from (found for found in _each(entries, place) if found.kind != "message")
    if whole.cut or (not entries and isinstance(whole.value, str) and not _is_empty(whole.value)):
        yield MessageReading(role, raw, output)
    else:
        yield from _each(entries, place)


def read_message(entry: Mapping[str, Any], *, role: str | None, output: bool) -> Iterator[MessageReading]:
    """Read one message: its role, what it says, the calls it asks for or the result it brings."""
    named = label(entry.get("role")) or role
    named = _ROLES.get(named, named) if named else None
    place = _Place(named, output, _first_label(entry, ("tool_call_id", "id")), label(entry.get("name")))
    said = entry.get("parts") if entry.get("parts") is not None else entry.get("content")
    if isinstance(said, list):
        for part in said:
            yield from _part(part, place) if isinstance(part, dict) else _text(part, place)
    else:
        yield from _text(said, place)
    calls = entry.get("tool_calls")
    for call in items(calls)[0] if calls else ():
        if isinstance(call, dict):
            yield _call(call, place)


def indexed(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Collect attributes like `prefix.0.role` by their number; numbering may start anywhere."""
    found: dict[str, dict[str, Any]] = {}
    start = len(prefix)
    for key, value in attributes.items():
        if key.startswith(prefix):
            number, _, rest = key[start:].partition(".")
            if number not in found:
                found[number] = {}
            found[number][rest] = value
    numbers = [number for number in found if number.isdecimal() and len(number) < 9]
    return [found[number] for number in sorted(numbers, key=int)]


def _each(entries: Iterable[Any], place: _Place) -> Iterator[MessageReading]:
    for entry in entries:
        if isinstance(entry, str):
            yield from _text(entry, place)
        elif isinstance(entry, dict):
            is_message = "parts" in entry or "tool_calls" in entry or ("role" in entry and "content" in entry)
            if is_message:
                yield from read_message(entry, role=place.role, output=place.output)
            else:
                yield from _part(entry, place)


def _part(part: Mapping[str, Any], place: _Place) -> Iterator[MessageReading]:
    named = part.get("type") or part.get("kind")
    kind = named if isinstance(named, str) else next((key for key in (*_CALLS, *_RESULTS) if key in part), None)
    inner = part.get(kind) if isinstance(kind, str) else None
    held = inner if isinstance(inner, dict) and kind != "function" else part
    if kind in _CALLS:
        yield _call(held, place)
    elif kind in _RESULTS:
        value = _first(held, ("response", "result", "output", "content"))
        name = _first_label(held, _NAMES) or place.name
        yield MessageReading("tool", value, place.output, "tool_result", name, _first_label(held, _IDS))
    elif kind in _TEXTS or (kind is None and "text" in part):
        yield from _text(_first(part, ("content", "text")), place)


def _call(call: Mapping[str, Any], place: _Place) -> MessageReading:
    function = call.get("function")
    held = {**call, **function} if isinstance(function, dict) else call
    arguments = _first(held, ("arguments", "args", "input"))
    name, call_id = _first_label(held, _NAMES), _first_label(call, _IDS)
    kind = "answer" if name in _ANSWERS else "tool_arguments"
    return MessageReading("assistant", arguments, place.output, kind, name, call_id)


def _text(said: Any, place: _Place) -> Iterator[MessageReading]:
    if said is None or said == "":
        return
    if place.role == "tool":
        yield MessageReading("tool", said, place.output, "tool_result", place.name, place.call_id)
    else:
        yield MessageReading(place.role, said, place.output)


def blocks(content: Any) -> Any:
    """Return the blocks that a message's text is the JSON of; other content as it is."""
    opened = plain_text(content)
    if opened.cut or not isinstance(opened.value, str):
        return content
    structure = read_structure(opened.value)
    is_blocks = isinstance(structure, list) and structure and all(isinstance(entry, dict) for entry in structure)
    return structure if is_blocks else content


def _first(held: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((held[key] for key in keys if held.get(key) is not None), None)


def _first_label(held: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    return next((found for key in keys if (found := label(held.get(key)))), None)


def _is_empty(text: str) -> bool:
    return text.strip() in ("", "[]", "{}", "null")
