"""From spans to the answer: kinds, tools and their success, tokens, content.

Done at read time, over whatever has arrived, in whatever order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..transcript.wire import Answer, ContentRow, RunRow, SpanRow
from .conventions import CONVENTIONS, Convention, Reading
from .span import Span
from .values import plain, plain_result

_MESSAGE_LIMIT = 500
_FAILED_WORDS = ("error", "exception", "traceback")


@dataclass(frozen=True)
class Mapped:
    """A span with what it means."""

    span: Span
    reading: Reading

    @property
    def kind(self) -> str:
        return self.reading.kind or "other"


def answer(tenant: str, conversation_id: str, spans: Sequence[Span]) -> Answer:
    """Build the answer for the spans of one conversation, oldest first."""
    mapped = [Mapped(span, _read(span, CONVENTIONS)) for span in spans]
    traces: dict[str, list[Mapped]] = {}
    for entry in mapped:
        traces.setdefault(entry.span.trace_id, []).append(entry)
    return {
        "conversation_id": conversation_id,
        "tenant": tenant,
        "runs": [_run(trace) for trace in traces.values()],
        "spans": [_row(entry) for entry in mapped],
        "content": list(_content(mapped)),
    }


def _read(span: Span, conventions: Iterable[Convention]) -> Reading:
    reading = Reading()
    for convention in conventions:
        reading.fill(convention.read(span))
    if reading.kind == "tool":
        _read_success(span, reading)
    return reading


def _read_success(span: Span, reading: Reading) -> None:
    """Fill in what the convention left open, by what every OpenTelemetry span can say."""
    exception = _exception(span)
    error_type = span.attributes.get("error.type")
    if reading.success is None:
        if span.status == "ERROR":
            reading.success, reading.success_basis = False, "status ERROR"
        elif error_type:
            reading.success, reading.success_basis = False, "error.type"
        elif exception and span.status != "OK":
            reading.success, reading.success_basis = False, "exception event"
        else:
            reading.success, reading.success_basis = True, f"status {span.status}"
    if reading.success is False:
        named = error_type if error_type and error_type != "_OTHER" else exception.get("exception.type")
        reading.error_type = str(named or "error")


def _exception(span: Span) -> dict[str, Any]:
    return next((event.attributes for event in span.events if event.name == "exception"), {})


def _row(entry: Mapped) -> SpanRow:
    span, reading = entry.span, entry.reading
    is_tool = entry.kind == "tool"
    failed = reading.success is False or span.status == "ERROR"
    message = str(_exception(span).get("exception.message") or span.status_message or "") if failed else ""
    return {
        "span_id": span.span_id,
        "trace_id": span.trace_id,
        "parent_span_id": span.parent_span_id,
        "kind": entry.kind,
        "name": span.name,
        "tool_name": reading.tool_name if is_tool else None,
        "tool_success": reading.success if is_tool else None,
        "success_basis": reading.success_basis if is_tool else None,
        "soft_error": bool(is_tool and reading.success and _looks_failed(plain_result(reading.result).value)),
        "error_type": reading.error_type,
        "error_message": message[:_MESSAGE_LIMIT] or None,
        "started_at": _time(span.start_ns),
        "duration_ms": _duration(span),
        "call_id": reading.call_id,
        "source": "span",
        "conflict": False,
        "late": False,
        "fault": reading.fault,
    }


def _looks_failed(result: Any) -> bool:
    """Tell whether a result reads like a failure; a hint, never a verdict."""
    if isinstance(result, dict):
        said = result.get("status") in ("error", "failed") or result.get("error")
        return bool(said) or any(result.get(key) is False for key in ("success", "ok"))
    return isinstance(result, str) and result.lstrip().lower().startswith(_FAILED_WORDS)


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


def _run(trace: list[Mapped]) -> RunRow:
    ids = {entry.span.span_id for entry in trace}
    head = next(
        (entry for entry in trace if entry.span.parent_span_id not in ids or entry.span.has_remote_parent),
        trace[0],
    )
    tokens_in, tokens_out, basis = _tokens(trace)
    models = (entry.reading.model for entry in trace if entry.reading.model)
    return {
        "trace_id": head.span.trace_id,
        "head_span_id": head.span.span_id,
        "name": head.span.name,
        "started_at": _time(head.span.start_ns),
        "duration_ms": _duration(head.span),
        "status": head.span.status.lower(),
        "error_type": head.reading.error_type or _exception(head.span).get("exception.type"),
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "tokens_basis": basis,
        "model": next(models, None),
        "framework": head.span.resource.get("sonar.framework"),
        "scopes": sorted({entry.span.scope for entry in trace}),
    }


def _tokens(trace: list[Mapped]) -> tuple[int | None, int | None, str | None]:
    """Count each model call once: nested model spans repeat it, agents add it up."""
    by_id = {entry.span.span_id: entry for entry in trace}
    counted = [entry for entry in trace if entry.kind == "llm" and _has_tokens(entry)]
    outer = [entry for entry in counted if not any(above in counted for above in _above(entry, by_id))]
    if outer:
        return _sum(outer, "input_tokens"), _sum(outer, "output_tokens"), "llm spans"
    agents = [entry for entry in trace if entry.kind == "agent" and _has_tokens(entry)]
    if agents:
        return agents[0].reading.input_tokens, agents[0].reading.output_tokens, "agent_total"
    return None, None, None


def _has_tokens(entry: Mapped) -> bool:
    return entry.reading.input_tokens is not None or entry.reading.output_tokens is not None


def _above(entry: Mapped, by_id: dict[str, Mapped]) -> Iterator[Mapped]:
    seen = {entry.span.span_id}
    parent = entry.span.parent_span_id
    while parent in by_id and parent not in seen:
        seen.add(parent)
        yield by_id[parent]
        parent = by_id[parent].span.parent_span_id


def _sum(entries: list[Mapped], name: str) -> int | None:
    counts = [value for entry in entries if (value := getattr(entry.reading, name)) is not None]
    return sum(counts) if counts else None


def _content(mapped: list[Mapped]) -> Iterator[ContentRow]:
    """Give tool data of every call, what each model call put out, and the input of the last one only.

    Every input repeats the whole conversation before it.
    """
    last_llm = next((entry for entry in reversed(mapped) if entry.kind == "llm"), None)
    for entry in mapped:
        rows = _tool_content(entry) if entry.kind == "tool" else _messages(entry, inputs=entry is last_llm)
        for seq, row in enumerate(rows):
            yield {**row, "seq": seq}


def _tool_content(entry: Mapped) -> Iterator[ContentRow]:
    reading = entry.reading
    for kind, raw in (("tool_arguments", reading.arguments), ("tool_result", reading.result)):
        if raw is not None:
            yield _content_row(entry.span, "tool", kind, raw, reading.tool_name, reading.call_id)


def _messages(entry: Mapped, *, inputs: bool) -> Iterator[ContentRow]:
    for message in entry.reading.messages:
        if message.output or inputs:
            yield _content_row(entry.span, message.role, message.kind, message.value, message.name, message.call_id)


def _content_row(span: Span, role: str, kind: str, raw: Any, name: str | None, call_id: str | None) -> ContentRow:
    value = plain_result(raw) if kind == "tool_result" else plain(raw)
    return {
        "span_id": span.span_id,
        "trace_id": span.trace_id,
        "seq": 0,
        "role": role,
        "type": kind,
        "name": name,
        "call_id": call_id,
        "value": value.value,
        "redaction": value.redaction,
        "cut": value.cut,
    }
