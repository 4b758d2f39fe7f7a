"""The ingest of this process, asked without a socket."""

import asyncio

import httpx
import pytest
from opentelemetry import context

from captures import make_request, make_span
from fakes import run
from sonar_eval import EmptyTranscriptError, IngestClient
from sonar_eval.errors import HarnessError, IngestError
from sonar_eval.ingest.server import EmbeddedIngest
from sonar_eval.transcript.inprocess import InProcessTransport

HEADERS = {"content-type": "application/x-protobuf"}


def client_of(ingest, **settings):
    transport = InProcessTransport(ingest.app, ingest.loop)
    return IngestClient(ingest.base_url, "local", api_key=ingest.api_key, transport=transport, **settings)


def post(ingest, request):
    headers = {**HEADERS, "x-sonar-api-key": ingest.api_key}
    answer = httpx.post(ingest.base_url + "/v1/traces", content=request.SerializeToString(), headers=headers)
    assert answer.status_code == 200


def test_what_came_over_http_is_read_without_it_and_just_the_same():
    with EmbeddedIngest("local") as ingest:
        post(ingest, make_request(make_span(conversation="c")))
        over_http = run(IngestClient(ingest.base_url, "local", api_key=ingest.api_key).fetch("c"))
        inside = run(client_of(ingest).fetch("c"))
    assert (inside.runs, inside.spans, inside.content) == (over_http.runs, over_http.spans, over_http.content)
    assert inside.spans


def test_who_waits_is_woken_by_a_span_that_comes_over_http():
    async def story(ingest):
        waiting = asyncio.create_task(client_of(ingest, quiet_s=0.2).pull("c", delay=0.05))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(post, ingest, make_request(make_span(conversation="c")))
        return await waiting

    with EmbeddedIngest("local") as ingest:
        assert run(story(ingest)).spans


def test_a_wrong_key_is_refused_here_too():
    with EmbeddedIngest("local") as ingest:
        transport = InProcessTransport(ingest.app, ingest.loop)
        with pytest.raises(IngestError, match="401"):
            run(IngestClient(ingest.base_url, "local", api_key="no", transport=transport).fetch("c"))


def test_an_ingest_that_has_stopped_is_an_error_of_the_ingest():
    with EmbeddedIngest("local") as ingest:
        client = client_of(ingest)
    with pytest.raises(IngestError, match="has stopped"):
        run(client.fetch("c"))


def test_one_that_never_started_has_no_loop():
    with pytest.raises(HarnessError, match="is not running"):
        _ = EmbeddedIngest("local").loop


@pytest.mark.parametrize("kind", ["hangs", "raises"])
def test_an_app_that_hangs_or_raises_is_a_transport_error(kind):
    async def app(scope, receive, send):
        if kind == "raises":
            raise RuntimeError("broken")
        await asyncio.sleep(30)

    async def ask():
        transport = InProcessTransport(app, asyncio.get_running_loop())
        async with httpx.AsyncClient(transport=transport, timeout=0.05) as client:
            await client.get("http://inside/")

    with pytest.raises(httpx.ReadTimeout if kind == "hangs" else httpx.RemoteProtocolError):
        run(ask())


def test_the_askers_instrumentation_does_not_trace_the_ingest():
    seen = []

    async def look(scope, receive, send):
        seen.append(context.get_value("suppress_instrumentation"))
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    with EmbeddedIngest("local") as ingest:
        ingest._app = look
        with pytest.raises(EmptyTranscriptError):
            run(client_of(ingest).pull("c", retries=1, delay=0))
    assert seen == [True]
