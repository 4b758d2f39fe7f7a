"""Decoding OTLP/HTTP trace requests: what is read, what is refused, and with which words."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
import zlib
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from google.rpc.status_pb2 import Status as RPCStatus
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from captures import JSON, PROTOBUF, TRACE_ID, as_json, load_capture, make_request, make_span, make_tool
from sonar_eval.ingest.otlp import Decoded, Encoding, OTLPError, inflate
from sonar_eval.ingest.span import Span

BINARY, TEXT = Encoding(PROTOBUF), Encoding(JSON)


def written(*spans: SpanMessage) -> bytes:
    return make_request(*spans).SerializeToString()


def as_text(body: Any) -> bytes:
    return json.dumps(body).encode()


def one_span(**fields: Any) -> bytes:
    """Write a JSON request of one span, with `fields` put over it."""
    body = as_json(make_request(make_span()))
    body["resourceSpans"][0]["scopeSpans"][0]["spans"][0].update(fields)
    return as_text(body)


def decoded(encoding: Encoding, body: bytes) -> Span:
    (span,) = encoding.decode(body).spans
    return span


def refused(encoding: Encoding, body: bytes) -> str:
    """Return the reason for which `body` is answered 400."""
    with pytest.raises(OTLPError) as refusal:
        encoding.decode(body)
    assert refusal.value.status == 400
    assert str(refusal.value)
    return str(refusal.value)


AWKWARD = {
    "text": "né\u0000ver 🙂",
    "empty": "",
    "int": -(2**63),
    "float": 1.5,
    "yes": True,
    "nothing": None,
    "bytes": b"\x00\xff",
    "list": ["a", 1, None, ["b"]],
    "dict": {"a": {"b": [1.0, {"c": False}]}},
}


def test_protobuf_and_json_of_one_request_give_equal_spans():
    span = make_tool(
        "pay",
        attributes=AWKWARD,
        parent="cc" * 8,
        status=Status.STATUS_CODE_ERROR,
        message="no",
        events=[("exception", {"exception.type": "KeyError", "tries": 3})],
    )
    span.flags = 0x301
    request = make_request(span, resource={"service.name": "bot", "list": [1, 2]}, scope="lib")
    binary, text = BINARY.decode(request.SerializeToString()), TEXT.decode(as_text(as_json(request)))
    assert binary == text
    assert binary.spans[0].attributes.items() >= {**AWKWARD, "bytes": "00ff"}.items()
    assert binary.spans[0].has_remote_parent


@pytest.mark.parametrize("name", ["strands", "openai_agents_v2", "pydantic_ai.v2"])
def test_protobuf_and_json_of_a_framework_give_equal_spans(name):
    for request in load_capture(name):
        assert BINARY.decode(request.SerializeToString()) == TEXT.decode(as_text(as_json(request)))


def test_a_value_that_is_no_number_is_kept_as_text():
    attributes = {"nan": float("nan"), "inf": float("inf"), "low": float("-inf")}
    request = make_request(make_span(attributes=attributes))
    for encoding, body in ((BINARY, request.SerializeToString()), (TEXT, as_text(as_json(request)))):
        found = decoded(encoding, body).attributes
        assert (found["nan"], found["inf"], found["low"]) == ("nan", "inf", "-inf")
        json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("count", [7, "7"])
def test_a_whole_number_in_json_may_be_a_number_or_a_string(count):
    span = decoded(TEXT, one_span(attributes=[{"key": "n", "value": {"intValue": count}}], startTimeUnixNano=count))
    assert (span.attributes["n"], span.start_ns) == (7, 7)


@pytest.mark.parametrize("value", [{}, {"doubleValue": None}, {"stringValue": None}])
def test_an_empty_value_in_json_is_none(value):
    assert decoded(TEXT, one_span(attributes=[{"key": "n", "value": value}])).attributes["n"] is None


@pytest.mark.parametrize(
    "body",
    [
        one_span(attributes=[{"key": "n", "value": {"intValue": str(2**63)}}]),
        one_span(attributes=[{"key": "n", "value": {"intValue": "soon"}}]),
        one_span().replace(b'"spans"', b'"droppedAttributesCount": NaN, "spans"'),
        one_span(attributes=[{"key": "n", "value": {"doubleValue": float("nan")}}]),
        one_span(attributes=[{"key": "n", "value": {"doubleValue": float("inf")}}]),
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"\xff\xfe\xfa",
        as_text({"resourceSpans": 5}),
        as_text({"resourceSpans": [5]}),
        as_text({"resourceSpans": [{"scopeSpans": {"spans": 1}}]}),
        as_text({"resourceSpans": [{"scopeSpans": [{"spans": ["x"]}]}]}),
        written(make_span()),
    ],
)
def test_json_that_is_no_trace_request_is_refused(body):
    assert "JSON" in refused(TEXT, body)


@pytest.mark.parametrize("body", [b"\x0a", b"{}", b"no protobuf at all", one_span(), written(make_span())[:-3]])
def test_bytes_that_are_no_trace_request_are_refused(body):
    assert "protobuf" in refused(BINARY, body)


def test_text_that_is_no_utf8_is_refused_whole():
    body = written(make_span("MARK"), make_span("fine", span_id="22" * 8))
    refused(BINARY, body.replace(b"MARK", b"\xff\xfe\xfd\xfc"))


def test_a_lone_surrogate_in_json_becomes_a_replacement_character():
    span = decoded(TEXT, one_span(attributes=[{"key": "said", "value": {"stringValue": "a\ud800b\u0000"}}]))
    assert span.attributes["said"] == "a\ufffdb\u0000"


def test_unknown_fields_are_ignored_at_every_level():
    body = as_json(make_request(make_span(events=[("e", {})])))
    resource = body["resourceSpans"][0]
    scope = resource["scopeSpans"][0]
    span = scope["spans"][0]
    for holder in (body, resource, resource["resource"], scope, scope["scope"], span, span["events"][0]):
        holder["brandNew"] = {"deep": [1, {"x": None}]}
    span["attributes"][0]["value"]["brandNew"] = 1
    assert TEXT.decode(as_text(body)).spans == TEXT.decode(one_span(events=span["events"])).spans


@pytest.mark.parametrize("depth", [200, 5_000, 200_000])
def test_values_nested_too_deeply_are_refused_and_nothing_crashes(depth):
    value = '{"arrayValue":{"values":[' * depth + '{"stringValue":"x"}' + "]}}" * depth
    marked = one_span(attributes=[{"key": "deep", "value": "HERE"}])
    refused(TEXT, marked.replace(b'"HERE"', value.encode()))


@pytest.mark.parametrize("depth", [200, 5_000])
def test_protobuf_nested_too_deeply_is_refused_and_nothing_crashes(depth):
    def field(number: int, body: bytes) -> bytes:
        size, left = b"", len(body)
        while left > 127:
            size, left = size + bytes([left & 127 | 128]), left >> 7
        return bytes([number << 3 | 2]) + size + bytes([left]) + body

    value = field(1, b"x")
    for _ in range(depth):
        value = field(5, field(1, value))
    attribute = field(9, field(1, b"deep") + field(2, value))
    span = make_span().SerializeToString() + attribute
    refused(BINARY, field(1, field(2, field(2, span))))


def test_values_nested_a_little_are_kept_as_they_are():
    value: Any = "x"
    for _ in range(10):
        value = {"in": [value]}
    assert decoded(BINARY, written(make_span(attributes={"deep": value}))).attributes["deep"] == value


@pytest.mark.parametrize(
    "field",
    [{"traceId": ""}, {"traceId": "00" * 16}, {"traceId": "ab" * 15}, {"traceId": "ab" * 17}, {"spanId": "ab" * 9}],
)
@pytest.mark.parametrize("encoding", [BINARY, TEXT])
def test_a_span_with_a_bad_id_is_rejected_alone_and_the_good_ones_are_kept(field, encoding):
    good, bad = make_span("good"), make_span("bad", span_id="22" * 8)
    (key, value) = next(iter(field.items()))
    if encoding is TEXT:
        body = as_json(make_request(good, bad))
        body["resourceSpans"][0]["scopeSpans"][0]["spans"][1][key] = value
        result = TEXT.decode(as_text(body))
    else:
        setattr(bad, {"traceId": "trace_id", "spanId": "span_id"}[key], bytes.fromhex(value))
        result = BINARY.decode(written(good, bad))
    assert [span.name for span in result.spans] == ["good"]
    assert result.rejected == 1
    assert {"traceId": "trace_id", "spanId": "span_id"}[key] in result.reason


def test_a_request_of_bad_spans_only_is_refused():
    bad = make_span()
    bad.trace_id = b""
    assert "trace_id" in refused(BINARY, written(bad))


def test_ids_in_json_may_be_upper_case_and_are_shown_in_lower_case():
    span = decoded(TEXT, one_span(traceId=TRACE_ID.upper(), spanId="ABCDEF0123456789"))
    assert (span.trace_id, span.span_id) == (TRACE_ID, "abcdef0123456789")


@pytest.mark.parametrize("value", ["abc", "zz" * 16, "q83vEjRWeJCrze8SNFZ4kA==", 12, None, {"hex": "ab"}, "é" * 32])
@pytest.mark.parametrize("key", ["traceId", "spanId"])
def test_an_id_in_json_that_is_no_hex_is_refused_by_name(key, value):
    assert key in refused(TEXT, one_span(**{key: value}))


def test_an_empty_parent_id_means_no_parent():
    assert decoded(TEXT, one_span(parentSpanId="")).parent_span_id is None


def test_field_names_in_snake_case_are_not_silently_lost():
    body = one_span().replace(b"resourceSpans", b"resource_spans").replace(b"scopeSpans", b"scope_spans")
    refused(TEXT, body)


def test_a_status_given_by_its_full_name_is_read():
    assert decoded(TEXT, one_span(status={"code": "STATUS_CODE_ERROR"})).status == "ERROR"


@pytest.mark.parametrize("code", ["ERROR", "Error", "FAILED", ""])
def test_a_status_given_by_an_unknown_name_is_refused_and_never_taken_for_success(code):
    assert "StatusCode" in refused(TEXT, one_span(status={"code": code}))


@pytest.mark.parametrize(("code", "status"), [(0, "UNSET"), (1, "OK"), (2, "ERROR"), (7, "UNSET")])
def test_a_status_given_by_number_is_read(code, status):
    assert decoded(TEXT, one_span(status={"code": code})).status == status


def test_what_a_span_leaves_out_is_filled_with_nothing():
    bare = SpanMessage(trace_id=bytes.fromhex(TRACE_ID), span_id=b"12345678")
    assert decoded(BINARY, written(bare)) == Span(TRACE_ID, b"12345678".hex(), None, "", scope="tests")


def test_a_payload_of_logs_is_refused():
    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add()
    record.time_unix_nano = 1_780_000_000_000_000_000
    record.body.string_value = "the tool was called"
    refused(BINARY, logs.SerializeToString())


@pytest.mark.parametrize("body", [b"", make_request().SerializeToString()])
def test_an_empty_request_is_a_request_of_nothing(body):
    assert BINARY.decode(body) == Decoded([])
    assert TEXT.decode(b"{}") == TEXT.decode(b'{"resourceSpans": []}') == Decoded([])


PLAIN = written(make_span("a" * 1000))


def raw_member(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (PLAIN, ""),
        (PLAIN, "identity"),
        (raw_member(PLAIN), "gzip"),
        (raw_member(PLAIN), " GZIP "),
        (raw_member(PLAIN[:500]) + raw_member(PLAIN[500:]), "gzip"),
        (raw_member(b"") + raw_member(PLAIN) + raw_member(b""), "gzip"),
        (zlib.compress(PLAIN), "deflate"),
    ],
)
def test_every_encoding_of_the_protocol_is_undone(body, encoding):
    assert inflate(body, encoding) == PLAIN


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (raw_member(PLAIN)[:-9], "gzip"),
        (raw_member(PLAIN)[:5], "gzip"),
        (raw_member(PLAIN) + b"rest", "gzip"),
        (raw_member(PLAIN) + raw_member(PLAIN)[:-1], "gzip"),
        (PLAIN, "gzip"),
        (zlib.compress(PLAIN), "gzip"),
        (raw_member(PLAIN), "deflate"),
        (zlib.compress(PLAIN)[:-1], "deflate"),
    ],
)
def test_damaged_data_is_refused_as_damaged(body, encoding):
    with pytest.raises(OTLPError, match=encoding) as refusal:
        inflate(body, encoding)
    assert refusal.value.status == 400


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, deflate", "x"])
def test_an_unknown_encoding_is_refused_by_name(encoding):
    with pytest.raises(OTLPError, match=encoding) as refusal:
        inflate(PLAIN, encoding)
    assert refusal.value.status == 415


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_is_refused_in_bounded_memory_and_time(encoding):
    zeros = bytes(200 * 1024 * 1024)
    bomb = gzip.compress(zeros, 1) if encoding == "gzip" else zlib.compress(zeros, 1)
    del zeros
    limit = 2 * 1024 * 1024
    tracemalloc.start()
    started = time.monotonic()
    with pytest.raises(OTLPError, match=str(limit)) as refusal:
        inflate(bomb, encoding, limit=limit)
    took, (_, peak) = time.monotonic() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refusal.value.status == 413
    assert peak < 4 * limit
    assert took < 10


def test_a_bomb_of_many_small_members_is_refused_too():
    member = gzip.compress(bytes(10_000))
    with pytest.raises(OTLPError) as refusal:
        inflate(member * 1000, "gzip", limit=1_000_000)
    assert refusal.value.status == 413


def test_very_many_empty_members_do_not_take_for_ever():
    started = time.monotonic()
    assert inflate(gzip.compress(b"") * 50_000, "gzip") == b""
    assert time.monotonic() - started < 10


def test_exactly_the_limit_is_let_through():
    assert inflate(gzip.compress(bytes(1000)), "gzip", limit=1000) == bytes(1000)
    with pytest.raises(OTLPError):
        inflate(gzip.compress(bytes(1001)), "gzip", limit=1000)


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/grpc", "multipart/form-data", "json"])
def test_another_content_type_is_refused_by_name(content_type):
    with pytest.raises(OTLPError) as refusal:
        Encoding.of(content_type)
    assert refusal.value.status == 415
    assert repr(content_type) in str(refusal.value)


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        ("application/json; charset=utf-8", TEXT),
        ("Application/JSON", TEXT),
        ("application/x-protobuf", BINARY),
        (" application/x-protobuf ;v=1", BINARY),
    ],
)
def test_a_content_type_is_read_with_its_parameters_and_in_any_case(content_type, encoding):
    assert Encoding.of(content_type) == encoding


def test_an_error_is_written_as_a_status_in_either_encoding():
    assert RPCStatus.FromString(BINARY.error("no such thing")).message == "no such thing"
    assert json.loads(TEXT.error("no such thing"))["message"] == "no such thing"


def test_full_success_is_an_empty_answer_and_partial_success_counts():
    assert (BINARY.answer(Decoded([])), json.loads(TEXT.answer(Decoded([])))) == (b"", {})
    partly = Decoded([], rejected=2, reason="bad ids")
    for answer in (
        ExportTraceServiceResponse.FromString(BINARY.answer(partly)),
        Parse(TEXT.answer(partly), ExportTraceServiceResponse()),
    ):
        assert (answer.partial_success.rejected_spans, answer.partial_success.error_message) == (2, "bad ids")
