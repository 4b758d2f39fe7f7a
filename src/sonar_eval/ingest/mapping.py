"""From spans to the answer: kinds, tools and their success, tokens, content.

Done at read time, over whatever has arrived, in whatever order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from ..transcript.wire import MARKER_NAME, Answer, ContentRow, RunRow, SpanRow
from .cached import cached_by_trace
from .calls import UnseenCall, fold_nested, repeated_models, unseen_calls, with_ids
from .conventions import CONVENTIONS, Convention, MessageReading, Reading
from .conventions.envelopes import open_arguments, open_result
from .mapped import Forest, Mapped
from .outcome import looks_failed, settle
from .span import Span
from .tokens import Tokens, tokens_by_trace
from .values import Plain, label, plain_text

__all__ = ["Flags", "Mapped", "answer", "map_spans", "tools_unobservable"]

Flags = Mapping[tuple[str, str], tuple[bool, bool]]
"""By trace and span: whether it was contradicted, and whether it came after the conversation was graded."""

_ROOTS = frozenset(root for convention in CONVENTIONS for root in convention.roots or ())


@lru_cache(maxsize=1024)
def _conventions(roots: frozenset[str]) -> tuple[tuple[Convention, ...], tuple[Convention, ...]]:
    """Pick those that can have something to say: in their own order, and by their rank on kinds."""
    asked = tuple(entry for entry in CONVENTIONS if entry.roots is None or not entry.roots.isdisjoint(roots))
    return asked, tuple(sorted(asked, key=lambda convention: convention.kind_rank))


def _roots_of(span: Span) -> frozenset[str]:
    found = set()
    for key in span.attributes:
        parts = key.split(".", 2)
        found.add(parts[0])
        if len(parts) > 1:
            found.add(f"{parts[0]}.{parts[1]}")
    return _ROOTS & found


def map_spans(spans: Sequence[Span]) -> list[Mapped]:
    """Say what each span means."""
    return fold_nested(with_ids([_mapped(span) for span in spans]))


def answer(tenant: str, conversation_id: str, mapped: Sequence[Mapped], flags: Flags | None = None) -> Answer:
    """Build the answer for the spans of one conversation, oldest first; end markers are none of it."""
    told = [entry for entry in mapped if entry.span.name != MARKER_NAME]
    traces: dict[str, list[Mapped]] = {}
    for entry in told:
        traces.setdefault(entry.span.trace_id, []).append(entry)
    forest = Forest(told)
    tokens, cached = tokens_by_trace(traces, forest), cached_by_trace(traces, forest)
    repeated = repeated_models(told, forest)
    unseen: dict[tuple[str, str], list[UnseenCall]] = {}
    for call in unseen_calls(told, repeated):
        unseen.setdefault(call.asker.key, []).append(call)
    return {
        "conversation_id": conversation_id,
        "tenant": tenant,
        "runs": [_run(trace, forest, tokens[trace_id], cached[trace_id]) for trace_id, trace in traces.items()],
        "spans": list(_rows(told, unseen, flags or {})),
        "content": list(_content(told, unseen, repeated)),
    }


def tools_unobservable(mapped: Sequence[Mapped]) -> bool:
    """Tell whether a model asked for tools of which neither content nor spans show anything."""
    asked = [entry for entry in mapped if entry.kind == "llm" and entry.reading.finish_reason == "tool_calls"]
    shown = any(message.kind in ("tool_arguments", "answer") for entry in asked for message in entry.reading.messages)
    return bool(asked) and not shown and not any(entry.kind == "tool" for entry in mapped)


def _mapped(span: Span) -> Mapped:
    asked, by_rank = _conventions(_roots_of(span))
    kind = next((told for convention in by_rank if (told := convention.kind(span))), "other")
    reading = _read(span, kind, asked)
    if kind != "tool":
        settle(span, reading, None)
        return Mapped(span, reading)
    reading.tool_name = reading.tool_name or _name_in(span.name)
    result = None if reading.result is None else open_result(reading.result)
    settle(span, reading, result)
    return Mapped(span, reading, None if reading.arguments is None else open_arguments(reading.arguments), result)


def _read(span: Span, kind: str, conventions: Iterable[Convention]) -> Reading:
    reading = Reading(kind=kind)
    for convention in conventions:
        told = convention.read(span, kind)
        if told is not None:
            reading.fill(told)
    if kind == "llm":
        reading.messages = _messages_of(span, reading.finish_reason == "tool_calls", conventions)
    return reading


def _messages_of(span: Span, wants_tools: bool, conventions: Iterable[Convention]) -> list[MessageReading]:
    """Take the messages of the first convention that has some; the calls asked for may stand under another."""
    found: list[MessageReading] = []
    for convention in conventions:
        told = list(convention.messages(span)) if not found or wants_tools else []
        calls = [message for message in told if message.output and message.kind != "message"]
        found = [*found, *calls] if found else told
        wants_tools = wants_tools and not calls
    return found


def _name_in(span_name: str) -> str:
    """Take a tool's name out of its span's, which is the last resort: some frameworks put a class there."""
    name = span_name.removesuffix(".tool")
    for before in ("execute_tool ", "tools/call "):
        name = name.removeprefix(before)
    return name or span_name


def _rows(
    told: Sequence[Mapped], unseen: Mapping[tuple[str, str], list[UnseenCall]], flags: Flags
) -> Iterator[SpanRow]:
    for entry in told:
        flag = flags.get(entry.key, (False, False))
        yield _row(entry, flag)
        for call in unseen.get(entry.key, ()):
            yield _unseen_row(call, flag)


def _row(entry: Mapped, flag: tuple[bool, bool]) -> SpanRow:
    span, reading = entry.span, entry.reading
    is_tool = entry.kind == "tool"
    result = entry.result.plain.value if entry.result else None
    return {
        "span_id": span.span_id,
        "trace_id": span.trace_id,
        "parent_span_id": span.parent_span_id,
        "kind": entry.kind,
        "name": span.name,
        "tool_name": reading.tool_name if is_tool else None,
        "tool_success": reading.success if is_tool else None,
        "success_basis": reading.success_basis if is_tool else None,
        "soft_error": is_tool and reading.success is not False and looks_failed(result),
        "error_type": reading.error_type,
        "error_message": reading.error_message,
        "started_at": _time(span.start_ns),
        "duration_ms": _duration(span),
        "call_id": reading.call_id if is_tool else None,
        "source": "span",
        "conflict": flag[0],
        "late": flag[1],
        "fault": reading.fault,
    }


def _unseen_row(call: UnseenCall, flag: tuple[bool, bool]) -> SpanRow:
    asker = call.asker.span
    return {
        "span_id": call.span_id,
        "trace_id": asker.trace_id,
        "parent_span_id": asker.span_id,
        "kind": "tool",
        "name": call.asked.name or "unknown",
        "tool_name": call.asked.name,
        "tool_success": None,
        "success_basis": "model output",
        "soft_error": call.result is not None and looks_failed(open_result(call.result.value).plain.value),
        "error_type": None,
        "error_message": None,
        # The model had asked when its span ended; when the tool ran, nothing tells.
        "started_at": _time(asker.end_ns),
        "duration_ms": None,
        "call_id": call.asked.call_id,
        "source": "model_output",
        "conflict": flag[0],
        "late": flag[1],
        "fault": None,
    }


def _time(nanoseconds: int) -> str | None:
    if not nanoseconds:
        return None
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _duration(span: Span) -> float | None:
    if not span.start_ns or span.end_ns < span.start_ns:
        return None
    return (span.end_ns - span.start_ns) / 1e6


def _run(trace: Sequence[Mapped], forest: Forest, tokens: Tokens, cached: int) -> RunRow:
    roots = [entry for entry in trace if entry.span.has_remote_parent or entry.span.parent_span_id is None]
    # Where the head is not there yet, spans whose parent is missing stand in for it.
    head = next(iter(roots or [entry for entry in trace if not forest.has_parent(entry)] or trace))
    row: RunRow = {
        "trace_id": head.span.trace_id,
        "head_span_id": head.span.span_id,
        "name": head.span.name,
        "started_at": _time(head.span.start_ns),
        "duration_ms": _duration(head.span),
        "status": head.span.status.lower(),
        "error_type": head.reading.error_type,
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "tokens_basis": tokens.basis,
        "model": next((entry.reading.model for entry in trace if entry.reading.model), None),
        "framework": label(head.span.resource.get("sonar.framework")),
        "scopes": sorted({entry.span.scope for entry in trace}),
    }
    if tokens.input is None and tokens.input_at_least:
        row["input_tokens_at_least"] = tokens.input_at_least
    if tokens.output is None and tokens.output_at_least:
        row["output_tokens_at_least"] = tokens.output_at_least
    if cached:
        row["cached_tokens"] = cached
    return row


def _content(
    told: Sequence[Mapped], unseen: Mapping[tuple[str, str], list[UnseenCall]], repeated: set[tuple[str, str]]
) -> Iterator[ContentRow]:
    """Give tool data of every call, what each model call put out, and the input of the last one only.

    Every input repeats the whole conversation before it.
    """
    models = [entry for entry in told if entry.kind == "llm" and entry.key not in repeated]
    last = next((entry for entry in reversed(models) if any(not said.output for said in entry.reading.messages)), None)
    for entry in told:
        rows = _tool_content(entry) if entry.kind == "tool" else ()
        if entry.kind == "llm" and entry.key not in repeated:
            rows = _messages(entry, inputs=entry is last)
        yield from _numbered(rows)
        for call in unseen.get(entry.key, ()):
            yield from _numbered(_unseen_content(call))


def _numbered(rows: Iterable[ContentRow]) -> Iterator[ContentRow]:
    for seq, row in enumerate(rows):
        yield {**row, "seq": seq}


def _tool_content(entry: Mapped) -> Iterator[ContentRow]:
    key, name, call_id = entry.key, entry.reading.tool_name, entry.reading.call_id
    if entry.arguments is not None:
        yield _content_row(key, "tool", "tool_arguments", entry.arguments, name, call_id)
    if entry.result is not None:
        yield _content_row(key, "tool", "tool_result", entry.result.plain, name, call_id)


def _messages(entry: Mapped, *, inputs: bool) -> Iterator[ContentRow]:
    for message in entry.reading.messages:
        if message.output or inputs:
            yield _message_row(entry.key, message)


def _unseen_content(call: UnseenCall) -> Iterator[ContentRow]:
    key = (call.asker.span.trace_id, call.span_id)
    for message in (call.asked, call.result):
        if message is not None:
            row = _message_row(key, message)
            yield {**row, "role": "tool", "name": call.asked.name, "call_id": call.asked.call_id}


def _message_row(key: tuple[str, str], message: MessageReading) -> ContentRow:
    kind = message.kind
    match kind:
        case "tool_arguments":
            value = open_arguments(message.value)
        case "tool_result":
            value = open_result(message.value).plain
        case "answer":
            value, kind = open_arguments(message.value), "message"
        case _:
            value = plain_text(message.value)
    return _content_row(key, message.role, kind, value, message.name, message.call_id)


def _content_row(
    key: tuple[str, str], role: str | None, kind: str, value: Plain, name: str | None, call_id: str | None
) -> ContentRow:
    return {
        "span_id": key[1],
        "trace_id": key[0],
        "seq": 0,
        "role": role,
        "type": kind,
        "name": name,
        "call_id": call_id,
        "value": value.value,
        "redaction": value.redaction,
        "cut": value.cut,
    }
