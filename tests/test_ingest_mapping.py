"""What the answer makes of spans: outcomes, tokens, messages, runs; what real frameworks send has a file of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from captures import (
    CONVERSATION,
    ask,
    load_capture,
    make_request,
    make_span,
    make_tool,
    post,
)
from sonar_eval import Transcript, max_total_tokens, no_tool_errors
from sonar_eval.conversation import ConversationLog
from sonar_eval.ingest.app import create_app
from sonar_eval.ingest.db import SpanStore
from sonar_eval.ingest.keys import KeyRing

OK, ERROR = Status.STATUS_CODE_OK, Status.STATUS_CODE_ERROR
CHAT = {"gen_ai.operation.name": "chat"}
AGENT = {"gen_ai.operation.name": "invoke_agent"}


@pytest.fixture
def app(tmp_path: Any) -> Iterator[Any]:
    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    yield create_app(store, KeyRing(open_tenant="acme"))
    store.close()


def read(app: Any) -> Transcript:
    """Ask for the conversation as the harness does."""
    answer = ask(app, "GET", f"/v1/conversations/{CONVERSATION}", params={"tenant": "acme"})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return Transcript(CONVERSATION, body["runs"], body["spans"], body["content"])


def told(app: Any, *spans: Span, **request: Any) -> Transcript:
    """Post spans and read the conversation back."""
    assert post(app, make_request(*spans, **request)).status_code == 200
    return read(app)


def captured(app: Any, name: str) -> Transcript:
    """Post a capture batch by batch and read the conversation back."""
    for request in load_capture(name):
        assert post(app, request).status_code == 200
    return read(app)


def only(transcript: Transcript) -> Any:
    """Return the one tool call."""
    (call,) = transcript.tool_calls
    return call


def test_a_bot_that_hides_a_broken_tool_is_still_caught(app):
    transcript = captured(app, "strands")
    assert not no_tool_errors()(transcript, ConversationLog(CONVERSATION))


def test_the_messages_of_a_conversation_are_told_once_and_in_order(app):
    transcript = captured(app, "openai_client_otel_v2_latest")
    inputs = [row for row in transcript.content if row["role"] in ("system", "user")]
    assert [row["value"] for row in inputs] == [
        "You are an order bot.",
        "What is the status of order 42?",
        "Please refund it.",
    ]
    asked = [row for row in transcript.content if row["type"] == "tool_arguments" and row["name"]]
    assert {row["name"]: row["value"] for row in asked} == {
        "lookup_order": {"order_id": "42"},
        "refund_order": {"order_id": "42"},
    }


def test_content_in_redaction_markers_is_unwrapped_and_flagged(app):
    transcript = captured(app, "strands.truncate")
    call = transcript.tool_calls[0]
    rows = {row["type"]: row for row in transcript.content_for(call.span_id)}
    assert rows["tool_arguments"]["value"] == {"order_id": "42"}
    assert rows["tool_arguments"]["redaction"] == {"mode": "truncate", "bytes": 18, "sha256": None}
    assert rows["tool_arguments"]["cut"] is False
    assert transcript.redacted


def test_content_that_was_allowed_is_not_called_redacted(app):
    assert not captured(app, "strands").redacted


def test_a_marker_that_cut_its_value_keeps_what_is_left_and_says_so(app):
    marker = json.dumps({"__sonar_redacted__": "truncate", "bytes": 4000, "preview": '{"order_id": "4', "sha256": "ab"})
    transcript = told(app, make_tool("pay", attributes={"gen_ai.tool.call.result": marker}))
    (row,) = transcript.content
    assert row["value"] == '{"order_id": "4'
    assert row["cut"] is True
    assert row["redaction"] == {"mode": "truncate", "bytes": 4000, "sha256": "ab"}


def test_a_marker_that_dropped_its_value_leaves_none_and_its_size(app):
    marker = json.dumps({"__sonar_redacted__": "drop", "bytes": 77})
    transcript = told(app, make_tool("pay", attributes={"gen_ai.tool.call.arguments": marker}))
    assert only(transcript).args is None
    assert transcript.content[0]["redaction"]["bytes"] == 77
    assert transcript.redacted


def test_messages_that_were_withheld_whole_still_show_as_redacted(app):
    marker = json.dumps({"__sonar_redacted__": "drop", "bytes": 300})
    attributes = {**CHAT, "gen_ai.input.messages": marker, "gen_ai.output.messages": marker}
    transcript = told(app, make_span("chat m", attributes))
    assert [(row["role"], row["value"]) for row in transcript.content] == [("user", None), ("assistant", None)]
    assert transcript.redacted


@pytest.mark.parametrize(
    "marker",
    [
        {"__sonar_redacted__": "truncate", "bytes": "12", "preview": "abc"},
        {"__sonar_redacted__": None, "bytes": None},
        {"__sonar_redacted__": ["x"], "bytes": 1.5, "preview": 7},
    ],
)
def test_a_marker_of_another_form_spoils_no_answer(app, marker):
    transcript = told(app, make_tool("pay", attributes={"gen_ai.tool.call.result": json.dumps(marker)}))
    assert transcript.redacted


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_result_with_a_number_that_json_lacks_is_told_as_text(app, number):
    result = f'{{"score": {number}, "fine": 1.5}}'
    call = only(told(app, make_tool("pay", attributes={"gen_ai.tool.call.result": result})))
    assert number in json.dumps(call.result)
    assert "1.5" in json.dumps(call.result)


def test_a_value_cut_by_the_length_limit_is_marked_as_cut(app):
    transcript = told(app, make_tool("pay", attributes={"gen_ai.tool.call.result": "abc...[sonar:truncated]"}))
    assert transcript.content[0]["cut"] is True
    assert transcript.content[0]["redaction"] is None


@pytest.mark.parametrize(
    ("span", "success", "error_type", "basis"),
    [
        ({}, True, None, "status UNSET"),
        ({"status": OK}, True, None, "status OK"),
        ({"status": ERROR, "message": "no"}, False, "error", "status ERROR"),
        ({"attributes": {"error.type": "Timeout"}}, False, "Timeout", "error.type"),
        ({"attributes": {"error.type": "_OTHER"}}, False, "error", "error.type"),
        ({"attributes": {"error.type": "Timeout"}, "status": OK}, False, "Timeout", "error.type"),
        ({"events": [("exception", {"exception.type": "KeyError"})]}, False, "KeyError", "exception event"),
        ({"events": [("exception", {"exception.type": "KeyError"})], "status": OK}, True, None, "status OK"),
        ({"attributes": {"gen_ai.tool.status": "error"}, "status": OK}, False, "error", "gen_ai.tool.status"),
        ({"attributes": {"gen_ai.tool.status": "success"}, "status": ERROR}, False, "error", "status ERROR"),
        (
            {"status": ERROR, "events": [("exception", {"exception.type": t}) for t in ("First", "Second")]},
            False,
            "First",
            "status ERROR",
        ),
    ],
)
def test_the_outcome_of_a_tool_follows_the_strongest_sign_on_its_span(app, span, success, error_type, basis):
    transcript = told(app, make_tool("pay", **span))
    call = only(transcript)
    assert (call.success, call.error_type, transcript.spans[0]["success_basis"]) == (success, error_type, basis)
    assert call.failed is not success


@pytest.mark.parametrize(
    ("result", "soft"),
    [
        ('{"status": "error", "reason": "sold out"}', True),
        ('{"success": false}', True),
        ('{"error": "no such order"}', True),
        ("Error: no such order", True),
        ("Traceback (most recent call last): …", True),
        ('{"error": null, "status": "ok"}', False),
        ("three error codes are known: 1, 2, 3", False),
        ('[{"text": "Error: no such order"}]', True),
    ],
)
def test_a_result_that_reads_like_a_failure_is_a_hint_and_never_a_verdict(app, result, soft):
    call = only(told(app, make_tool("pay", attributes={"gen_ai.tool.call.result": result})))
    assert (call.success, call.soft_error) == (True, soft)


def test_the_error_message_of_a_failed_tool_is_its_exception_and_bounded(app):
    raised = {"exception.type": "RuntimeError", "exception.message": "x" * 5000}
    span = make_tool("pay", status=ERROR, message="Traceback …", events=[("exception", raised)])
    call = only(told(app, span))
    assert call.error_message is not None
    assert call.error_message == "x" * len(call.error_message)
    assert len(call.error_message) <= 500


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"gen_ai.operation.name": "execute_tool"}, "tool"),
        ({"gen_ai.operation.name": "text_completion"}, "llm"),
        ({"gen_ai.operation.name": "generate_content"}, "llm"),
        ({"gen_ai.operation.name": "invoke_workflow"}, "agent"),
        ({"gen_ai.operation.name": "embeddings"}, "embedding"),
        ({"gen_ai.operation.name": "retrieval"}, "retriever"),
        ({"gen_ai.operation.name": "create_agent"}, "other"),
        ({"gen_ai.operation.name": "execute_event_loop_cycle"}, "chain"),
        ({"gen_ai.tool.name": "pay"}, "tool"),
        ({"http.request.method": "GET"}, "other"),
    ],
)
def test_the_kind_of_a_span_comes_from_its_operation_name(app, attributes, kind):
    assert told(app, make_span("x", attributes)).spans[0]["kind"] == kind


def test_a_tool_without_a_name_attribute_is_called_by_its_span(app):
    span = make_span("execute_tool pay", {"gen_ai.operation.name": "execute_tool"})
    assert only(told(app, span)).name == "pay"


@pytest.mark.parametrize("call_id", ["", "<not specified>"])
def test_a_call_id_that_says_nothing_is_none(app, call_id):
    assert only(told(app, make_tool("pay", attributes={"gen_ai.tool.call.id": call_id}))).call_id is None


@pytest.mark.parametrize(
    ("attributes", "events"),
    [
        ({"gen_ai.tool.call.arguments": '{"a": 1}', "gen_ai.tool.call.result": '{"b": 2}'}, ()),
        ({"gen_ai.tool.call.arguments": {"a": 1}, "gen_ai.tool.call.result": {"b": 2}}, ()),
        ({"gen_ai.tool.arguments": '{"a": 1}', "gen_ai.tool.result": '{"b": 2}'}, ()),
        ({"tool_arguments": '{"a": 1}', "tool_response": '{"b": 2}'}, ()),
        ({}, [("gen_ai.tool.message", {"content": '{"a": 1}'}), ("gen_ai.choice", {"message": '{"b": 2}'})]),
        (
            {},
            [
                (
                    "gen_ai.client.inference.operation.details",
                    {
                        "gen_ai.input.messages": json.dumps(
                            [{"role": "tool", "parts": [{"type": "tool_call", "arguments": {"a": 1}}]}]
                        ),
                        "gen_ai.output.messages": json.dumps(
                            [{"role": "tool", "parts": [{"type": "tool_call_response", "result": {"b": 2}}]}]
                        ),
                    },
                )
            ],
        ),
    ],
    ids=["current", "kvlist", "older", "pydantic-ai", "legacy events", "details event"],
)
def test_arguments_and_result_are_found_under_each_of_their_names(app, attributes, events):
    call = only(told(app, make_tool("pay", attributes=attributes, events=events)))
    assert (call.args, call.result) == ({"a": 1}, {"b": 2})


def test_arguments_that_are_a_bare_string_stay_one(app):
    assert only(told(app, make_tool("pay", attributes={"gen_ai.tool.call.arguments": "42"}))).args == "42"


def tokens(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": completion, **more}


def turn(trace: str) -> list[Span]:
    """Make an agent's span that sums up its two model calls."""
    head = "11" * 8
    return [
        make_span("invoke_agent", {**AGENT, **tokens(113, 11)}, trace_id=trace, span_id=head),
        make_span("chat", {**CHAT, **tokens(56, 5)}, trace_id=trace, span_id="22" * 8, parent=head, start_s=0.1),
        make_span("chat", {**CHAT, **tokens(57, 6)}, trace_id=trace, span_id="33" * 8, parent=head, start_s=0.2),
    ]


def test_an_agents_sum_is_not_added_to_the_calls_it_sums_up(app):
    transcript = told(app, *turn("aa" * 16))
    assert transcript.tokens() == (113, 11)
    log = ConversationLog(CONVERSATION)
    assert max_total_tokens(124)(transcript, log)
    assert not max_total_tokens(123)(transcript, log)


def test_the_tokens_of_two_turns_add_up(app):
    assert told(app, *turn("aa" * 16), *turn("bb" * 16)).tokens() == (226, 22)


def test_a_model_call_wrapped_in_another_is_counted_once(app):
    outer = make_span("chat", {**CHAT, **tokens(56, 5)}, span_id="11" * 8)
    step = make_span("step", {}, span_id="22" * 8, parent="11" * 8)
    inner = make_span("chat", {**CHAT, **tokens(56, 5)}, span_id="33" * 8, parent="22" * 8)
    assert told(app, outer, step, inner).tokens() == (56, 5)


def test_an_agents_sum_counts_when_no_model_call_has_tokens(app):
    agent = make_span("invoke_agent", {**AGENT, **tokens(113, 11)}, span_id="11" * 8)
    chat = make_span("chat", CHAT, span_id="22" * 8, parent="11" * 8, start_s=0.1)
    transcript = told(app, agent, chat)
    assert transcript.tokens() == (113, 11)
    assert transcript.runs[0]["tokens_basis"] == "agent totals"


def test_cached_and_reasoning_tokens_are_inside_the_totals(app):
    details = {"gen_ai.usage.cache_read.input_tokens": 40, "gen_ai.usage.reasoning.output_tokens": 15}
    assert told(app, make_span("chat", {**CHAT, **tokens(100, 20, **details)})).tokens() == (100, 20)


def test_the_older_names_of_token_counts_are_read_too(app):
    older = {"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 2}
    assert told(app, make_span("chat", {**CHAT, **older})).tokens() == (7, 2)


def test_a_trace_without_counts_has_unknown_tokens(app):
    transcript = told(app, make_span("chat", CHAT))
    assert transcript.runs[0]["input_tokens"] is None
    assert not transcript.tokens_known


def test_spans_whose_parents_point_at_each_other_do_not_hang_the_answer(app):
    one = make_span("chat", {**CHAT, **tokens(1, 1)}, span_id="11" * 8, parent="22" * 8)
    other = make_span("chat", {**CHAT, **tokens(1, 1)}, span_id="22" * 8, parent="11" * 8)
    assert len(told(app, one, other).spans) == 2


def test_each_trace_is_one_run_headed_by_the_span_without_a_known_parent(app):
    head = make_span("POST /chat", span_id="11" * 8, parent="ee" * 8, status=ERROR)
    child = make_span("chat m", {**CHAT, "gen_ai.response.model": "m-1"}, span_id="22" * 8, parent="11" * 8)
    transcript = told(app, child, head, resource={"sonar.framework": "strands"}, scope="lib")
    (run,) = transcript.runs
    assert (run["name"], run["head_span_id"], run["status"]) == ("POST /chat", "11" * 8, "error")
    assert (run["model"], run["framework"], run["scopes"]) == ("m-1", "strands", ["lib"])
    assert (run["started_at"], run["duration_ms"]) == ("2026-05-28T20:26:40+00:00", 1000.0)


def test_a_fault_the_bot_marked_is_told_with_the_call(app):
    marks = {"sonar.eval.fault.action": "error", "sonar.eval.fault.rule": 0, "sonar.eval.fault.call_index": 2}
    call = only(told(app, make_tool("pay", status=ERROR, attributes=marks)))
    assert call.fault == {"action": "error", "rule": 0, "call_index": 2}


def test_a_span_that_ends_before_it_starts_has_no_duration(app):
    assert told(app, make_span(duration_s=-1)).spans[0]["duration_ms"] is None


def test_a_span_without_times_is_kept_without_times(app):
    span = make_span()
    span.ClearField("start_time_unix_nano")
    span.ClearField("end_time_unix_nano")
    row = told(app, span).spans[0]
    assert (row["started_at"], row["duration_ms"]) == (None, None)


def test_the_latest_time_the_protocol_can_say_is_kept(app):
    span = make_span()
    span.start_time_unix_nano = 2**64 - 1
    row = told(app, span).spans[0]
    assert row["started_at"].startswith("2554-07-21")
    assert row["duration_ms"] is None
