"""A span as the JSON text that is kept, and back."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from .span import Span, SpanEvent


def dump(span: Span) -> bytes:
    """Write a span; equal spans give equal text."""
    body: dict[str, Any] = {
        "parent_span_id": span.parent_span_id,
        "name": span.name,
        "kind": span.kind,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "status": span.status,
        "status_message": span.status_message,
        "attributes": span.attributes,
        "events": [(event.name, event.time_ns, event.attributes) for event in span.events],
        "flags": span.flags,
        "scope": span.scope,
        "resource": span.resource,
    }
    return orjson.dumps(body)


def load(trace_id: str, span_id: str, text: str) -> Span:
    """Read a span as `dump` wrote it."""
    body = orjson.loads(text)
    return Span(
        trace_id,
        span_id,
        body["parent_span_id"],
        body["name"],
        body["kind"],
        body["start_ns"],
        body["end_ns"],
        body["status"],
        body["status_message"],
        body["attributes"],
        tuple(SpanEvent(*event) for event in body["events"]),
        body["flags"],
        body["scope"],
        body["resource"],
    )


def digest(text: bytes) -> bytes:
    """Return 16 bytes that tell one text from any other."""
    return hashlib.blake2b(text, digest_size=16).digest()
