"""OTLP trace requests: made by hand, or from what real frameworks sent (`data/spans/*.json`)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

SPANS = Path(__file__).parent / "data" / "spans"
PROTOBUF = "application/x-protobuf"
JSON = "application/json"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CONVERSATION = "conv-7f3a"
START_NS = 1_780_000_000_000_000_000
SECOND_NS = 1_000_000_000


def any_value(value: Any) -> AnyValue:
    """Write a Python value, or one of the two notations captures have for what JSON lacks."""
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case {"__bytes__": digits}:
            return AnyValue(bytes_value=bytes.fromhex(digits))
        case {"__kvlist__": entries}:
            return any_value(entries)
        case dict():
            made = AnyValue()
            made.kvlist_value.values.extend(pairs(value))
            return made
    made = AnyValue()
    made.array_value.values.extend(any_value(entry) for entry in value)
    return made


def pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Write attributes."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def make_span(
    name: str = "work",
    attributes: Mapping[str, Any] | None = None,
    *,
    span_id: str = "b7ad6b7169203331",
    trace_id: str = TRACE_ID,
    parent: str = "",
    conversation: str | None = CONVERSATION,
    start_s: float = 0.0,
    duration_s: float = 1.0,
    status: int = Status.STATUS_CODE_UNSET,
    message: str = "",
    events: Iterable[tuple[str, Mapping[str, Any]]] = (),
) -> Span:
    """Make a span of `conversation`; times are seconds since a fixed moment."""
    named = {"sonar.conversation.id": conversation} if conversation is not None else {}
    start = START_NS + int(start_s * SECOND_NS)
    return Span(
        trace_id=bytes.fromhex(trace_id),
        span_id=bytes.fromhex(span_id),
        parent_span_id=bytes.fromhex(parent),
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start,
        end_time_unix_nano=start + int(duration_s * SECOND_NS),
        attributes=pairs({**named, **(attributes or {})}),
        events=[Span.Event(name=event, time_unix_nano=start, attributes=pairs(values)) for event, values in events],
        status=Status(code=status, message=message),
    )


def make_tool(name: str, **more: Any) -> Span:
    """Make the span of a tool call."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, **more.pop("attributes", {})}
    return make_span(f"execute_tool {name}", attributes, **more)


def make_request(
    *spans: Span, resource: Mapping[str, Any] | None = None, scope: str = "tests"
) -> ExportTraceServiceRequest:
    """Put spans into one request."""
    request = ExportTraceServiceRequest()
    holder = request.resource_spans.add()
    holder.resource.attributes.extend(pairs(resource or {}))
    scoped = holder.scope_spans.add()
    scoped.scope.name = scope
    scoped.spans.extend(spans)
    return request


def as_json(request: ExportTraceServiceRequest) -> dict[str, Any]:
    """Write a request in OTLP's JSON: hex ids, integer enums."""
    body = MessageToDict(request, use_integers_for_enums=True)
    for resource in body.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex()
    return body


def load_capture(name: str) -> list[ExportTraceServiceRequest]:
    """Read a capture back into the requests it was recorded from, in their order."""
    capture = json.loads((SPANS / f"{name}.json").read_text(encoding="utf-8"))
    requests: dict[int, ExportTraceServiceRequest] = {}
    for row in capture["spans"]:
        request = requests.setdefault(row["batch"], ExportTraceServiceRequest())
        holder = request.resource_spans.add()
        holder.resource.attributes.extend(pairs(capture["resources"][row["resource"]]))
        scoped = holder.scope_spans.add()
        scoped.scope.name, _, scoped.scope.version = row["scope"].partition("@")
        scoped.spans.append(_recorded_span(row))
    return [requests[batch] for batch in sorted(requests)]


def _recorded_span(row: Mapping[str, Any]) -> Span:
    return Span(
        trace_id=bytes.fromhex(row["trace_id"]),
        span_id=bytes.fromhex(row["span_id"]),
        parent_span_id=bytes.fromhex(row["parent_span_id"] or ""),
        name=row["name"],
        kind=Span.SpanKind.Value(f"SPAN_KIND_{row['kind']}"),
        start_time_unix_nano=START_NS + row["start_us"] * 1000,
        end_time_unix_nano=START_NS + row["end_us"] * 1000,
        attributes=pairs(row["attributes"]),
        events=[
            Span.Event(
                name=event["name"],
                time_unix_nano=START_NS + event["t_us"] * 1000,
                attributes=pairs(event["attributes"]),
            )
            for event in row.get("events", ())
        ],
        status=Status(
            code=Status.StatusCode.Value(f"STATUS_CODE_{row['status']['code']}"),
            message=row["status"].get("message", ""),
        ),
    )


def expected(name: str) -> dict[str, Any]:
    """Return what a capture must be understood as."""
    found: dict[str, Any] = json.loads((SPANS / "expected.json").read_text(encoding="utf-8"))[name]
    return found


def ask(app: Any, method: str, url: str, **request: Any) -> httpx.Response:
    """Send one request to an ASGI app, and give its answer whatever becomes of it."""
    from fakes import run

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, url, **request)

    return run(send())


def post(app: Any, body: ExportTraceServiceRequest | bytes, **headers: str) -> httpx.Response:
    """Post a trace request to an ingest app; protobuf unless a header says otherwise."""
    content = body if isinstance(body, bytes) else body.SerializeToString()
    named = {"content-type": PROTOBUF, **{key.replace("_", "-"): value for key, value in headers.items()}}
    return ask(app, "POST", "/v1/traces", content=content, headers=named)
