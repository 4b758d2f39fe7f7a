"""Real exporters deliver, and what each of them sent can be read back whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Status, StatusCode

from serving import ACME, Place, serving
from sonar_eval.ingest.app import create_app
from sonar_eval.ingest.db import SpanStore
from sonar_eval.ingest.keys import KeyRing
from sonar_eval.ingest.span import Span

TALK = "talk"
HEADERS = {"x-sonar-api-key": ACME}
NODE_FOLDER = Path(__file__).parent / "data" / "otlp"
NODE_PACKAGES = {
    "@opentelemetry/api": "1.9.1",
    "@opentelemetry/exporter-trace-otlp-http": "0.223.1",
    "@opentelemetry/exporter-trace-otlp-proto": "0.223.1",
    "@opentelemetry/resources": "2.12.1",
    "@opentelemetry/sdk-trace-base": "2.12.1",
}
ATTRIBUTES: dict[str, Any] = {
    "sonar.conversation.id": TALK,
    "text": "näme \U0001f642 \x00",
    "whole": 2**53 + 1,
    "negative": -(2**63),
    "real": 1.5,
    "flag": True,
    "texts": ["a", "b"],
    "numbers": [1, 2],
    "empty": "",
}


@dataclass
class Ingest:
    """A server, and the store behind it."""

    place: Place
    store: SpanStore

    @property
    def endpoint(self) -> str:
        return self.place.url + "/v1/traces"

    def kept(self) -> dict[str, Span]:
        """Return what was kept, by name."""
        return {entry.span.name: entry.span for entry in self.store.conversation("acme", TALK).spans}


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[Ingest]:
    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    with serving(create_app(store, KeyRing({ACME: "acme"}))) as place:
        yield Ingest(place, store)
    store.close()


def trace_a_turn(exporter: SpanExporter, count: int = 2) -> None:
    """Make a turn with a failed tool and let the exporter send it."""
    provider = TracerProvider(resource=Resource({"service.name": "bot", "sonar.framework": "none"}))
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=20_000))
    tracer = provider.get_tracer("a.scope", "1.0")
    with tracer.start_as_current_span("turn", attributes=ATTRIBUTES):
        for number in range(count - 1):
            with tracer.start_as_current_span(
                f"execute_tool {number}", attributes={"sonar.conversation.id": TALK, "gen_ai.tool.name": "lookup"}
            ) as tool:
                tool.record_exception(KeyError("no such order"))
                tool.set_status(Status(StatusCode.ERROR, "no such order"))
    assert provider.force_flush()
    provider.shutdown()


def check_the_turn(kept: dict[str, Span]) -> None:
    """Compare what was kept with what was made."""
    turn, tool = kept["turn"], kept["execute_tool 0"]
    assert turn.attributes == ATTRIBUTES
    assert (turn.resource["service.name"], turn.scope, turn.parent_span_id) == ("bot", "a.scope", None)
    assert tool.parent_span_id == turn.span_id
    assert tool.trace_id == turn.trace_id
    assert (tool.status, tool.status_message) == ("ERROR", "no such order")
    (event,) = tool.events
    assert (event.name, event.attributes["exception.type"]) == ("exception", "KeyError")
    assert turn.start_ns <= tool.start_ns <= event.time_ns <= tool.end_ns <= turn.end_ns


@pytest.mark.parametrize("compression", list(Compression))
def test_the_python_exporter_delivers(ingest, compression):
    trace_a_turn(OTLPSpanExporter(ingest.endpoint, headers=HEADERS, compression=compression))
    check_the_turn(ingest.kept())
    (tool,) = (span for span in ingest.place.spans(TALK) if span["kind"] == "tool")
    assert (tool["tool_name"], tool["tool_success"], tool["error_type"]) == ("lookup", False, "KeyError")


@pytest.mark.parametrize("compression", list(Compression))
def test_the_python_exporter_delivers_thousands(ingest, compression):
    trace_a_turn(OTLPSpanExporter(ingest.endpoint, headers=HEADERS, compression=compression), 3000)
    assert len(ingest.place.spans(TALK)) == 3000
    assert ingest.place.metric("sonar_ingest_spans_total", 'result="stored"') == 3000


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
def test_the_python_json_exporter_delivers(ingest, compression, monkeypatch):
    from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter as JsonExporter

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", compression)
    trace_a_turn(JsonExporter(ingest.endpoint, headers=HEADERS))
    check_the_turn(ingest.kept())


def test_an_exporter_that_sends_again_doubles_nothing(ingest):
    exporter = OTLPSpanExporter(ingest.endpoint, headers=HEADERS)
    provider = TracerProvider()
    span = provider.get_tracer("t").start_span("turn", attributes=ATTRIBUTES)
    span.end()
    for _ in range(3):
        assert exporter.export([span]) is SpanExportResult.SUCCESS
    exporter.shutdown()
    provider.shutdown()
    assert [row["conflict"] for row in ingest.place.spans(TALK)] == [False]


@pytest.mark.parametrize("wrong", ["key", "size"])
def test_an_exporter_that_is_refused_is_told_to_whoever_asks(ingest, wrong):
    headers = {"x-sonar-api-key": "wrong"} if wrong == "key" else HEADERS
    exporter = OTLPSpanExporter(ingest.endpoint, headers=headers)
    provider = TracerProvider()
    huge = {"text": "x" * (21 * 1024 * 1024 if wrong == "size" else 1)}
    span = provider.get_tracer("t").start_span("turn", attributes=ATTRIBUTES | huge)
    span.end()
    assert exporter.export([span]) is SpanExportResult.FAILURE
    exporter.shutdown()
    provider.shutdown()
    said = ingest.place.read(TALK, since=60).json()["error"]
    assert ("without a valid key" if wrong == "key" else "last: 413") in said


def test_an_idle_exporter_finds_its_connection_open_after_its_timer(ingest):
    """The default timer is 5 s, which is when uvicorn would close an idle connection, under the next batch."""
    from sonar_eval.ingest.server import make_server

    assert make_server(create_app(ingest.store, KeyRing())).config.timeout_keep_alive > 30


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """Install the exporters from npm, once per machine; skip without node or the registry."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "sonar-eval-tests" / f"otlp-{NODE_PACKAGES['@opentelemetry/exporter-trace-otlp-http']}"
    done = folder / "installed"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": NODE_PACKAGES}))
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        try:
            installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
        except subprocess.TimeoutExpired:
            pytest.skip("the npm registry did not answer in time")
        if installed.returncode:
            pytest.skip(f"the npm registry gave no exporters: {installed.stderr.strip()[-200:]}")
        done.touch()
    return folder / "node_modules"


@pytest.mark.npm
@pytest.mark.timeout(300)
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("package", ["http", "proto"])
def test_the_javascript_exporters_deliver(ingest, node_modules, package, compression):
    sent = subprocess.run(
        ["node", str(NODE_FOLDER / "export.cjs"), package, compression, ingest.endpoint, ACME, TALK],
        env={**os.environ, "NODE_PATH": str(node_modules)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (sent.returncode, sent.stdout.strip()) == (0, "exported"), sent.stderr
    kept = ingest.kept()
    assert sorted(kept) == ["execute_tool lookup", "half \ufffd character", "turn"]
    turn, tool = kept["turn"], kept["execute_tool lookup"]
    assert turn.attributes == {
        "sonar.conversation.id": TALK,
        "text": "näme \U0001f642 \x00",
        "whole": 2**53 - 1,
        "negative": -7,
        "real": 1.5,
        "flag": True,
        "texts": ["a", "b"],
        "numbers": [1, 2],
        # JSON has no word for it.
        "nan": None if package == "http" else "nan",
    }
    assert (tool.parent_span_id, tool.trace_id) == (turn.span_id, turn.trace_id)
    assert (tool.status, tool.status_message, tool.scope) == ("ERROR", "no such order", "a.scope")
    assert [event.name for event in tool.events] == ["exception"]
    assert turn.resource["service.name"] == "bot"
    (row,) = (span for span in ingest.place.spans(TALK) if span["kind"] == "tool")
    assert (row["tool_success"], row["error_type"]) == (False, "Error")
