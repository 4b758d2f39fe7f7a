"""Decoding OTLP/HTTP trace requests, protobuf and JSON, into spans.

Knows the protocol and nothing of what the attributes mean.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status as SpanStatus

from .span import Span, SpanEvent, StatusCode

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
MAX_BODY_BYTES = 20 * 1024 * 1024

_STATUS: tuple[StatusCode, ...] = ("UNSET", "OK", "ERROR")
_IDS = frozenset({"traceId", "spanId", "parentSpanId"})
# Protobuf's own JSON form takes these too, but OTLP's does not: the ids in them would be misread, or all be lost.
_SNAKE_CASE = {
    "resource_spans": "resourceSpans",
    "scope_spans": "scopeSpans",
    "trace_id": "traceId",
    "span_id": "spanId",
    "parent_span_id": "parentSpanId",
}
_OTHER_SIGNALS = frozenset({"resourceLogs", "resource_logs", "resourceMetrics", "resource_metrics"})
# google.rpc.Code by HTTP status; all else is an INVALID_ARGUMENT.
_RPC_CODES = {401: 16, 408: 4, 413: 8, 500: 13, 503: 14}
_INFLATE_STEP = 4096


class OTLPError(Exception):
    """A request that is answered with `status` and never stored."""

    def __init__(self, status: int, message: str) -> None:
        # It may quote what came, and goes into answers and into a database that holds no NUL.
        super().__init__(message.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")[:1000])
        self.status = status


@dataclass(frozen=True)
class Decoded:
    """The good spans of a request, and how many were not, with the first reason."""

    spans: list[Span]
    rejected: int = 0
    reason: str = ""


class Encoding(NamedTuple):
    """How a request is written, which is how it is answered."""

    media_type: str

    @classmethod
    def of(cls, content_type: str) -> Encoding:
        """Read a Content-Type; raises `OTLPError` 415 for any that is neither protobuf nor JSON."""
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type not in (PROTOBUF, JSON):
            raise OTLPError(415, f"Content-Type must be {PROTOBUF} or {JSON}, got {content_type!r}")
        return cls(media_type)

    @classmethod
    def guess(cls, content_type: str) -> Encoding:
        """Read a Content-Type, taking JSON for what is neither."""
        return cls(PROTOBUF if content_type.partition(";")[0].strip().lower() == PROTOBUF else JSON)

    def error(self, message: str, status: int = 400) -> bytes:
        """Write a google.rpc.Status for an HTTP status."""
        return self._write(Status(code=_RPC_CODES.get(status, 3), message=message))

    def answer(self, decoded: Decoded) -> bytes:
        """Write the answer to a request that was taken; empty but for what was refused or must be said."""
        if not decoded.rejected and not decoded.reason:
            return b"{}" if self.media_type == JSON else b""
        response = ExportTraceServiceResponse()
        response.partial_success.rejected_spans = decoded.rejected
        response.partial_success.error_message = decoded.reason
        return self._write(response)

    def _write(self, message: Any) -> bytes:
        if self.media_type == JSON:
            return MessageToJson(message, indent=None).encode()
        written: bytes = message.SerializeToString()
        return written

    def decode(self, body: bytes) -> Decoded:
        """Read the spans of a request; raises `OTLPError` 400 when it is not one."""
        request = _from_json(body) if self.media_type == JSON else _from_protobuf(body)
        return _spans(request)


def inflate(body: bytes, content_encoding: str, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Undo a Content-Encoding; never holds more than `limit` bytes of the result.

    Raises `OTLPError`: 413 over the limit, 400 for damaged data, 415 for an unknown encoding.
    """
    encoding = content_encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise OTLPError(415, f"Content-Encoding must be gzip, deflate or none, got {content_encoding!r}")
    window = 16 + zlib.MAX_WBITS if encoding == "gzip" else zlib.MAX_WBITS
    out, member = bytearray(), zlib.decompressobj(window)
    # In small steps, because what follows the end of a gzip member is copied each time, and there may be many.
    for start in range(0, len(body), _INFLATE_STEP):
        rest = body[start : start + _INFLATE_STEP]
        while rest:
            if member.eof:
                member = zlib.decompressobj(window)
            try:
                out += member.decompress(rest, limit + 1 - len(out))
            except zlib.error as error:
                raise OTLPError(400, f"the body is no {encoding} data: {error}") from error
            if len(out) > limit:
                raise OTLPError(413, f"the body inflates beyond {limit} bytes")
            rest = member.unused_data
    if not member.eof:
        raise OTLPError(400, f"the {encoding} data ends too early")
    return bytes(out)


def _from_protobuf(body: bytes) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except (DecodeError, ValueError) as error:
        raise OTLPError(400, f"the body is no trace request in protobuf: {error}") from error
    return request


def _from_json(body: bytes) -> ExportTraceServiceRequest:
    try:
        parsed = _load_json(body)
        if not isinstance(parsed, dict):
            raise OTLPError(400, "the body must be a JSON object")
        _as_protobuf_json(parsed)
        return ParseDict(parsed, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except (ValueError, ParseError, RecursionError, TypeError, AttributeError) as error:
        raise OTLPError(400, f"the body is no trace request in JSON: {str(error)[:300]}") from error


def _load_json(body: bytes) -> Any:
    parsed = json.loads(body, parse_constant=_refuse_constant)
    if b"\\ud" not in body.lower():
        return parsed
    # JavaScript sends half a character as it stands; protobuf would refuse the whole request for it.
    written = json.dumps(parsed, ensure_ascii=False)
    return json.loads(written.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _as_protobuf_json(request: dict[str, Any]) -> None:
    """OTLP writes ids in hex where protobuf's own JSON form has base64, and no enum by name."""
    _refuse_snake_case(request)
    if "resourceSpans" not in request and _OTHER_SIGNALS & request.keys():
        raise ValueError("these are logs or metrics, and this is where traces go")
    for resource in request.get("resourceSpans") or ():
        _refuse_snake_case(resource)
        for scope in resource.get("scopeSpans") or ():
            for span in scope.get("spans") or ():
                _translate_enums(span)
                for holder in (span, *(span.get("links") or ())):
                    _refuse_snake_case(holder)
                    for key in _IDS & holder.keys():
                        holder[key] = _id_as_base64(key, holder[key])


def _refuse_snake_case(holder: dict[str, Any]) -> None:
    for key in _SNAKE_CASE.keys() & holder.keys():
        if _SNAKE_CASE[key] not in holder:
            raise ValueError(f"{key} must be written {_SNAKE_CASE[key]}")
        # Beside the real field it is one that nobody knows.
        del holder[key]


def _translate_enums(span: dict[str, Any]) -> None:
    # A name that protobuf does not know would be skipped, and a failure with it.
    if isinstance(span.get("kind"), str):
        span["kind"] = SpanMessage.SpanKind.Value(span["kind"])
    status = span.get("status") or {}
    if isinstance(status.get("code"), str):
        status["code"] = SpanStatus.StatusCode.Value(status["code"])


def _id_as_base64(key: str, value: Any) -> str:
    if value is None and key == "parentSpanId":
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a hex string, got {type(value).__name__}")
    try:
        return base64.b64encode(binascii.unhexlify(value)).decode()
    except ValueError as error:
        raise ValueError(f"{key} must be hex, got {value[:40]!r}: {error}") from error


def _spans(request: ExportTraceServiceRequest) -> Decoded:
    spans: list[Span] = []
    rejected, reason = 0, ""
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for message in scope_spans.spans:
                problem = _problem(message)
                if problem:
                    rejected, reason = rejected + 1, reason or problem
                else:
                    spans.append(_span(message, scope_spans.scope.name, resource))
    if rejected and not spans:
        raise OTLPError(400, reason)
    return Decoded(spans, rejected, reason)


def _problem(message: SpanMessage) -> str:
    for what, value, length in (("trace_id", message.trace_id, 16), ("span_id", message.span_id, 8)):
        if len(value) != length or not any(value):
            return f"{what} must be {length} bytes that are not all zero, got {value[:40].hex()!r}"
    if len(message.parent_span_id) not in (0, 8):
        return f"parent_span_id must be 8 bytes or none, got {message.parent_span_id[:40].hex()!r}"
    return ""


def _span(message: SpanMessage, scope: str, resource: dict[str, Any]) -> Span:
    code = message.status.code
    # Zeros are how some write that there is no parent.
    parent = message.parent_span_id if any(message.parent_span_id) else b""
    return Span(
        message.trace_id.hex(),
        message.span_id.hex(),
        parent.hex() or None,
        message.name,
        message.kind,
        message.start_time_unix_nano,
        message.end_time_unix_nano,
        _STATUS[code] if 0 <= code < len(_STATUS) else "UNSET",
        message.status.message,
        _attributes(message.attributes),
        tuple(SpanEvent(e.name, e.time_unix_nano, _attributes(e.attributes)) for e in message.events),
        message.flags,
        scope,
        resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            # What is stored must be strict JSON.
            return value.double_value if math.isfinite(value.double_value) else str(value.double_value)
        case "array_value":
            return [_value(entry) for entry in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case "bytes_value":
            return value.bytes_value.hex()
    return None
