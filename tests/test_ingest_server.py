"""The ingest as a server: embedded in this process or on its own, met by real exporters and by bad manners."""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from captures import CONVERSATION, JSON, PROTOBUF, as_json, make_request, make_span
from fakes import run
from sonar_eval import IngestClient
from sonar_eval.adapter.process import BotProcess
from sonar_eval.ingest.__main__ import main
from sonar_eval.ingest.server import EmbeddedIngest

BODY = make_request(make_span()).SerializeToString()


@pytest.fixture(scope="module")
def ingest() -> Iterator[EmbeddedIngest]:
    with EmbeddedIngest("acme") as running:
        yield running


def client_of(ingest: EmbeddedIngest) -> IngestClient:
    return IngestClient(ingest.base_url, ingest.tenant, api_key=ingest.api_key)


def headers(ingest: EmbeddedIngest, **more: str) -> dict[str, str]:
    return {"content-type": PROTOBUF, "x-sonar-api-key": ingest.api_key, **more}


def raw(ingest: EmbeddedIngest, *pieces: bytes) -> bytes:
    """Speak HTTP by hand, and return whatever comes back until the server closes."""
    named = {"Host": "127.0.0.1", "Connection": "close", **headers(ingest)}
    lines = ["POST /v1/traces HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    head = "".join(line + "\r\n" for line in lines).encode()
    answer = b""
    with socket.create_connection(("127.0.0.1", ingest.port), timeout=5) as connection:
        connection.sendall(head + pieces[0])
        for piece in pieces[1:]:
            while b"\r\n\r\n" not in answer:
                answer += connection.recv(4096)
            connection.sendall(piece)
        while part := connection.recv(4096):
            answer += part
    return answer


def alive(ingest: EmbeddedIngest) -> bool:
    return httpx.get(ingest.base_url + "/healthz", trust_env=False).status_code == 200


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
def test_the_real_exporter_is_understood_under_every_compression(ingest, compression):
    exporter = OTLPSpanExporter(
        endpoint=ingest.base_url + "/v1/traces", headers={"x-sonar-api-key": ingest.api_key}, compression=compression
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    conversation = f"exported {compression.value}"
    attributes = {
        "sonar.conversation.id": conversation,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pay",
    }
    with provider.get_tracer("bot").start_as_current_span("execute_tool pay", attributes=attributes):
        pass
    assert provider.force_flush()
    transcript = run(client_of(ingest).pull(conversation, delay=0))
    provider.shutdown()
    assert [(call.name, call.success) for call in transcript.tool_calls] == [("pay", True)]


def test_an_exporter_with_the_wrong_key_stores_nothing(ingest):
    answer = httpx.post(
        ingest.base_url + "/v1/traces",
        content=make_request(make_span(conversation="stolen")).SerializeToString(),
        headers=headers(ingest, **{"x-sonar-api-key": "guess"}),
        trust_env=False,
    )
    assert answer.status_code == 401
    assert run(client_of(ingest).fetch("stolen")).is_empty


def test_python_without_any_http_library_can_post_json(ingest):
    # The server is shared: a span of its own, whatever other tests sent before.
    span = make_span(conversation="by urllib", span_id="b7ad6b7169203332")
    body = json.dumps(as_json(make_request(span))).encode()
    request = urllib.request.Request(
        ingest.base_url + "/v1/traces", body, headers(ingest, **{"content-type": JSON}), method="POST"
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert (answer.status, json.load(answer)) == (200, {})
    assert len(run(client_of(ingest).fetch("by urllib")).spans) == 1


def test_a_body_in_chunks_without_a_length_is_taken(ingest):
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:]))
    answer = raw(ingest, b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(ingest):
    answer = raw(ingest, b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(BODY), BODY)
    assert answer.startswith(b"HTTP/1.1 100")
    assert b"HTTP/1.1 200" in answer


def test_an_announced_length_over_the_limit_is_refused_before_the_body_comes(ingest):
    answer = raw(ingest, b"Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "rest",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"Content-Length: many\r\n\r\n",
    ],
)
def test_a_body_in_impossible_framing_is_refused_and_the_server_lives_on(ingest, rest):
    answer = raw(ingest, rest)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert alive(ingest)


def test_a_client_that_hangs_up_in_the_middle_does_no_harm(ingest):
    with socket.create_connection(("127.0.0.1", ingest.port), timeout=5) as connection:
        connection.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\nhalf")
    assert alive(ingest)


@pytest.mark.parametrize(
    "conversation", ["a/b", "two words", "né", ".", "..", "a?b#c", "%2F", "line\nbreak", "x" * 300]
)
def test_any_conversation_id_survives_the_way_there_and_back(ingest, conversation):
    body = make_request(make_span(conversation=conversation)).SerializeToString()
    # A trace of its own for each id.
    body = body.replace(bytes.fromhex("0af7651916cd43dd8448eb211c80319c"), os.urandom(16))
    answer = httpx.post(ingest.base_url + "/v1/traces", content=body, headers=headers(ingest), trust_env=False)
    assert answer.status_code == 200
    transcript = run(client_of(ingest).pull(conversation, delay=0))
    assert transcript.conversation_id == conversation
    assert [span["name"] for span in transcript.spans] == ["work"]


def test_each_embedded_ingest_has_a_port_and_a_key_of_its_own(ingest):
    with EmbeddedIngest("acme") as other:
        assert (other.port, other.api_key) != (ingest.port, ingest.api_key)
        assert other.port != ingest.port
        assert other.api_key != ingest.api_key
        stranger = IngestClient(other.base_url, "acme", api_key=ingest.api_key)
        with pytest.raises(Exception, match="401"):
            run(stranger.fetch(CONVERSATION))


def test_the_embedded_ingest_listens_on_its_one_address_only(ingest):
    # A server on every address would answer here too.
    with pytest.raises(OSError, match=r"refused|assign|unreachable|timed out"):
        socket.create_connection(("127.0.0.2", ingest.port), timeout=1).close()


def test_a_stopped_ingest_is_gone_and_may_be_stopped_again():
    ingest = EmbeddedIngest("acme").start()
    ingest.stop()
    ingest.stop()
    with pytest.raises(httpx.ConnectError):
        alive(ingest)


def test_an_ingest_that_was_never_started_can_be_stopped():
    EmbeddedIngest("acme").stop()


def test_a_stopped_ingest_can_be_started_again_and_is_empty():
    ingest = EmbeddedIngest("acme")
    for _ in range(2):
        with ingest:
            assert run(client_of(ingest).fetch(CONVERSATION)).is_empty
            httpx.post(ingest.base_url + "/v1/traces", content=BODY, headers=headers(ingest), trust_env=False)


def test_the_spans_of_a_given_file_are_there_after_a_restart(tmp_path):
    path = tmp_path / "kept.db"
    for expected in (404, 200):
        with EmbeddedIngest("acme", path=path) as ingest:
            url = f"{ingest.base_url}/v1/conversations/{CONVERSATION}"
            asked = httpx.get(url, params={"tenant": "acme"}, headers=headers(ingest), trust_env=False)
            assert asked.status_code == expected
            httpx.post(ingest.base_url + "/v1/traces", content=BODY, headers=headers(ingest), trust_env=False)
    assert path.is_file()


def test_an_ingest_of_its_own_refuses_to_be_open_to_the_network():
    result = CliRunner().invoke(main, ["--host", "0.0.0.0"])
    assert result.exit_code == 2
    assert "--key" in result.output


def test_an_ingest_of_its_own_takes_key_and_tenant_from_the_command_line(tmp_path):
    command = [sys.executable, "-m", "sonar_eval.ingest", "--port", "{port}", "--tenant", "acme", "--key", "secret"]
    process = BotProcess([*command, "--db", f"sqlite:///{tmp_path / 'spans.db'}"])

    named = {"content-type": PROTOBUF, "x-sonar-api-key": "secret"}

    async def story() -> Any:
        await process.start()
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                answer = await client.post(process.base_url + "/v1/traces", content=BODY, headers=named)
            asked = IngestClient(process.base_url, "acme", api_key="secret")
            return answer.status_code, await asked.pull(CONVERSATION, delay=0)
        finally:
            await process.stop()

    status, transcript = run(story())
    assert status == 200
    assert len(transcript.spans) == 1
