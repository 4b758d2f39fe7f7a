"""Nothing that is sent makes the ingest fail: no exception leaves the app, and bad input is answered 4xx."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from captures import JSON, PROTOBUF, as_json, make_request, make_span, make_tool
from serving import ACME, slow
from sonar_eval.ingest.app import IngestApp, create_app
from sonar_eval.ingest.db import SpanStore
from sonar_eval.ingest.keys import KeyRing

TALK = "talk"
QUICK_EXAMPLES = 400
SLOW_EXAMPLES = 20_000


class Bench:
    """One app and one loop for all examples: starting them costs more than an example."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store
        self.app: IngestApp = create_app(store, KeyRing({ACME: "acme"}))
        self._loop = asyncio.new_event_loop()
        # What the app raises is raised here.
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=True)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> httpx.Response:
        named = {"x-sonar-api-key": ACME, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self._loop.run_until_complete(self._client.request(method, path, content=body, headers=named))

    def post(self, body: bytes, encoding: str, compression: str = "") -> int:
        """Post, check the answer's form, and return its status."""
        headers = {"content_encoding": compression} if compression else {}
        answer = self.ask("POST", "/v1/traces", body, content_type=encoding, **headers)
        assert answer.status_code in (200, 400, 413, 415), answer.text
        assert answer.headers["content-type"] == encoding
        if encoding == JSON:
            json.loads(answer.content)
        return answer.status_code

    def read(self) -> None:
        """Read the conversation that everything went into, and begin it anew."""
        answer = self.ask("GET", f"/v1/conversations/{TALK}?tenant=acme&quiet=0")
        assert answer.status_code in (200, 404), answer.text
        json.loads(answer.content, parse_constant=pytest.fail)
        self._store.delete(tenant="acme", conversation_id=TALK)

    def close(self) -> None:
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()
        self.app.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    bench = Bench(store)
    yield bench
    bench.close()
    store.close()


def valid() -> ExportTraceServiceRequest:
    """Make a request in which most of what OTLP has occurs."""
    tool = make_tool(
        "lookup",
        attributes={"gen_ai.tool.call.arguments": '{"a": 1}', "gen_ai.tool.call.result": {"b": [1, None, b"\x00"]}},
        conversation=TALK,
        status=2,
        message="no",
        events=[("exception", {"exception.type": "KeyError"})],
    )
    chat = make_span(
        "chat",
        {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3},
        conversation=TALK,
        span_id="cc" * 8,
        parent="b7ad6b7169203331",
    )
    chat.links.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    return make_request(tool, chat, resource={"service.name": "bot"})


@st.composite
def mutated(draw: st.DrawFn, whole: bytes) -> bytes:
    """Change, insert, delete or repeat pieces of what was valid."""
    body = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(body)))
        size = draw(st.integers(0, 8))
        match draw(st.sampled_from(("change", "insert", "delete", "repeat", "cut"))):
            case "change":
                body[at : at + size] = draw(st.binary(min_size=size, max_size=size))
            case "insert":
                body[at:at] = draw(st.binary(max_size=12))
            case "delete":
                del body[at : at + size]
            case "repeat":
                body[at:at] = body[max(0, at - 40) : at]
            case "cut":
                del body[at:]
    return bytes(body)


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**65), 2**65).map(str),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["NaN", "Infinity", "", "00" * 8, "ab" * 16, "\ud800", "STATUS_CODE_ERROR", TALK]),
)
NAMES = [
    "resourceSpans",
    "scopeSpans",
    "spans",
    "resource",
    "scope",
    "attributes",
    "key",
    "value",
    "stringValue",
    "intValue",
    "doubleValue",
    "boolValue",
    "bytesValue",
    "arrayValue",
    "kvlistValue",
    "values",
    "traceId",
    "spanId",
    "parentSpanId",
    "name",
    "kind",
    "status",
    "code",
    "events",
    "links",
    "startTimeUnixNano",
    "flags",
    "resource_spans",
    "trace_id",
    "resourceLogs",
]
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)


@st.composite
def mutated_json(draw: st.DrawFn) -> bytes:
    """Put anything in the place of anything in a valid request."""
    body: Any = as_json(valid())
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(body))
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(("replace", "remove", "rename"))):
            case "replace":
                holder[key] = draw(ANY_JSON)
            case "remove":
                del holder[key]
            case "rename" if isinstance(holder, dict):
                holder[draw(st.sampled_from(NAMES))] = holder.pop(key)
    return json.dumps(body).encode("utf-8", "surrogatepass")


def _places(body: Any) -> Iterator[tuple[Any, Any]]:
    entries = list(body.items()) if isinstance(body, dict) else list(enumerate(body)) if isinstance(body, list) else []
    for key, value in entries:
        yield body, key
        yield from _places(value)
    if isinstance(body, dict) and not entries:
        body["name"] = "x"
        yield body, "name"


def fuzz(bench: Bench, strategy: st.SearchStrategy[bytes], encoding: str, examples: int, compression: str = "") -> None:
    """Send what the strategy makes, and look now and then whether what was stored can be read."""
    sent = 0
    seen: set[int] = set()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples == QUICK_EXAMPLES,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @given(body=strategy)
    def sends(body: bytes) -> None:
        nonlocal sent
        seen.add(bench.post(body, encoding, compression))
        sent += 1
        if sent % 10 == 0:
            bench.read()

    sends()
    bench.read()
    assert bench.ask("GET", "/healthz").status_code == 200
    assert bench.post(valid().SerializeToString(), PROTOBUF) == 200
    assert seen <= {200, 400, 413, 415}


ATTACKS = {
    "random protobuf": (st.binary(max_size=400), PROTOBUF, ""),
    "random json": (st.binary(max_size=200), JSON, ""),
    "mutated protobuf": (mutated(valid().SerializeToString()), PROTOBUF, ""),
    "mutated json text": (mutated(json.dumps(as_json(valid())).encode()), JSON, ""),
    "mutated json": (mutated_json(), JSON, ""),
    "any json": (ANY_JSON.map(lambda body: json.dumps(body).encode("utf-8", "surrogatepass")), JSON, ""),
    "mutated gzip": (mutated(gzip.compress(valid().SerializeToString(), mtime=0)), PROTOBUF, "gzip"),
    "mutated deflate": (mutated(zlib.compress(valid().SerializeToString())), PROTOBUF, "deflate"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_is_sent_makes_it_fail(bench, attack):
    strategy, encoding, compression = ATTACKS[attack]
    fuzz(bench, strategy, encoding, QUICK_EXAMPLES, compression)


@slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_is_sent_for_minutes_makes_it_fail(bench, attack):
    strategy, encoding, compression = ATTACKS[attack]
    fuzz(bench, strategy, encoding, SLOW_EXAMPLES, compression)


HEADER_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=40)


@settings(max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(content_type=HEADER_TEXT, compression=HEADER_TEXT, key=HEADER_TEXT, length=HEADER_TEXT)
def test_nothing_in_a_header_makes_it_fail(headers_bench, content_type, compression, key, length):
    answers = []

    async def send(message: dict[str, Any]) -> None:
        answers.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    named = {
        "content-type": content_type,
        "content-encoding": compression,
        "x-sonar-api-key": key,
        "content-length": length,
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/traces",
        "query_string": b"",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items()],
    }
    asyncio.run(headers_bench.app(scope, receive, send))
    assert answers[0]["status"] in (200, 400, 401, 413, 415)


@pytest.fixture(scope="module")
def headers_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    store = SpanStore(f"sqlite:///{tmp_path_factory.mktemp('fuzz') / 'spans.db'}")
    bench = Bench(store)
    yield bench
    bench.close()
    store.close()


@settings(max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    path=st.text(max_size=30),
    query=st.dictionaries(
        st.sampled_from(["tenant", "wait", "turns", "traces", "min_level", "quiet", "since", "seal", "view", "limit"]),
        st.text(max_size=8),
        max_size=4,
    ),
)
def test_nothing_in_a_question_makes_it_fail(headers_bench, path, query):
    from urllib.parse import quote, urlencode

    asked = urlencode({"tenant": "acme", **query, "wait": "0"}, errors="replace")
    for start in ("/v1/conversations/", "/v1/conversations?x=", "/"):
        answer = headers_bench.ask("GET", f"{start}{quote(path, safe='', errors='replace')}?{asked}")
        assert answer.status_code < 500
        json.loads(answer.content)
