"""Recorded traffic of real frameworks, posted to a real server: what it must be understood as."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from captures import CONVERSATION, JSON, PROTOBUF, SPANS, as_json, expected, load_capture
from sonar_eval import Transcript
from sonar_eval.ingest.mapping import Mapped, map_spans
from sonar_eval.ingest.otlp import Encoding
from sonar_eval.ingest.server import EmbeddedIngest
from sonar_eval.ingest.span import Span

CAPTURES = sorted(path.stem for path in SPANS.glob("*.json") if path.stem != "expected")
TENANT = "acme"
# The captures list some reasons as they were sent; everything else is compared as it stands.
FINISH = {"tool_call": "tool_calls"}


@dataclass(frozen=True)
class Told:
    """A capture as the server tells it, and the spans that it was made of."""

    name: str
    transcript: Transcript
    body: dict[str, Any]
    mapped: list[Mapped]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of spans that were really sent."""
        return [row for row in self.transcript.spans if row["source"] == "span"]

    @property
    def unassigned(self) -> list[Mapped]:
        """The spans that belong to no conversation."""
        return [entry for entry in self.mapped if entry.span.conversation_id is None]


def write(request: ExportTraceServiceRequest, content_type: str) -> bytes:
    """Write a request the way an exporter with that content type does."""
    return json.dumps(as_json(request)).encode() if content_type == JSON else request.SerializeToString()


def exchange(requests: Sequence[ExportTraceServiceRequest], content_type: str) -> dict[str, Any]:
    """Post requests to a server of their own and ask for the conversation."""
    with EmbeddedIngest(TENANT) as ingest, httpx.Client(base_url=ingest.base_url, trust_env=False) as client:
        client.headers["x-sonar-api-key"] = ingest.api_key
        for request in requests:
            content = write(request, content_type)
            posted = client.post("/v1/traces", content=content, headers={"content-type": content_type})
            assert posted.status_code == 200, posted.text
            assert b"rejected" not in posted.content
        answer = client.get(f"/v1/conversations/{CONVERSATION}", params={"tenant": TENANT, "quiet": "0"})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def spans_of(requests: Sequence[ExportTraceServiceRequest]) -> list[Span]:
    """Read the spans of requests, oldest first."""
    found = [span for request in requests for span in Encoding(PROTOBUF).decode(write(request, PROTOBUF)).spans]
    return sorted(found, key=lambda span: span.start_ns)


@pytest.fixture(scope="module", params=[(name, kind) for name in CAPTURES for kind in (PROTOBUF, JSON)], ids=str)
def capture(request: Any) -> tuple[Told, dict[str, Any]]:
    """Give each capture in each encoding, with what it must be understood as."""
    name, content_type = request.param
    requests = load_capture(name)
    body = exchange(requests, content_type)
    transcript = Transcript(CONVERSATION, body["runs"], body["spans"], body["content"], body["completeness"])
    return Told(name, transcript, body, map_spans(spans_of(requests))), expected(name)


def test_every_capture_has_an_expectation():
    assert set(json.loads((SPANS / "expected.json").read_text(encoding="utf-8"))) == set(CAPTURES)
    assert len(CAPTURES) >= 29


def test_all_spans_and_traces_arrive_and_those_of_no_conversation_stay_out_of_it(capture):
    told, wanted = capture
    assert len(told.unassigned) == wanted["without_conversation_id"]
    assert len(told.rows) == wanted["spans"] - wanted["without_conversation_id"]
    traces = {row["trace_id"] for row in told.rows} | {entry.span.trace_id for entry in told.unassigned}
    assert len(traces) == wanted["traces"]
    outside = {entry.key for entry in told.unassigned}
    assert not outside & {(row["trace_id"], row["span_id"]) for row in told.transcript.spans}


def test_every_span_gets_its_kind(capture):
    told, wanted = capture
    kinds = Counter(row["kind"] for row in told.rows) + Counter(entry.kind for entry in told.unassigned)
    assert kinds == wanted["kinds"]


def test_every_tool_call_is_told_with_its_data_and_its_outcome(capture):
    told, wanted = capture
    found = []
    for row in told.rows:
        if row["kind"] == "tool":
            content = {part["type"]: part for part in told.transcript.content_for(row["span_id"])}
            result = content.get("tool_result", {"value": None, "cut": False})
            found.append(
                {
                    "tool": row["tool_name"],
                    "call_id": row["call_id"],
                    "args": content["tool_arguments"]["value"],
                    "result": result["value"],
                    "success": row["tool_success"],
                    "basis": row["success_basis"],
                    "error_type": row["error_type"],
                    "soft_error": row["soft_error"],
                    "result_cut": result["cut"],
                    "conv": told.body["conversation_id"],
                }
            )
    assert found == wanted["tools"]


def test_calls_that_only_a_models_output_tells_are_told_as_such(capture):
    told, wanted = capture
    calls = {call.span_id: call for call in told.transcript.tool_calls}
    rows = [row for row in told.transcript.spans if row["source"] == "model_output"]
    found = [{"call_id": row["call_id"], "tool": row["tool_name"], "args": calls[row["span_id"]].args} for row in rows]
    assert found == wanted["tool_calls_only_in_model_output"]
    assert all(row["tool_success"] is None and row["kind"] == "tool" for row in rows)
    assert all(calls[row["span_id"]].outcome_unknown for row in rows)


def test_every_run_has_its_tokens_and_the_sum_counts_none_twice(capture):
    told, wanted = capture
    runs = [(run["input_tokens"], run["output_tokens"], run["tokens_basis"]) for run in told.transcript.runs]
    if "subtract the previous run" in wanted.get("note", ""):
        # The expectation lists the totals as they were sent, each with all runs before it in it.
        runs = list(accumulate(runs, lambda one, other: (one[0] + other[0], one[1] + other[1], other[2])))
    assert [list(run) for run in runs] == wanted["runs"]
    assert list(told.transcript.tokens()) == wanted["tokens"]


def test_every_finish_reason_is_read_under_one_name(capture):
    told, wanted = capture
    found = {entry.reading.finish_reason for entry in told.mapped} - {None}
    assert found == {FINISH.get(reason, reason) for reason in wanted["finish_reasons"]}


def test_no_error_message_holds_a_stack_or_a_path(capture):
    told, _ = capture
    messages = [row["error_message"] or "" for row in told.transcript.spans]
    assert not any("Traceback" in message or "<path>" in message or len(message) > 500 for message in messages)


def test_the_rows_point_at_each_other_by_unique_ids(capture):
    told, _ = capture
    keys = [(row["trace_id"], row["span_id"]) for row in told.transcript.spans]
    assert len(set(keys)) == len(keys)
    assert {(row["trace_id"], row["span_id"]) for row in told.transcript.content} <= set(keys)
    places = [(row["trace_id"], row["span_id"], row["seq"]) for row in told.transcript.content]
    assert len(set(places)) == len(places)


def test_tools_are_called_unobservable_where_a_model_asked_for_some_and_nothing_shows_them(capture):
    told, _ = capture
    silent = told.name in ("openai_client_otel_v2", "openai_client_otel_v2.truncate")
    assert told.body["completeness"]["tools_unobservable"] is silent


def test_every_call_a_model_asked_for_has_an_outcome_unless_redaction_cut_it_off(capture):
    told, _ = capture
    # Their histories stop before the last result, and no other span brings it.
    cut = ("openai_client_otel_v2_latest.truncate", "openai_client_traceloop.truncate")
    assert told.body["completeness"]["unresolved_calls"] == (["refund_order"] if told.name in cut else [])


@pytest.mark.parametrize("name", [name for name in CAPTURES if len(load_capture(name)) > 1])
def test_batches_that_arrive_in_reverse_give_the_same_answer(name):
    requests = load_capture(name)
    forwards, backwards = exchange(requests, PROTOBUF), exchange(requests[::-1], PROTOBUF)
    assert all(backwards[key] == forwards[key] for key in ("runs", "spans", "content"))
