"""Whether a tool worked, and what went wrong: by its convention, and by what every OpenTelemetry span can say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .conventions import Reading
from .conventions.envelopes import Unwrapped
from .span import Span
from .values import label

_MESSAGE_LIMIT = 500
_TYPE_LIMIT = 200
_FAILED_WORDS = ("error", "exception", "traceback")
_STACK = re.compile(r"Traceback \(most recent call last\)|\n\s+at ")


def settle(span: Span, reading: Reading, result: Unwrapped | None) -> None:
    """Fill in whether a tool worked and by what that is known, and for any span that failed what went wrong."""
    failed = span.status == "ERROR"
    if reading.kind == "tool":
        reading.success, reading.success_basis = _verdict(span, reading, result)
        failed = reading.success is False
    if failed:
        reading.error_type = _error_type(span)
        reading.error_message = _error_message(span, result)


def _verdict(span: Span, reading: Reading, result: Unwrapped | None) -> tuple[bool | None, str]:
    """Take the first that applies."""
    if reading.failure:
        return False, reading.failure
    if span.status == "ERROR":
        return False, "status ERROR"
    if span.attributes.get("error.type"):
        return False, "error.type"
    if span.status != "OK" and any(event.name == "exception" for event in span.events):
        return False, "exception event"
    if reading.unsettled:
        return None, reading.unsettled
    if result is not None and result.failed:
        return False, "result envelope"
    if result is not None and result.handed_over:
        return None, "handed over"
    if reading.told_by_result and result is not None and result.plain.cut:
        return None, "result cut"
    return True, f"status {span.status}"


def _error_type(span: Span) -> str:
    named = label(span.attributes.get("error.type"))
    if named is None or named == "_OTHER":
        named = label(_exception(span).get("exception.type"))
    return (named or "error")[:_TYPE_LIMIT]


def _error_message(span: Span, result: Unwrapped | None) -> str | None:
    """Say what went wrong, without the stack; a failure that only the result tells is told by the result."""
    said = label(_exception(span).get("exception.message")) or span.status_message
    if not said and result is not None and isinstance(result.plain.value, str):
        said = result.plain.value
    return _without_stack(said)[:_MESSAGE_LIMIT] or None


def looks_failed(result: Any) -> bool:
    """Tell whether a result reads like a failure; a hint, never a verdict."""
    if isinstance(result, dict):
        status = result.get("status")
        said = isinstance(status, str) and status.lower() in ("error", "failed")
        return said or bool(result.get("error")) or any(result.get(key) is False for key in ("success", "ok"))
    return isinstance(result, str) and result.lstrip().lower().startswith(_FAILED_WORDS)


def _without_stack(text: str) -> str:
    stack = _STACK.search(text)
    if stack is None:
        return text.strip()
    before = text[: stack.start()].strip()
    lines = text.strip().splitlines()
    # A Python stack ends in what was raised.
    return before or lines[-1].strip()


def _exception(span: Span) -> Mapping[str, Any]:
    return next((event.attributes for event in span.events if event.name == "exception"), {})
