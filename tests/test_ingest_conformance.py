"""What any OTLP/HTTP receiver must answer, case by case, over real HTTP; the numbers are those of the design."""

from __future__ import annotations

import base64
import gzip
import json
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from captures import JSON, PROTOBUF, as_json, make_request, make_span, make_tool, pairs
from serving import ACME, OTHER, Place, encode, partial, reason, serving
from sonar_eval.ingest.app import create_app
from sonar_eval.ingest.db import SpanStore
from sonar_eval.ingest.keys import KeyRing

LIMIT = 20 * 1024 * 1024
both_encodings = pytest.mark.parametrize("encoding", [PROTOBUF, JSON])


@pytest.fixture(scope="module")
def ingest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Serve two tenants, each with a key."""
    store = SpanStore(f"sqlite:///{tmp_path_factory.mktemp('conformance') / 'spans.db'}")
    with serving(create_app(store, KeyRing({ACME: "acme", OTHER: "other"}))) as place:
        yield place
    store.close()


@pytest.fixture
def talk() -> Talk:
    """Return a conversation that nobody else has."""
    return Talk()


class Talk:
    """Ids of one conversation, and spans of it."""

    def __init__(self) -> None:
        self.trace = os.urandom(16).hex()
        self.id = f"talk-{self.trace[:8]}"
        self._count = 0

    def span(self, name: str = "work", *args: Any, **more: Any) -> Span:
        self._count += 1
        told = {"trace_id": self.trace, "span_id": f"{self._count:016x}", "conversation": self.id, **more}
        return make_span(name, *args, **told)

    def request(self, count: int = 1) -> ExportTraceServiceRequest:
        return make_request(*(self.span(f"step {number}") for number in range(count)))

    def json(self, count: int = 1) -> dict[str, Any]:
        return as_json(self.request(count))


def the_span(body: dict[str, Any], number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = body["resourceSpans"][0]["scopeSpans"][0]["spans"][number]
    return found


def post_json(ingest: Place, body: Any) -> Any:
    written = body if isinstance(body, str) else json.dumps(body)
    return ingest.post(written.encode("utf-8", "surrogatepass"), JSON)


def request_head(length: int | None, *more: str) -> bytes:
    lines = ["POST /v1/traces HTTP/1.1", "host: 127.0.0.1", f"x-sonar-api-key: {ACME}", f"content-type: {PROTOBUF}"]
    framing = [] if length is None else [f"content-length: {length}"]
    return "\r\n".join([*lines, *framing, *more, "", ""]).encode()


@both_encodings
def test_c01_what_is_answered_is_there_at_once(ingest, talk, encoding):
    answer = ingest.post(talk.request(3), encoding)
    assert (answer.status_code, answer.headers["content-type"]) == (200, encoding)
    assert answer.content == (b"" if encoding == PROTOBUF else b"{}")
    assert ingest.names(talk.id) == ["step 0", "step 1", "step 2"]


def test_c02_a_charset_beside_the_json_type_is_fine(ingest, talk):
    body = encode(talk.request(), JSON)
    answer = ingest.post(body, "application/json; charset=utf-8")
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, JSON, b"{}")
    assert ingest.names(talk.id) == ["step 0"]


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [(b"", PROTOBUF, 200), (b"{}", JSON, 200), (b'{"resourceSpans": []}', JSON, 200), (b"", JSON, 400)],
)
def test_c03_an_empty_request_is_a_success_but_no_json_is_none(ingest, body, encoding, status):
    assert ingest.post(body, encoding).status_code == status


@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "application/grpc", "application/x-www-form-urlencoded"]
)
def test_c04_another_content_type_is_refused(ingest, talk, content_type):
    headers = {"x-sonar-api-key": ACME, **({} if content_type is None else {"content-type": content_type})}
    answer = ingest.client.post("/v1/traces", content=encode(talk.request(), PROTOBUF), headers=headers)
    assert answer.status_code == 415
    assert "Content-Type must be" in reason(answer)
    assert ingest.names(talk.id) == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
def test_c05_only_post_is_allowed(ingest, method):
    for path in ("/v1/traces", "/v1/traces/"):
        answer = ingest.client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/logs", "/v1/traces/x", "//v1/traces", "/v1/conversations/"])
def test_c05_unknown_paths_are_not_found_and_nothing_redirects(ingest, talk, path):
    answer = ingest.client.post(ingest.url + path, content=encode(talk.request(), PROTOBUF))
    assert answer.status_code in (404, 405)
    assert ingest.get(path.replace("//", "/./")).status_code in (404, 405, 400)


def test_c05_the_path_with_a_slash_is_the_same_and_no_redirect(ingest, talk):
    headers = {"content-type": PROTOBUF, "x-sonar-api-key": ACME}
    answer = ingest.client.post("/v1/traces/", content=encode(talk.request(), PROTOBUF), headers=headers)
    assert answer.status_code == 200
    assert ingest.names(talk.id) == ["step 0"]


def halves(data: bytes) -> bytes:
    return gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])


@both_encodings
@pytest.mark.parametrize(
    ("named", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZip", gzip.compress), ("gzip", halves)],
    ids=["gzip", "deflate", "upper-case", "two members"],
)
def test_c06_compressed_requests_are_taken(ingest, talk, encoding, named, compress: Callable[[bytes], bytes]):
    answer = ingest.post(compress(encode(talk.request(3), encoding)), encoding, content_encoding=named)
    assert answer.status_code == 200
    assert len(ingest.names(talk.id)) == 3


@both_encodings
@pytest.mark.parametrize(
    ("spoil", "named", "status"),
    [
        (lambda body: gzip.compress(body)[:-9], "gzip", 400),
        (lambda body: body, "gzip", 400),
        (lambda body: body, "deflate", 400),
        (gzip.compress, None, 400),
        (lambda body: gzip.compress(body) + b"trailing", "gzip", 400),
        (gzip.compress, "br", 415),
        (gzip.compress, "gzip, gzip", 415),
    ],
    ids=["cut", "not gzip", "not deflate", "undeclared", "more after it", "br", "twice"],
)
def test_c07_damaged_or_unknown_compression_is_refused(ingest, talk, encoding, spoil, named, status):
    headers = {} if named is None else {"content_encoding": named}
    answer = ingest.post(spoil(encode(talk.request(), encoding)), encoding, **headers)
    assert answer.status_code == status
    assert reason(answer)
    assert ingest.names(talk.id) == []


@both_encodings
def test_c08_a_bomb_is_refused_before_it_has_grown(ingest, encoding):
    bomb = gzip.compress(bytes(200 * 1024 * 1024), 9)
    assert len(bomb) < 250_000
    began = time.monotonic()
    answer = ingest.post(bomb, encoding, content_encoding="gzip")
    assert answer.status_code == 413
    assert "inflates beyond" in reason(answer)
    assert time.monotonic() - began < 5


def test_c09_a_body_announced_too_large_is_refused_unread(ingest):
    heard = ingest.talk(request_head(LIMIT + 1))
    assert heard.startswith(b"HTTP/1.1 413 ")


def test_c09_a_body_that_grows_too_large_is_refused_while_it_comes(ingest):
    def chunks() -> Iterator[bytes]:
        for _ in range(21):
            yield bytes(1024 * 1024)

    headers = {"content-type": PROTOBUF, "x-sonar-api-key": ACME}
    assert ingest.client.post("/v1/traces", content=chunks(), headers=headers).status_code == 413
    assert ingest.post(b"").status_code == 200


@both_encodings
def test_c10_a_body_in_chunks_is_taken(ingest, talk, encoding):
    body = encode(talk.request(3), encoding)
    headers = {"content-type": encoding, "x-sonar-api-key": ACME}
    pieces = (body[start : start + 100] for start in range(0, len(body), 100))
    assert ingest.client.post("/v1/traces", content=pieces, headers=headers).status_code == 200
    assert len(ingest.names(talk.id)) == 3


@pytest.mark.parametrize(
    "said",
    [
        request_head(None, "transfer-encoding: chunked") + b"zz\r\nhello\r\n0\r\n\r\n",
        request_head(None, "transfer-encoding: chunked") + b"-5\r\nhello\r\n0\r\n\r\n",
        request_head(-1),
        request_head(5, "content-length: 6") + b"hello",
        request_head(5, "transfer-encoding: chunked") + b"0\r\n\r\n",
        request_head(None, "transfer-encoding: gzip") + b"hello",
        b"POST /v1/traces HTTP/1.1\r\nhost 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /v1/traces HTTP/1.1\r\nx: " + b"x" * 100_000,
    ],
    ids=[
        "bad chunk",
        "negative chunk",
        "negative length",
        "two lengths",
        "both framings",
        "other framing",
        "no colon",
        "TLS",
        "endless head",
    ],
)
def test_c11_bad_framing_is_refused_and_the_server_lives(ingest, talk, said):
    heard = ingest.talk(said)
    assert heard == b"" or heard.split(b" ")[1] in (b"400", b"431", b"501")
    assert ingest.post(talk.request()).status_code == 200


def test_c12_a_sender_that_asks_first_is_told_to_go_on(ingest, talk):
    body = encode(talk.request(), PROTOBUF)
    heard = ingest.talk(request_head(len(body), "expect: 100-continue"), body)
    assert heard.startswith(b"HTTP/1.1 100 ")
    assert b"HTTP/1.1 200 " in heard
    assert ingest.names(talk.id) == ["step 0"]


def test_c12_a_sender_that_asks_first_is_told_not_to(ingest):
    heard = ingest.talk(request_head(LIMIT + 1, "expect: 100-continue"))
    assert heard.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"\x0a\xff", PROTOBUF),
        (b"not protobuf at all", PROTOBUF),
        (b'{"resourceSpans": [', JSON),
        (b"[]", JSON),
        (b'"text"', JSON),
        (b'{"resourceSpans": 5}', JSON),
        (encode(make_request(make_span()), JSON), PROTOBUF),
        (encode(make_request(make_span()), PROTOBUF), JSON),
    ],
)
def test_c13_what_cannot_be_read_is_refused_in_the_encoding_it_came_in(ingest, body, encoding):
    answer = ingest.post(body, encoding)
    assert (answer.status_code, answer.headers["content-type"]) == (400, encoding)
    assert "no trace request" in reason(answer) or "must be" in reason(answer)


@both_encodings
def test_c14_logs_are_no_traces(ingest, encoding):
    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1, severity_text="INFO")
    record.body.string_value = "hello"
    record.attributes.extend(pairs({"a": 1}))
    body = logs.SerializeToString()
    if encoding == JSON:
        body = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "hello"}}]}]}]}'
    assert ingest.post(body, encoding).status_code == 400


@both_encodings
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trace_id", b""),
        ("trace_id", bytes(16)),
        ("trace_id", b"x" * 15),
        ("trace_id", b"x" * 17),
        ("span_id", b""),
        ("span_id", bytes(8)),
        ("span_id", b"x" * 9),
        ("parent_span_id", b"x" * 7),
    ],
)
def test_c15_a_bad_id_costs_its_span_and_no_other(ingest, talk, encoding, field, value):
    request = talk.request(3)
    setattr(request.resource_spans[0].scope_spans[0].spans[1], field, value)
    rejected, why = partial(ingest.post(request, encoding))
    assert rejected == 1
    assert why.startswith(f"{field} must be")
    assert ingest.names(talk.id) == ["step 0", "step 2"]


@both_encodings
def test_c15_a_parent_of_zeros_is_none(ingest, talk, encoding):
    request = talk.request()
    request.resource_spans[0].scope_spans[0].spans[0].parent_span_id = bytes(8)
    assert ingest.post(request, encoding).status_code == 200
    assert ingest.spans(talk.id)[0]["parent_span_id"] is None


@both_encodings
def test_c16_nothing_but_bad_spans_is_refused(ingest, talk, encoding):
    request = talk.request(2)
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.span_id = b""
    answer = ingest.post(request, encoding)
    assert answer.status_code == 400
    assert "span_id must be 8 bytes" in reason(answer)


def test_c17_ids_in_capitals_are_shown_in_small_letters(ingest, talk):
    body = talk.json()
    the_span(body)["traceId"] = talk.trace.upper()
    the_span(body)["spanId"] = "ABCDEFABCDEFABCD"
    assert post_json(ingest, body).status_code == 200
    assert [(span["trace_id"], span["span_id"]) for span in ingest.spans(talk.id)] == [(talk.trace, "abcdefabcdefabcd")]


@pytest.mark.parametrize("field", ["traceId", "spanId"])
@pytest.mark.parametrize(
    "value",
    ["abc", "zz" * 16, base64.b64encode(b"0123456789abcdef").decode(), 17, None, {"a": 1}, ["00"], True],
    ids=["odd", "not hex", "base64", "number", "null", "object", "list", "bool"],
)
def test_c17_ids_that_are_no_hex_are_refused(ingest, talk, field, value):
    body = talk.json()
    the_span(body)[field] = value
    answer = post_json(ingest, body)
    assert answer.status_code == 400
    assert field in reason(answer)
    assert ingest.names(talk.id) == []


def test_c17_no_parent_may_be_written_as_null(ingest, talk):
    body = talk.json()
    the_span(body)["parentSpanId"] = None
    assert post_json(ingest, body).status_code == 200
    assert ingest.spans(talk.id)[0]["parent_span_id"] is None


def test_c18_fields_that_nobody_knows_are_ignored_at_every_level(ingest, talk):
    body = talk.json()
    span = the_span(body)
    span["links"] = [{"traceId": talk.trace, "spanId": "11" * 8, "future": 1}]
    span["events"] = [{"name": "e", "timeUnixNano": "1", "future": {"a": []}}]
    span["status"] = {"code": 2, "future": 1}
    holders = [
        body,
        body["resourceSpans"][0],
        body["resourceSpans"][0]["scopeSpans"][0],
        span,
        span["attributes"][0],
        span["attributes"][0]["value"],
    ]
    for holder in holders:
        holder["future"] = {"deep": [1, {"deeper": None}]}
    # Beside the real one, a field in the wrong spelling is one that nobody knows.
    span["trace_id"] = "x"
    assert post_json(ingest, body).status_code == 200
    assert ingest.read(talk.id).json()["runs"][0]["status"] == "error"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("resourceSpans", "resource_spans"),
        ("scopeSpans", "scope_spans"),
        ("traceId", "trace_id"),
        ("spanId", "span_id"),
        ("parentSpanId", "parent_span_id"),
    ],
)
def test_c19_snake_case_is_refused_where_it_would_lose_spans(ingest, talk, right, wrong):
    body = as_json(make_request(talk.span(parent="11" * 8)))
    answer = post_json(ingest, json.dumps(body).replace(f'"{right}"', f'"{wrong}"'))
    assert answer.status_code == 400
    assert f"must be written {right}" in reason(answer)


@pytest.mark.parametrize("value", [7, "7", -(2**63), str(2**63 - 1)])
def test_c20_integers_come_as_text_or_numbers(ingest, talk, value):
    body = talk.json()
    the_span(body)["attributes"].append({"key": "n", "value": {"intValue": value}})
    assert post_json(ingest, body).status_code == 200


@pytest.mark.parametrize(
    "value", ['{"doubleValue": "NaN"}', '{"doubleValue": null}', "{}", '{"doubleValue": "-Infinity"}']
)
def test_c20_what_exporters_write_for_no_number_is_taken(ingest, talk, value):
    body = json.dumps(talk.json()).replace(
        '"attributes": [{"key": "sonar', f'"attributes": [{{"key": "n", "value": {value}}}, {{"key": "sonar'
    )
    assert post_json(ingest, body).status_code == 200
    assert ingest.names(talk.id) == ["step 0"]


@pytest.mark.parametrize(
    "value",
    [
        '{"intValue": 9223372036854775808}',
        '{"intValue": "9223372036854775808"}',
        '{"intValue": 1.5}',
        '{"doubleValue": NaN}',
        '{"doubleValue": Infinity}',
        '{"boolValue": "yes"}',
    ],
)
def test_c20_values_out_of_range_and_words_that_json_has_not_are_refused(ingest, talk, value):
    body = json.dumps(talk.json())
    body = body.replace(
        '"attributes": [{"key": "sonar', f'"attributes": [{{"key": "n", "value": {value}}}, {{"key": "sonar'
    )
    assert post_json(ingest, body).status_code == 400
    assert ingest.names(talk.id) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_c21_numbers_that_are_none_are_kept_and_answered_in_strict_json(ingest, talk, value):
    tool = make_tool(
        "lookup", attributes={"gen_ai.tool.call.result": {"score": value}}, trace_id=talk.trace, conversation=talk.id
    )
    assert ingest.post(make_request(tool)).status_code == 200
    answer = ingest.read(talk.id)
    strict = json.loads(answer.content, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert strict["spans"][0]["tool_name"] == "lookup"


@pytest.mark.parametrize(("code", "status"), [("STATUS_CODE_ERROR", 200), ("ERROR", 400), ("2", 400), ("", 400)])
def test_c22_an_enum_by_name_is_never_read_as_unset(ingest, talk, code, status):
    body = talk.json()
    the_span(body)["status"] = {"code": code}
    assert post_json(ingest, body).status_code == status
    if status == 200:
        assert ingest.read(talk.id).json()["runs"][0]["status"] == "error"


@pytest.mark.parametrize(("kind", "status"), [("SPAN_KIND_SERVER", 200), ("SERVER", 400), (2, 200), (77, 200)])
def test_c22_a_kind_by_name_is_understood_or_refused(ingest, talk, kind, status):
    body = talk.json()
    the_span(body)["kind"] = kind
    assert post_json(ingest, body).status_code == status


@both_encodings
def test_c23_a_span_with_nothing_but_ids_is_taken(ingest, talk, encoding):
    bare = Span(trace_id=bytes.fromhex(talk.trace), span_id=b"12345678")
    bare.attributes.extend(pairs({"sonar.conversation.id": talk.id}))
    assert ingest.post(make_request(bare), encoding).status_code == 200
    (span,) = ingest.spans(talk.id)
    assert (span["name"], span["started_at"], span["duration_ms"]) == ("", None, None)


@both_encodings
def test_c24_structured_values_keep_their_structure(ingest, talk, encoding):
    value = {"list": [1, "two", [3.5]], "map": {"inner": True}, "nothing": None, "bytes": b"\x01\xff"}
    tool = make_tool("lookup", attributes={"gen_ai.tool.call.result": value}, trace_id=talk.trace, conversation=talk.id)
    assert ingest.post(make_request(tool), encoding).status_code == 200
    (shown,) = (row["value"] for row in ingest.read(talk.id).json()["content"] if row["type"] == "tool_result")
    assert {key: shown[key] for key in ("list", "map", "nothing")} == {
        "list": [1, "two", [3.5]],
        "map": {"inner": True},
        "nothing": None,
    }
    assert "bytes" in shown


def nested_protobuf(depth: int) -> bytes:
    """Write a span with an attribute that is a list in a list in a list."""

    def prefixed(tags: list[int], size: int) -> tuple[bytes, int]:
        out = b""
        for tag in tags:
            prefix = bytes([tag]) + varint(size)
            out = prefix + out
            size += len(prefix)
        return out, size

    prefixes, size = [], 0
    for _ in range(depth):
        prefix, size = prefixed([0x0A, 0x2A], size)
        prefixes.append(prefix)
    for tag in (0x12, 0x4A, 0x12, 0x12, 0x0A):
        prefix, size = prefixed([tag], size)
        prefixes.append(prefix)
    return b"".join(reversed(prefixes))


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


@both_encodings
@pytest.mark.parametrize("depth", [200, 5_000, 200_000])
def test_c25_deep_nesting_is_refused_and_nothing_breaks(ingest, talk, encoding, depth):
    if encoding == PROTOBUF:
        body = nested_protobuf(depth)
    else:
        value = '{"arrayValue": {"values": [' * depth + "]}}" * depth
        plain = json.dumps(talk.json())
        body = plain.replace('"attributes": [', f'"attributes": [{{"key": "n", "value": {value}}},', 1).encode()
    assert ingest.post(body, encoding).status_code == 400
    assert ingest.post(talk.request()).status_code == 200


@both_encodings
def test_c26_a_very_long_value_is_kept_shown_cut_and_marked(ingest, talk, encoding):
    value = "x" * 1024 * 1024
    tool = make_tool("lookup", attributes={"gen_ai.tool.call.result": value}, trace_id=talk.trace, conversation=talk.id)
    assert ingest.post(make_request(tool), encoding).status_code == 200
    answer = ingest.read(talk.id).json()
    assert [span["tool_name"] for span in answer["spans"]] == ["lookup"]
    (row,) = (row for row in answer["content"] if row["type"] == "tool_result")
    assert (len(row["value"]), row["cut"]) == (64 * 1024, True)


def test_c27_invalid_utf8_in_protobuf_is_refused_whole(ingest, talk):
    body = encode(talk.request(2), PROTOBUF).replace(b"step 1", b"step \xff")
    assert ingest.post(body).status_code == 400
    assert ingest.names(talk.id) == []


def test_c27_half_characters_and_nul_in_json_are_taken_and_can_be_written_again(ingest, talk):
    body = json.dumps(talk.json()).replace('"step 0"', r'"a\ud800b\u0000c\ud83d\ude00"')
    assert post_json(ingest, body).status_code == 200
    assert ingest.names(talk.id) == ["a\ufffdb\x00c\U0001f600"]


def test_c27_invalid_utf8_in_json_is_refused(ingest, talk):
    body = json.dumps(talk.json()).encode().replace(b"step 0", b"step \xff")
    assert ingest.post(body, JSON).status_code == 400


@both_encodings
def test_c28_the_same_spans_again_are_stored_once(ingest, talk, encoding):
    span = talk.span("once")
    request = make_request(span, span)
    for _ in range(3):
        answer = ingest.post(request, encoding)
        assert partial(answer) == (0, "")
    (stored,) = ingest.spans(talk.id)
    assert (stored["name"], stored["conflict"]) == ("once", False)


def test_c28_either_encoding_of_a_span_is_the_same_span(ingest, talk):
    request = make_request(
        talk.span("once", {"n": 1, "f": 1.0, "b": b"\x00", "l": [None, {}]}, events=[("e", {"a": 1})])
    )
    for encoding in (PROTOBUF, JSON):
        assert partial(ingest.post(request, encoding)) == (0, "")
    assert [span["conflict"] for span in ingest.spans(talk.id)] == [False]


@both_encodings
def test_c29_another_span_under_the_same_ids_is_not_taken_for_the_first(ingest, talk, encoding):
    failed = talk.span("work", span_id="77" * 8, status=Status.STATUS_CODE_ERROR, message="no such order")
    mended = talk.span("work", span_id="77" * 8, status=Status.STATUS_CODE_OK)
    assert partial(ingest.post(make_request(failed), encoding)) == (0, "")
    rejected, said = partial(ingest.post(make_request(mended), encoding))
    assert rejected == 0
    assert "other content" in said
    answer = ingest.read(talk.id).json()
    assert [(span["conflict"], span["error_message"]) for span in answer["spans"]] == [(True, "no such order")]
    assert answer["completeness"]["conflicts"] == 1


def test_c30_spans_that_come_in_any_order_are_one_run(ingest, talk):
    root = talk.span("root", start_s=0, duration_s=10)
    child = talk.span("child", parent="00000001".rjust(16, "0"), start_s=1)
    grandchild = talk.span("grandchild", parent="00000002".rjust(16, "0"), start_s=2)
    for span in (grandchild, root, child):
        assert ingest.post(make_request(span)).status_code == 200
    answer = ingest.read(talk.id).json()
    assert [span["name"] for span in answer["spans"]] == ["root", "child", "grandchild"]
    assert [run["name"] for run in answer["runs"]] == ["root"]
    assert answer["completeness"]["orphans"] == 0


@both_encodings
@pytest.mark.parametrize("key", [None, "", ACME + "x", ACME[:-1], ACME.upper(), f"{ACME[:4]} {ACME[4:]}"])
def test_c31_without_the_very_key_nothing_is_taken(ingest, talk, encoding, key):
    answer = ingest.post(talk.request(), encoding, key=key)
    assert answer.status_code == 401
    assert "x-sonar-api-key" in reason(answer)
    assert ACME not in reason(answer)
    assert ingest.names(talk.id) == []
    assert ingest.read(talk.id, key=key).status_code == 401


def test_c31_a_key_of_other_letters_opens_nothing(ingest):
    headers = [(b"x-sonar-api-key", "schlüssel".encode()), (b"content-type", PROTOBUF.encode())]
    assert ingest.client.post("/v1/traces", content=b"", headers=headers).status_code == 401


@pytest.mark.parametrize("params", [{}, {"tenant": ""}, {"tenant": ["acme", "acme"]}])
def test_c31_a_question_names_its_tenant_once(ingest, params):
    answer = ingest.client.get("/v1/conversations/x", params=params, headers={"x-sonar-api-key": ACME})
    assert answer.status_code == 400
    assert "tenant" in answer.json()["error"]


def test_c32_another_tenant_sees_nothing(ingest, talk):
    assert ingest.post(talk.request()).status_code == 200
    unknown = ingest.read("never-heard-of").json()
    for tenant, key in (("other", OTHER), ("acme", OTHER), ("other", ACME)):
        answer = ingest.read(talk.id, tenant=tenant, key=key)
        assert (answer.status_code, answer.json()) == (404, unknown)


@both_encodings
@pytest.mark.parametrize("where", ["span", "resource"])
def test_c32_a_span_that_claims_another_tenant_is_rejected(ingest, talk, encoding, where):
    mine, foreign = talk.request(), talk.request()
    if where == "span":
        foreign.resource_spans[0].scope_spans[0].spans[0].attributes.extend(pairs({"sonar.tenant.id": "other"}))
    else:
        foreign.resource_spans[0].resource.attributes.extend(pairs({"sonar.tenant.id": "other"}))
    mine.MergeFrom(foreign)
    rejected, why = partial(ingest.post(mine, encoding))
    assert (rejected, why) == (1, "the span names a tenant that the key does not open")
    assert len(ingest.spans(talk.id)) == 1
    assert ingest.spans(talk.id, tenant="other", key=OTHER) == []


def test_c33_the_same_ids_in_two_tenants_are_two_spans(ingest, talk):
    first, second = talk.span("of acme", span_id="99" * 8), talk.span("of other", span_id="99" * 8)
    assert partial(ingest.post(make_request(first))) == (0, "")
    assert partial(ingest.post(make_request(second), key=OTHER)) == (0, "")
    assert ingest.names(talk.id) == ["of acme"]
    assert ingest.names(talk.id, tenant="other", key=OTHER) == ["of other"]


def test_c34_a_span_without_a_conversation_joins_the_only_one_of_its_trace(ingest, talk):
    stray = talk.span("stray", conversation=None)
    assert ingest.post(make_request(stray)).status_code == 200
    assert ingest.names(talk.id) == []
    assert ingest.post(make_request(talk.span("named"))).status_code == 200
    assert sorted(ingest.names(talk.id)) == ["named", "stray"]
    elsewhere = talk.span("elsewhere", conversation=talk.id + "-2")
    assert ingest.post(make_request(elsewhere)).status_code == 200
    assert ingest.names(talk.id) == ["named"]
    assert ingest.names(talk.id + "-2") == ["elsewhere"]


def test_c34_another_tenants_conversation_is_none_of_its_trace(ingest, talk):
    assert ingest.post(make_request(talk.span("stray", conversation=None)), key=OTHER).status_code == 200
    assert ingest.post(make_request(talk.span("named"))).status_code == 200
    assert ingest.names(talk.id) == ["named"]


@pytest.mark.parametrize(
    "conversation",
    [
        "a/b",
        "two words",
        "a%2Fb",
        "né",
        "..",
        ".",
        "../up",
        "a?tenant=x",
        "a#b",
        "line\nbreak",
        "end\n",
        "a&b=c;d+e",
        "trailing/",
        "/",
        "x" * 300,
        "🙂" * 50,
        "'; DROP TABLE span; --",
        "\\",
        "%",
        "%00",
        "a\tb",
        "\u202e",
    ],
)
def test_c35_any_text_is_a_conversation(ingest, talk, conversation):
    assert ingest.post(make_request(talk.span(conversation=conversation))).status_code == 200
    answer = ingest.read(conversation)
    assert (answer.status_code, answer.json()["conversation_id"]) == (200, conversation)
    assert talk.trace in {span["trace_id"] for span in answer.json()["spans"]}


def test_c35_a_conversation_with_an_id_beyond_reason_costs_its_span(ingest, talk):
    rejected, why = partial(ingest.post(make_request(talk.span(), talk.span(conversation="x" * 1025))))
    assert rejected == 1
    assert "longer than 1024 bytes" in why
    assert len(ingest.spans(talk.id)) == 1


def test_c35_case_and_spaces_tell_conversations_apart(ingest, talk):
    assert ingest.post(talk.request()).status_code == 200
    for other in (talk.id.upper(), talk.id + " ", " " + talk.id, talk.id[:-1]):
        assert ingest.spans(other) == []


@both_encodings
def test_c36_writers_side_by_side_who_send_again_lose_and_double_nothing(ingest, talk, encoding):
    requests = [[make_request(talk.span(f"{writer}-{number}")) for number in range(20)] for writer in range(8)]

    def write(mine: list[ExportTraceServiceRequest]) -> list[int]:
        return [ingest.post(request, encoding).status_code for request in mine for _ in range(2)]

    with ThreadPoolExecutor(8) as pool:
        answered = [status for statuses in pool.map(write, requests) for status in statuses]
    assert set(answered) == {200}
    names = ingest.names(talk.id)
    assert (len(names), len(set(names))) == (160, 160)


def test_a_slow_body_is_given_up_and_counted_as_lost(tmp_path):
    from sonar_eval.ingest.receive import Limits

    store = SpanStore(f"sqlite:///{tmp_path / 'slow.db'}")
    app = create_app(store, KeyRing({ACME: "acme"}), limits=Limits(pause_s=0.3, body_s=0.6))
    with serving(app) as place:
        assert place.talk(request_head(100) + b"abc").startswith(b"HTTP/1.1 408 ")
        said = place.read("nothing", since=60).json()["error"]
        assert "1 requests were refused meanwhile, last: 408" in said
    store.close()


class BrokenKeyRing(KeyRing):
    """Fails as nobody thought of."""

    def tenant_of(self, key: str | bytes | None) -> str | None:
        if key == b"broken":
            raise ZeroDivisionError("a mistake")
        return super().tenant_of(key)


@both_encodings
def test_a_mistake_of_ours_is_answered_in_the_encoding_it_came_in_and_the_server_lives(tmp_path, encoding, caplog):
    store = SpanStore(f"sqlite:///{tmp_path / 'broken.db'}")
    with serving(create_app(store, BrokenKeyRing({ACME: "acme"}))) as place:
        answer = place.post(make_request(make_span()), encoding, key="broken")
        assert (answer.status_code, reason(answer)) == (500, "the server failed: ZeroDivisionError")
        assert place.post(make_request(make_span()), encoding).status_code == 200
    assert "a trace request failed" in caplog.text
    store.close()


def test_too_much_at_a_time_is_answered_come_back_in_a_second(tmp_path):
    from sonar_eval.ingest.receive import Limits

    store = SpanStore(f"sqlite:///{tmp_path / 'full.db'}")
    with serving(create_app(store, KeyRing({ACME: "acme"}), limits=Limits(waiting_requests=0))) as place:
        for encoding in (PROTOBUF, JSON):
            answer = place.post(make_request(make_span()), encoding)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "come back" in reason(answer)
        # What will come again is not lost.
        assert place.read("nothing", since=60).json()["error"] == "no such conversation"
    store.close()


def test_a_disconnect_in_the_middle_of_a_body_stores_nothing_and_is_told(ingest, talk):
    import socket

    body = encode(talk.request(), PROTOBUF)
    with socket.create_connection(("127.0.0.1", ingest.port)) as link:
        link.sendall(request_head(len(body)) + body[:-1])
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert ingest.post(b"").status_code == 200
    assert "refused" in ingest.read(talk.id, since=5).json()["error"]
