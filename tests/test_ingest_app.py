"""The ingest over HTTP: who may write and read, what is answered, and what is kept."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from google.rpc.status_pb2 import Status as RPCStatus
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from captures import CONVERSATION, JSON, PROTOBUF, TRACE_ID, as_json, ask, make_request, make_span, make_tool, post
from fakes import run
from sonar_eval.ingest.app import create_app
from sonar_eval.ingest.db import SpanStore
from sonar_eval.ingest.keys import KeyRing
from sonar_eval.transcript.wire import conversation_path

ACME, OTHER = "key-of-acme", "key-of-other"
AWKWARD_IDS = [
    "a/b",
    "/",
    "a%2Fb",
    "two words",
    "né",
    ".",
    "..",
    "../secret",
    "a?tenant=x",
    "a#b",
    "a&b=c;d+e",
    "trailing/",
    "line\nbreak",
    "end\n",
    "x" * 300,
    "🙂",
]


@pytest.fixture
def store(tmp_path: Any) -> Iterator[SpanStore]:
    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    yield store
    store.close()


@pytest.fixture
def app(store: SpanStore) -> Any:
    """Make an ingest with two tenants, each with a key."""
    return create_app(store, KeyRing({ACME: "acme", OTHER: "other"}))


@pytest.fixture
def open_app(store: SpanStore) -> Any:
    """Make an ingest that asks for no key."""
    return create_app(store, KeyRing(open_tenant="acme"))


def read(app: Any, conversation: str = CONVERSATION, *, tenant: str = "acme", key: str | None = ACME) -> httpx.Response:
    headers = {"x-sonar-api-key": key} if key else {}
    return ask(app, "GET", conversation_path(conversation), params={"tenant": tenant}, headers=headers)


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [span["name"] for span in answer.json()["spans"]]


def reason(answer: httpx.Response) -> str:
    """Read the google.rpc.Status of a refusal, in whichever encoding it came."""
    if answer.headers["content-type"] == PROTOBUF:
        return RPCStatus.FromString(answer.content).message
    return str(answer.json()["message"])


THREE = make_request(*(make_span(f"s{n}", span_id=f"{n}{n}" * 8, start_s=n) for n in (1, 2, 3)))


def test_spans_are_readable_as_soon_as_they_are_acknowledged(app):
    answer = post(app, THREE, x_sonar_api_key=ACME)
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, PROTOBUF, b"")
    assert names(read(app)) == ["s1", "s2", "s3"]


def test_json_is_answered_in_json(app):
    body = json.dumps(as_json(THREE)).encode()
    answer = post(app, body, content_type="application/json; charset=utf-8", x_sonar_api_key=ACME)
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (200, JSON, {})
    assert names(read(app)) == ["s1", "s2", "s3"]


@pytest.mark.parametrize(("content_type", "body"), [(PROTOBUF, b""), (JSON, b"{}"), (JSON, b'{"resourceSpans": []}')])
def test_an_empty_request_is_a_success(app, content_type, body):
    answer = post(app, body, content_type=content_type, x_sonar_api_key=ACME)
    assert (answer.status_code, answer.headers["content-type"]) == (200, content_type)


def test_an_empty_json_body_is_no_request(app):
    assert post(app, b"", content_type=JSON, x_sonar_api_key=ACME).status_code == 400


@pytest.mark.parametrize(
    ("content_type", "body"), [(PROTOBUF, b"\x0a"), (JSON, b"{"), (PROTOBUF, b"{}"), (JSON, b"\x0a")]
)
def test_a_refusal_is_a_status_in_the_encoding_of_the_request(app, content_type, body):
    answer = post(app, body, content_type=content_type, x_sonar_api_key=ACME)
    assert (answer.status_code, answer.headers["content-type"]) == (400, content_type)
    assert reason(answer)


@pytest.mark.parametrize("content_type", ["text/plain", "application/grpc", ""])
def test_an_unknown_content_type_is_415_and_told_which_there_are(app, content_type):
    answer = post(app, THREE, content_type=content_type, x_sonar_api_key=ACME)
    assert answer.status_code == 415
    assert PROTOBUF in reason(answer)
    assert read(app).status_code == 404


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(THREE.SerializeToString())),
        ("GZIP", gzip.compress(THREE.SerializeToString())),
        ("deflate", zlib.compress(THREE.SerializeToString())),
        ("gzip", gzip.compress(THREE.SerializeToString()[:99]) + gzip.compress(THREE.SerializeToString()[99:])),
    ],
)
def test_a_compressed_request_is_taken(app, encoding, packed):
    assert post(app, packed, content_encoding=encoding, x_sonar_api_key=ACME).status_code == 200
    assert len(names(read(app))) == 3


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", gzip.compress(THREE.SerializeToString())[:-9], 400),
        ("gzip", THREE.SerializeToString(), 400),
        ("deflate", gzip.compress(THREE.SerializeToString()), 400),
        ("br", THREE.SerializeToString(), 415),
        ("gzip", gzip.compress(bytes(30 * 1024 * 1024), 1), 413),
    ],
)
def test_a_request_that_cannot_be_unpacked_is_refused_and_nothing_kept(app, encoding, body, status):
    answer = post(app, body, content_encoding=encoding, x_sonar_api_key=ACME)
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROTOBUF)
    assert reason(answer)
    assert read(app).status_code == 404


def test_a_body_over_the_limit_is_413(app):
    answer = post(app, bytes(20 * 1024 * 1024 + 1), x_sonar_api_key=ACME)
    assert answer.status_code == 413
    assert "20971520" in reason(answer)


def test_a_body_that_never_tells_its_length_is_stopped_at_the_limit(app):
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield bytes(1024 * 1024)

    headers = {"content-type": PROTOBUF, "x-sonar-api-key": ACME}
    assert ask(app, "POST", "/v1/traces", content=endless(), headers=headers).status_code == 413
    assert sent < 30


def test_a_body_in_chunks_is_taken(app):
    body = THREE.SerializeToString()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 50):
            yield body[start : start + 50]

    headers = {"content-type": PROTOBUF, "x-sonar-api-key": ACME}
    assert ask(app, "POST", "/v1/traces", content=chunks(), headers=headers).status_code == 200
    assert len(names(read(app))) == 3


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_another_method_on_the_traces_path_is_405(app, method):
    answer = ask(app, method, "/v1/traces")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_trailing_slash_is_no_redirect_that_an_exporter_would_take_for_success(app):
    headers = {"content-type": PROTOBUF, "x-sonar-api-key": ACME}
    answer = ask(app, "POST", "/v1/traces/", content=THREE.SerializeToString(), headers=headers)
    assert answer.status_code == 200
    assert len(names(read(app))) == 3


@pytest.mark.parametrize(
    "path", ["/", "/v1/trace", "/v1/traces//", "/v1/traces/x", "/v2/traces", "/v1/metrics", "/v1/logs/"]
)
def test_an_unknown_path_is_404_and_never_a_redirect(app, path):
    assert ask(app, "POST", path, content=b"", headers={"content-type": PROTOBUF}).status_code == 404


@pytest.mark.parametrize("key", [None, "", "key-of-acm", "key-of-acmee", "KEY-OF-ACME", "key-of-acmeé".encode()])
def test_without_the_right_key_nothing_is_stored_and_nothing_told(app, key):
    headers = {} if key is None else {"x-sonar-api-key": key}
    posted = ask(
        app, "POST", "/v1/traces", content=THREE.SerializeToString(), headers={"content-type": PROTOBUF, **headers}
    )
    assert posted.status_code == 401
    assert read(app).status_code == 404
    post(app, THREE, x_sonar_api_key=ACME)
    asked = ask(app, "GET", conversation_path(CONVERSATION), params={"tenant": "acme"}, headers=headers)
    assert asked.status_code == 401
    assert CONVERSATION not in asked.text


def test_a_key_that_is_refused_is_not_repeated(app):
    answer = post(app, THREE, x_sonar_api_key="wrong-secret")
    assert answer.status_code == 401
    assert "wrong-secret" not in reason(answer)
    assert "x-sonar-api-key" in reason(answer)


def test_a_key_in_the_query_opens_nothing(app):
    post(app, THREE, x_sonar_api_key=ACME)
    query = {"tenant": "acme", "x-sonar-api-key": ACME, "api_key": ACME}
    assert ask(app, "GET", conversation_path(CONVERSATION), params=query).status_code == 401


def test_the_header_of_the_key_can_be_renamed(store):
    app = create_app(store, KeyRing({ACME: "acme"}), key_header="X-Team-Key")
    assert post(app, THREE, x_sonar_api_key=ACME).status_code == 401
    assert post(app, THREE, x_team_key=ACME).status_code == 200


def test_without_any_key_there_is_one_tenant_for_all(open_app):
    assert post(open_app, THREE).status_code == 200
    assert len(names(read(open_app, key=None))) == 3
    assert read(open_app, key=None, tenant="unknown").status_code == 404


def test_reading_names_the_tenant_exactly_once(app):
    post(app, THREE, x_sonar_api_key=ACME)
    headers = {"x-sonar-api-key": ACME}
    url = conversation_path(CONVERSATION)
    for query in ({}, {"tenant": ["acme", "acme"]}, {"tenant": ["acme", "other"]}):
        answer = ask(app, "GET", url, params=query, headers=headers)
        assert answer.status_code == 400
        assert "tenant" in answer.json()["error"]


def test_another_tenant_cannot_see_that_a_conversation_exists(app):
    post(app, THREE, x_sonar_api_key=ACME)
    missing = read(app, "no such conversation")
    for answer in (read(app, key=OTHER), read(app, tenant="other", key=OTHER), read(app, tenant="other")):
        assert (answer.status_code, answer.content) == (404, missing.content)


def test_a_span_that_claims_another_tenant_is_rejected_and_the_others_kept(app):
    foreign = make_span("foreign", {"sonar.tenant.id": "other"}, span_id="99" * 8)
    mine = make_span("mine", {"sonar.tenant.id": "acme"}, span_id="88" * 8)
    answer = post(app, make_request(make_span("bare"), mine, foreign), x_sonar_api_key=ACME)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_spans) == (200, 1)
    assert "tenant" in partial.error_message
    assert sorted(names(read(app))) == ["bare", "mine"]
    assert read(app, tenant="other", key=OTHER).status_code == 404


def test_the_tenant_of_the_resource_counts_where_the_span_names_none(app):
    request = make_request(make_span("theirs"), resource={"sonar.tenant.id": "other"})
    answer = post(app, request, x_sonar_api_key=ACME)
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 1
    assert post(app, request, x_sonar_api_key=OTHER).content == b""


def test_bad_ids_among_good_ones_are_counted_in_the_answer(app):
    bad = make_span("bad")
    bad.span_id = b"short"
    answer = post(app, make_request(make_span("good"), bad), x_sonar_api_key=ACME)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_spans) == (200, 1)
    assert "span_id" in partial.error_message
    assert names(read(app)) == ["good"]


def test_a_partial_success_in_json_counts_too(app):
    body = as_json(make_request(make_span("good"), make_span("bad")))
    body["resourceSpans"][0]["scopeSpans"][0]["spans"][1]["traceId"] = "00" * 16
    answer = post(app, json.dumps(body).encode(), content_type=JSON, x_sonar_api_key=ACME)
    assert int(answer.json()["partialSuccess"]["rejectedSpans"]) == 1


def test_a_span_sent_again_is_stored_once_and_as_it_first_was(app):
    first = make_tool("pay", status=Status.STATUS_CODE_ERROR)
    again = make_tool("pay", status=Status.STATUS_CODE_OK)
    for request in (make_request(first, first), make_request(first), make_request(again)):
        assert post(app, request, x_sonar_api_key=ACME).status_code == 200
    (span,) = read(app).json()["spans"]
    assert span["tool_success"] is False


def test_two_tenants_may_use_the_same_ids(app):
    for key, name in ((ACME, "of acme"), (OTHER, "of other")):
        assert post(app, make_request(make_span(name)), x_sonar_api_key=key).content == b""
    assert names(read(app)) == ["of acme"]
    assert names(read(app, tenant="other", key=OTHER)) == ["of other"]


def test_spans_of_a_trace_that_arrive_one_by_one_in_any_order_are_one_run(app):
    grandchild = make_span("c", span_id="33" * 8, parent="22" * 8, start_s=2)
    root = make_span("a", span_id="11" * 8)
    child = make_span("b", span_id="22" * 8, parent="11" * 8, start_s=1)
    for span in (grandchild, root, child):
        post(app, make_request(span), x_sonar_api_key=ACME)
    answer = read(app)
    assert names(answer) == ["a", "b", "c"]
    assert [run["name"] for run in answer.json()["runs"]] == ["a"]


def test_a_span_without_a_conversation_joins_that_of_its_trace_if_there_is_one_only(app):
    lonely = make_span("lonely", conversation=None, span_id="33" * 8)
    post(app, make_request(make_span("a", span_id="11" * 8), lonely), x_sonar_api_key=ACME)
    assert sorted(names(read(app))) == ["a", "lonely"]
    second = make_span("b", span_id="22" * 8, conversation="conv-2")
    post(app, make_request(second), x_sonar_api_key=ACME)
    assert names(read(app)) == ["a"]
    assert names(read(app, "conv-2")) == ["b"]


def test_a_span_without_any_conversation_is_in_none(app):
    post(app, make_request(make_span("lonely", conversation=None)), x_sonar_api_key=ACME)
    assert read(app).status_code == 404
    assert read(app, "None").status_code == 404


@pytest.mark.parametrize("conversation", AWKWARD_IDS)
def test_any_text_may_be_a_conversation_id(app, conversation):
    post(app, make_request(make_span("other", trace_id="ee" * 16)), x_sonar_api_key=ACME)
    assert post(app, make_request(make_span("mine", conversation=conversation)), x_sonar_api_key=ACME).content == b""
    answer = read(app, conversation)
    assert names(answer) == ["mine"]
    assert answer.json()["conversation_id"] == conversation


def test_conversation_ids_are_compared_byte_for_byte(app):
    post(app, THREE, x_sonar_api_key=ACME)
    for near in (CONVERSATION.upper(), CONVERSATION + " ", CONVERSATION + "\n", CONVERSATION + "/", CONVERSATION[:-1]):
        assert read(app, near).status_code == 404


def test_an_answer_is_strict_json_that_nobody_may_cache(app):
    attributes = {"gen_ai.tool.call.result": {"nan": float("nan"), "inf": float("-inf")}}
    post(app, make_request(make_tool("pay", attributes=attributes)), x_sonar_api_key=ACME)
    answer = read(app)
    assert answer.headers["cache-control"] == "no-store"

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    body = json.loads(answer.content, parse_constant=refuse)
    assert body["content"][0]["value"] == {"nan": "nan", "inf": "-inf"}
    assert body["tenant"] == "acme"


def test_half_characters_and_nul_are_stored_and_told_back(app):
    body = json.dumps(as_json(make_request(make_tool("pay", attributes={"gen_ai.tool.call.result": "HERE"})))).encode()
    posted = post(app, body.replace(b"HERE", b"a\\ud800b\\u0000c"), content_type=JSON, x_sonar_api_key=ACME)
    assert posted.status_code == 200
    assert read(app).json()["content"][0]["value"] == "a\ufffdb\x00c"


def test_parallel_writers_lose_nothing(app):
    async def write(number: int, client: httpx.AsyncClient) -> None:
        for part in range(4):
            spans = [
                make_span("s", span_id=f"{number:04x}{part:04x}{place:08x}", trace_id=f"{number + 1:032x}")
                for place in range(1, 6)
            ]
            body = make_request(*spans).SerializeToString()
            # Every request is sent twice, as an exporter does whose connection broke.
            for _ in range(2):
                headers = {"content-type": PROTOBUF, "x-sonar-api-key": ACME}
                answer = await client.post("/v1/traces", content=body, headers=headers)
                assert answer.status_code == 200

    async def write_all() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await asyncio.gather(*(write(number, client) for number in range(8)))

    run(write_all())
    body = read(app).json()
    assert (len(body["spans"]), len(body["runs"])) == (160, 8)


def test_spans_that_cannot_be_stored_are_asked_for_again(app, tmp_path):
    with sqlite3.connect(tmp_path / "spans.db") as connection:
        connection.execute("ALTER TABLE span RENAME TO moved")
    connection.close()
    answer = post(app, THREE, x_sonar_api_key=ACME)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert reason(answer)
    with sqlite3.connect(tmp_path / "spans.db") as connection:
        connection.execute("ALTER TABLE moved RENAME TO span")
    connection.close()
    assert post(app, THREE, x_sonar_api_key=ACME).status_code == 200
    assert len(names(read(app))) == 3


def test_spans_survive_a_restart(app, store, tmp_path):
    post(app, THREE, x_sonar_api_key=ACME)
    store.close()
    again = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    assert len(names(read(create_app(again, KeyRing({ACME: "acme"}))))) == 3
    again.close()


def test_health_is_told_without_a_key(app):
    answer = ask(app, "GET", "/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_key_ring_holds_no_key_in_the_clear():
    keys = KeyRing({ACME: "acme"})
    assert ACME not in repr(vars(keys))
    assert (keys.tenant_of(ACME), keys.tenant_of(OTHER), keys.tenant_of(None)) == ("acme", None, None)


def test_the_ids_of_a_span_are_told_in_lower_case_hex(app):
    post(app, make_request(make_span(span_id="ABCDEF0123456789")), x_sonar_api_key=ACME)
    (span,) = read(app).json()["spans"]
    assert (span["trace_id"], span["span_id"], span["parent_span_id"]) == (TRACE_ID, "abcdef0123456789", None)
