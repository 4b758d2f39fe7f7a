"""Reading a trace: tool calls, tokens and content out of plain rows, however incomplete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes import tool_span
from sonar_eval import ToolInvocation, Transcript, no_tool_errors, tool_was_called
from sonar_eval.conversation import ConversationLog

LOG = ConversationLog("conv-1")


def content(span_id: str, kind: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"span_id": span_id, "trace_id": "t1", "type": kind, "value": value, **more}


def only(span: dict[str, Any], *rows: dict[str, Any]) -> ToolInvocation:
    (call,) = Transcript("conv-1", spans=[span], content=list(rows)).tool_calls
    return call


def test_a_transcript_of_nothing_is_empty():
    transcript = Transcript("conv-1")
    assert transcript.is_empty
    assert transcript.tool_calls == []
    assert transcript.tokens() == (0, 0)
    assert not transcript.redacted
    assert not transcript.incomplete


@pytest.mark.parametrize(
    "rows", [{"runs": [{"trace_id": "t1"}]}, {"spans": [{"kind": "llm"}]}, {"spans": [{}], "content": [{}]}]
)
def test_a_transcript_with_a_run_or_a_span_is_not_empty(rows):
    assert not Transcript("conv-1", **rows).is_empty


def test_a_transcript_of_content_alone_is_empty():
    assert Transcript("conv-1", content=[content("a", "message", "hi")]).is_empty


def test_rows_can_be_replaced():
    transcript = Transcript("conv-1", runs=[{"trace_id": "t1"}])
    changed = replace(transcript, spans=[tool_span("pay")])
    assert tool_was_called("pay")(changed, LOG)
    assert not tool_was_called("pay")(transcript, LOG)


def test_tool_calls_keep_the_order_of_the_rows():
    spans = [tool_span("a"), {"kind": "llm", "span_id": "x"}, tool_span("b"), tool_span("a", span_id="a2")]
    assert [(call.name, call.span_id) for call in Transcript("c", spans=spans).tool_calls] == [
        ("a", "a"),
        ("b", "b"),
        ("a", "a2"),
    ]


def test_a_tool_call_has_everything_its_rows_say():
    span = tool_span(
        "pay",
        success=False,
        span_id="s1",
        error_type="Declined",
        error_message="no funds",
        started_at="2026-05-28T20:26:40+00:00",
        duration_ms=12.5,
        call_id="call_1",
        soft_error=True,
        fault={"action": "error", "rule": 0, "call_index": 1},
    )
    call = only(span, content("s1", "tool_arguments", {"amount": 3}), content("s1", "tool_result", ["no"]))
    assert call == ToolInvocation(
        "pay",
        False,
        "Declined",
        "s1",
        started_at="2026-05-28T20:26:40+00:00",
        duration_ms=12.5,
        trace_id="t1",
        call_id="call_1",
        args={"amount": 3},
        result=["no"],
        error_message="no funds",
        soft_error=True,
        fault={"action": "error", "rule": 0, "call_index": 1},
    )


def test_rows_may_leave_out_everything():
    call = only({"kind": "tool"})
    assert call == ToolInvocation("", None, None, "")
    assert Transcript("c", runs=[{}], spans=[{}], content=[{}]).tokens() == (0, 0)


def test_a_tool_without_a_name_is_called_by_its_span():
    assert only({"kind": "tool", "name": "execute_tool pay"}).name == "execute_tool pay"
    assert only({"kind": "tool", "name": "span", "tool_name": "pay"}).name == "pay"


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}])
def test_a_result_that_is_empty_is_told_as_it_is(value):
    assert only(tool_span("pay"), content("pay", "tool_result", value)).result == value


def test_of_several_results_the_first_counts():
    rows = [content("pay", "tool_result", "first"), content("pay", "tool_result", "second")]
    assert only(tool_span("pay"), *rows).result == "first"


@pytest.mark.parametrize(
    ("success", "error_type", "failed", "unknown"),
    [
        (True, None, False, False),
        (True, "tool_error", False, False),
        (False, None, True, False),
        (False, "tool_error", True, False),
        (None, "tool_error", True, False),
        (None, None, False, True),
        (None, "", False, True),
    ],
)
def test_a_call_failed_when_the_trace_says_so_or_names_an_error(success, error_type, failed, unknown):
    span = {**tool_span("pay", success=success), "error_type": error_type}
    assert (only(span).failed, only(span).outcome_unknown) == (failed, unknown)
    assert no_tool_errors()(Transcript("c", spans=[span]), LOG) is not failed


def test_content_is_found_by_its_span():
    rows = [content("a", "message", "1"), content("b", "message", "2"), content("a", "message", "3")]
    transcript = Transcript("c", content=rows)
    assert [row["value"] for row in transcript.content_for("a")] == ["1", "3"]
    assert transcript.content_for("c") == []


def test_equal_span_ids_of_two_traces_keep_their_content_apart():
    spans = [tool_span("pay", span_id="s1"), {**tool_span("pay", span_id="s1"), "trace_id": "t2"}]
    rows = [content("s1", "tool_result", "one"), content("s1", "tool_result", "two", trace_id="t2")]
    transcript = Transcript("c", spans=spans, content=rows)
    assert [call.result for call in transcript.tool_calls] == ["one", "two"]
    assert [row["value"] for row in transcript.content_for("s1", trace_id="t2")] == ["two"]


def test_content_of_an_older_ingest_that_names_no_trace_is_found_too():
    row = {"span_id": "pay", "type": "tool_result", "value": "ok"}
    assert only(tool_span("pay"), row).result == "ok"


def test_tokens_are_summed_over_runs_and_unknown_ones_are_zero():
    runs = [
        {"input_tokens": 10, "output_tokens": 2},
        {"input_tokens": None},
        {},
        {"input_tokens": 5, "output_tokens": 1},
    ]
    transcript = Transcript("c", runs=runs)
    assert transcript.tokens() == (15, 3)
    assert transcript.tokens_known
    assert not Transcript("c", runs=[{"input_tokens": None}, {}]).tokens_known
    assert Transcript("c", runs=[{"input_tokens": 0, "output_tokens": 0}]).tokens_known


def counted(trace_id, *counts, **more):
    return {"trace_id": trace_id, **dict(zip(("input_tokens", "output_tokens"), counts, strict=False)), **more}


def of_kind(kind, trace_id):
    return {"kind": kind, "span_id": f"{kind} {trace_id}", "trace_id": trace_id}


@pytest.mark.parametrize(
    ("runs", "spans", "known", "least"),
    [
        pytest.param([("a", 100, 10), ("b", None, None)], "llm a, llm b", (None, None), (100, 10), id="untold"),
        pytest.param([("a", 100, 10), ("b", None, None)], "llm a, tool b", (100, 10), (100, 10), id="asked no model"),
        pytest.param([("a", 100, 10), ("b", None, None)], "llm a, agent b", (100, 10), (100, 10), id="asked no llm"),
        pytest.param([("a", 100, 10), ("b", None, None)], "agent a, agent b", (None, None), (100, 10), id="agents"),
        pytest.param([("a", 100, 10), ("b", 50, None)], "llm a, llm b", (150, None), (150, 10), id="one side"),
        pytest.param([("a", 100, 10), ("b", 50, None)], "", (150, None), (150, 10), id="one side and no spans"),
        pytest.param([("a", 100)], "", (100, None), (100, 0), id="no output at all"),
        pytest.param([("a", None, None)], "tool a", (None, None), (0, 0), id="nothing counted"),
    ],
)
def test_tokens_are_known_when_every_turn_that_asked_a_model_tells_them(runs, spans, known, least):
    rows = [of_kind(*span.split()) for span in spans.split(", ") if span]
    transcript = Transcript("c", [counted(*run) for run in runs], rows)
    assert (transcript.known_tokens(), transcript.tokens()) == (known, least)
    assert transcript.tokens_known is (None not in known)


def test_what_some_calls_of_a_turn_took_counts_towards_the_least_though_another_is_silent():
    part = counted("b", None, None, input_tokens_at_least=7, output_tokens_at_least=2)
    transcript = Transcript("c", [counted("a", 100, 10), part])
    assert (transcript.known_tokens(), transcript.tokens()) == ((None, None), (107, 12))


def test_a_transcript_is_redacted_when_any_content_was_withheld():
    clear = content("a", "message", "hi", redaction=None)
    withheld = content("b", "message", None, redaction={"mode": "drop", "bytes": 9, "sha256": None})
    assert not Transcript("c", content=[clear, {"span_id": "old"}]).redacted
    assert Transcript("c", content=[clear, withheld]).redacted


@pytest.mark.parametrize(
    ("completeness", "incomplete"),
    [
        (None, False),
        ({}, False),
        ({"complete": True}, False),
        ({"complete": False, "reasons": ["late"]}, True),
        ("whole", False),
        (0.5, False),
    ],
)
def test_a_transcript_is_incomplete_only_when_it_is_known_to_be(completeness, incomplete):
    assert Transcript("c", completeness=completeness).incomplete is incomplete


def test_an_answer_handed_over_as_a_tool_is_no_call_where_the_framework_does_that():
    span = {"kind": "tool", "span_id": "1", "trace_id": "t", "tool_name": "final_answer", "tool_success": True}
    runs = [{"trace_id": "t", "scopes": ["openinference.instrumentation.smolagents"]}]
    assert Transcript("c", runs, [span]).tool_calls == []
    assert len(Transcript("c", [{"trace_id": "t", "scopes": ["mine"]}], [span]).tool_calls) == 1
