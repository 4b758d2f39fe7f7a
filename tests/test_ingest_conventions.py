"""How each convention is read: kinds, tool fields, outcomes, messages and tokens, and calls that no span tells of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from sonar_eval import Transcript
from sonar_eval.ingest.completeness import unresolved_calls
from sonar_eval.ingest.mapping import answer, map_spans, tools_unobservable
from sonar_eval.ingest.span import Span, SpanEvent

TRACE = "0af7651916cd43dd8448eb211c80319c"
SECOND = 1_000_000_000
LANGCHAIN = "openinference.instrumentation.langchain"
CHAT = {"gen_ai.operation.name": "chat"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay"}
AGENT = {"gen_ai.operation.name": "invoke_agent"}


def span(
    attributes: Mapping[str, Any] | None = None,
    *,
    number: int = 1,
    parent: int | None = None,
    name: str = "work",
    status: str = "UNSET",
    message: str = "",
    events: tuple[tuple[str, Mapping[str, Any]], ...] = (),
    scope: str = "tests",
    trace: str = TRACE,
    start_s: float | None = None,
) -> Span:
    """Make a span; its number is its id and, unless told otherwise, the second it starts in."""
    start = int((number if start_s is None else start_s) * SECOND)
    return Span(
        trace,
        f"{number:016x}",
        f"{parent:016x}" if parent is not None else None,
        name,
        start_ns=start,
        end_ns=start + SECOND,
        status=status,  # type: ignore[arg-type]
        status_message=message,
        attributes=dict(attributes or {}),
        events=tuple(SpanEvent(event, start, dict(values)) for event, values in events),
        scope=scope,
    )


def told(*spans: Span) -> Transcript:
    """Read the answer for spans as the harness does."""
    body = json.loads(json.dumps(answer("acme", "conv", map_spans(spans)), allow_nan=False))
    return Transcript("conv", body["runs"], body["spans"], body["content"])


def only(*spans: Span) -> Any:
    """Return the one tool call that spans tell of."""
    (call,) = told(*spans).tool_calls
    return call


def basis(*spans: Span) -> tuple[bool | None, str]:
    """Return the outcome of the one tool call and by what it is known."""
    (row,) = [row for row in told(*spans).spans if row["kind"] == "tool"]
    return row["tool_success"], row["success_basis"]


def kind_of(attributes: Mapping[str, Any]) -> str:
    return str(told(span(attributes)).spans[0]["kind"])


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": completion}


def marker(value: str, *, kept: int | None = None) -> str:
    """Write a redaction marker as sonar-tracing does, with the first `kept` characters as its preview."""
    return json.dumps({"__sonar_redacted__": "truncate", "bytes": len(value), "preview": value[:kept]})


def dropped(size: int = 99) -> str:
    return json.dumps({"__sonar_redacted__": "drop", "bytes": size})


# kinds


@pytest.mark.parametrize(
    ("stamped", "kind"),
    [
        ("TOOL", "tool"),
        ("LLM", "llm"),
        ("AGENT", "agent"),
        ("CHAIN", "chain"),
        ("PROMPT", "chain"),
        ("RETRIEVER", "retriever"),
        ("RERANKER", "retriever"),
        ("EMBEDDING", "embedding"),
        ("GUARDRAIL", "other"),
        ("EVALUATOR", "other"),
        ("UNKNOWN", "other"),
    ],
)
def test_openinference_stamps_the_kind(stamped, kind):
    assert kind_of({"openinference.span.kind": stamped}) == kind


@pytest.mark.parametrize("stamped", ["AGENT", "CHAIN", "UNKNOWN"])
def test_a_tool_that_openinference_takes_for_an_agent_is_a_tool_by_its_tool_name(stamped):
    attributes = {"openinference.span.kind": stamped, "tool.name": "escalate_to_agent"}
    call = only(span(attributes, status="ERROR", message="down"))
    assert (call.name, call.success) == ("escalate_to_agent", False)


@pytest.mark.parametrize("name", [["escalate"], 7, "", None])
def test_a_tool_name_that_is_no_text_makes_no_agent_a_tool(name):
    assert kind_of({"openinference.span.kind": "AGENT", "tool.name": name}) == "agent"


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"gen_ai.operation.name": "search_memory"}, "retriever"),
        ({"gen_ai.operation.name": "update_memory"}, "other"),
        ({"gen_ai.operation.name": "delete_memory_store"}, "other"),
        ({"gen_ai.operation.name": "plan"}, "chain"),
        ({"gen_ai.operation.name": "execute_task"}, "chain"),
        ({"gen_ai.operation.name": "unknown"}, "chain"),
        ({"gen_ai.operation.name": "acompletion"}, "llm"),
        ({"gen_ai.operation.name": ["chat"]}, "other"),
        ({"traceloop.span.kind": "tool"}, "tool"),
        ({"traceloop.span.kind": "workflow"}, "agent"),
        ({"traceloop.span.kind": "agent"}, "agent"),
        ({"traceloop.span.kind": "task"}, "chain"),
        ({"traceloop.span.kind": "session"}, "other"),
        ({"llm.request.type": "chat"}, "llm"),
        ({"llm.request.type": "completion"}, "llm"),
        ({"ai.operationId": "ai.toolCall"}, "tool"),
        ({"ai.operationId": "ai.generateText.doGenerate"}, "llm"),
        ({"ai.operationId": "ai.streamText.doStream"}, "llm"),
        ({"ai.operationId": "ai.streamObject"}, "agent"),
        ({"ai.operationId": "ai.embedMany.doEmbed"}, "embedding"),
        ({"ai.operationId": "ai.embedMany"}, "other"),
        ({"operation.name": "chat"}, "other"),
        ({"mcp.method.name": "tools/call"}, "tool"),
        ({"mcp.method.name": "tools/list"}, "other"),
        ({"tools": ["pay"], "logfire.msg": "running 1 tool"}, "other"),
        ({"agent_name": "a", "model_name": "m", **usage(3, 1)}, "agent"),
        ({"gen_ai.agent.name": "a"}, "other"),
        (usage(3, 1), "other"),
        ({"llm.openai.messages": "[]"}, "other"),
        ({"db.system": "postgresql"}, "other"),
    ],
)
def test_the_other_conventions_tell_the_kind_in_their_own_words(attributes, kind):
    assert kind_of(attributes) == kind


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"openinference.span.kind": "LLM", "gen_ai.operation.name": "execute_tool"}, "llm"),
        ({"gen_ai.operation.name": "execute_task", "traceloop.span.kind": "tool"}, "chain"),
        ({"traceloop.span.kind": "task", "ai.operationId": "ai.toolCall"}, "chain"),
        ({"ai.operationId": "ai.generateText", "mcp.method.name": "tools/call"}, "agent"),
        ({"mcp.method.name": "tools/call", "agent_name": "a", **usage(1, 1)}, "tool"),
    ],
)
def test_of_two_conventions_on_one_span_the_first_in_order_tells_the_kind(attributes, kind):
    assert kind_of(attributes) == kind


def test_the_span_that_sums_up_parallel_calls_is_no_call():
    merged = {**TOOL, "gen_ai.tool.name": "(merged tools)"}
    assert told(span(merged, name="execute_tool (merged)")).tool_calls == []


# tool fields


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ({"gen_ai.tool.name": "a", "tool.name": "b"}, "a"),
        ({"openinference.span.kind": "TOOL", "tool.name": "b", "traceloop.entity.name": "d"}, "b"),
        ({"ai.operationId": "ai.toolCall", "ai.toolCall.name": "c"}, "c"),
        ({"traceloop.span.kind": "tool", "traceloop.entity.name": "d"}, "d"),
    ],
)
def test_the_name_of_a_tool_is_never_its_spans_while_anything_better_is_there(attributes, name):
    assert only(span(attributes, name="SimpleTool")).name == name


@pytest.mark.parametrize("name", ["execute_tool pay", "pay.tool", "tools/call pay", "pay"])
def test_the_name_of_a_tool_is_taken_out_of_its_spans_at_last(name):
    assert only(span({"mcp.method.name": "tools/call"}, name=name)).name == "pay"


@pytest.mark.parametrize(
    ("attributes", "call_id"),
    [
        ({**TOOL, "gen_ai.tool.call.id": "c1"}, "c1"),
        ({**TOOL, "gen_ai.tool.call.id": 17}, "17"),
        ({**TOOL, "gen_ai.tool.call.id": ["c1"]}, None),
        ({"openinference.span.kind": "TOOL", "tool.id": "c2"}, "c2"),
        ({"openinference.span.kind": "TOOL", "tool_call.id": "c3"}, "c3"),
        ({"ai.operationId": "ai.toolCall", "ai.toolCall.id": "c4"}, "c4"),
    ],
)
def test_the_call_id_is_text_or_none(attributes, call_id):
    assert only(span(attributes)).call_id == call_id


@pytest.mark.parametrize(
    "attributes",
    [
        {"ai.operationId": "ai.toolCall", "ai.toolCall.args": '{"a": 1}', "ai.toolCall.result": '{"b": 2}'},
        {"openinference.span.kind": "TOOL", "input.value": '{"a": 1}', "output.value": '{"b": 2}'},
        {"traceloop.span.kind": "tool", "traceloop.entity.input": '{"a": 1}', "traceloop.entity.output": '{"b": 2}'},
        {**TOOL, "gcp.vertex.agent.tool_call_args": '{"a": 1}', "gcp.vertex.agent.tool_response": '{"b": 2}'},
        {**TOOL, "gen_ai.tool.call.arguments": "{'a': 1}", "gen_ai.tool.call.result": "{'b': 2}"},
        {**TOOL, "gen_ai.tool.call.arguments": marker("{'a': 1}"), "gen_ai.tool.call.result": marker('{"b": 2}')},
        {**TOOL, "gen_ai.tool.call.arguments": '"{\\"a\\": 1}"', "gen_ai.tool.call.result": '"{\\"b\\": 2}"'},
        {**TOOL, "gen_ai.tool.call.arguments": {"a": 1}, "input.value": "x", "gen_ai.tool.call.result": {"b": 2}},
    ],
    ids=["vercel", "openinference", "traceloop", "adk", "python", "markers", "json in json", "kvlist first"],
)
def test_arguments_and_result_are_read_in_every_form_they_are_written_in(attributes):
    call = only(span(attributes))
    assert (call.args, call.result) == ({"a": 1}, {"b": 2})


@pytest.mark.parametrize(
    "sent",
    [
        '{"input_str": "{\'order_id\': \'42\'}", "tags": [], "metadata": {}, "inputs": {"order_id": "42"}}',
        '{"input_str": "{\'order_id\': \'42\'}", "tags": ["seq:step:1"]}',
        '{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"order_id": "42"}}',
        '{"args": [], "kwargs": {"order_id": "42"}}',
        '{"kwargs": {"order_id": "42"}}',
        '{"tool_name": "pay", "arguments": {"order_id": "42"}}',
        marker('{"input_str": "{\'order_id\': \'42\'}", "tags": ["seq:step:1"], "metadata": {}}', kept=50),
    ],
    ids=["langchain", "langchain older", "smolagents", "decorator", "llama-index", "mcp", "langchain cut"],
)
def test_arguments_are_taken_out_of_what_frameworks_wrap_around_them(sent):
    transcript = told(span({**TOOL, "gen_ai.tool.call.arguments": sent}))
    assert transcript.tool_calls[0].args == {"order_id": "42"}
    assert transcript.content[0]["cut"] is False


@pytest.mark.parametrize(
    ("sent", "args"),
    [
        ('{"args": ["42"], "kwargs": {}}', ["42"]),
        ('{"args": ["42"], "kwargs": {"b": 1}}', {"args": ["42"], "kwargs": {"b": 1}}),
        ('{"args": 1, "other": 2}', {"args": 1, "other": 2}),
        ('{"input_str": "x"}', {"input_str": "x"}),
        ("42", "42"),
        ("true", "true"),
        ("__import__('os').getcwd()", "__import__('os').getcwd()"),
        ("[__import__('os')]", "[__import__('os')]"),
        ("(see the manual's page 3)", "(see the manual's page 3)"),
        (r"{'path': 'C:\d'}", r"{'path': 'C:\d'}"),
        ("{1: None, 'b': (True, {2})}", {"1": None, "b": [True, [2]]}),
    ],
)
def test_arguments_that_are_wrapped_in_nothing_known_stay_as_they_are(sent, args):
    assert only(span({**TOOL, "gen_ai.tool.call.arguments": sent})).args == args


def test_a_marker_inside_a_structure_is_opened_too():
    transcript = told(span({**TOOL, "gen_ai.tool.call.arguments": {"who": [marker("Ann"), "Bo"], "why": dropped()}}))
    assert transcript.tool_calls[0].args == {"who": ["Ann", "Bo"], "why": None}
    assert transcript.redacted
    assert transcript.content[0]["cut"] is True


MESSAGE = {"content": '{"order_id": "42"}', "status": "success", "tool_call_id": "call_0"}


@pytest.mark.parametrize(
    "sent",
    [
        json.dumps({"type": "tool", "data": MESSAGE}),
        json.dumps({"output": {"lc": 1, "id": ["langchain", "ToolMessage"], "kwargs": MESSAGE}, "kwargs": {}}),
        json.dumps({"lc": 1, "id": ["langchain", "ToolMessage"], "kwargs": MESSAGE}),
        json.dumps({"type": "tool", **MESSAGE}),
        json.dumps({"output": '{"order_id": "42"}', "kwargs": {"tags": []}}),
        "content='{\"order_id\": \"42\"}' name='pay' tool_call_id='call_0'",
        '[{"text": "{\\"order_id\\": \\"42\\"}"}]',
        '[{"json": {"order_id": "42"}}]',
        '{"content": [{"type": "text", "text": "{\\"order_id\\": \\"42\\"}"}], "isError": false}',
        '{"content": [], "structuredContent": {"order_id": "42"}, "isError": false}',
        '{"toolUseId": "c", "status": "success", "content": [{"json": {"order_id": "42"}}]}',
        '{"id": "c", "name": "pay", "response": {"order_id": "42"}}',
        '{"type": "json", "value": {"order_id": "42"}}',
    ],
)
def test_a_result_is_taken_out_of_its_envelope(sent):
    call = only(span({**TOOL, "gen_ai.tool.call.result": sent}))
    assert (call.result, call.success, call.soft_error) == ({"order_id": "42"}, True, False)


@pytest.mark.parametrize("text", ["{'a': (1, {2}, b'x')}", "{'a': 0x" + "f" * 4000 + "}", "[" * 900 + "]" * 900])
@pytest.mark.parametrize("wrap", [{"isError": False}, {"type": "tool", "tool_call_id": "c"}])
def test_what_comes_out_of_an_envelope_is_strict_json_again(text, wrap):
    assert only(span({**TOOL, "gen_ai.tool.call.result": json.dumps({"content": text, **wrap})})).result is not None


def test_an_envelope_whose_content_was_cut_off_says_so():
    sent = json.dumps({"content": "x...[sonar:truncated]", "isError": False})
    assert told(span({**TOOL, "gen_ai.tool.call.result": sent})).content[0]["cut"] is True


# outcome


FAILED = {"content": "no such order", "status": "error", "tool_call_id": "call_0"}


@pytest.mark.parametrize(
    "sent",
    [
        json.dumps({"type": "tool", "data": FAILED}),
        json.dumps({"output": {"lc": 1, "id": ["langchain", "ToolMessage"], "kwargs": FAILED}, "kwargs": {}}),
        "content='no such order' name='pay' tool_call_id='call_0' status='error'",
        '{"content": [{"type": "text", "text": "no such order"}], "isError": true}',
        '{"result": "no such order", "is_error": true}',
        '{"toolResult": {"toolUseId": "c", "status": "error", "content": [{"text": "no such order"}]}}',
        '{"type": "error-text", "value": "no such order"}',
    ],
)
@pytest.mark.parametrize("status", ["OK", "UNSET"])
def test_an_envelope_that_says_error_is_a_failure_whatever_the_status(sent, status):
    broken = span({**TOOL, "gen_ai.tool.call.result": sent, "gen_ai.task.status": "success"}, status=status)
    call = only(broken)
    assert (call.success, call.error_type, call.result) == (False, "error", "no such order")
    assert call.error_message == "no such order"
    assert basis(broken) == (False, "result envelope")


@pytest.mark.parametrize("scope", [LANGCHAIN, "opentelemetry.instrumentation.langchain"])
@pytest.mark.parametrize(
    "sent",
    [
        marker(json.dumps({"type": "tool", "data": {"content": "x" * 600, "status": "error"}}), kept=512),
        dropped(),
        '{"type": "tool", "data": {"content": "xxx...[sonar:truncated]',
    ],
    ids=["cut", "dropped", "capped"],
)
def test_a_result_that_redaction_cut_off_leaves_langchain_tools_without_an_outcome(scope, sent):
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "pay", "output.value": sent}
    assert basis(span(attributes, scope=scope, status="OK")) == (None, "result cut")
    assert basis(span(attributes, scope="another", status="OK")) == (True, "status OK")
    assert basis(span(attributes, scope=scope, status="ERROR")) == (False, "status ERROR")


@pytest.mark.parametrize(
    ("called_off", "known_by"),
    [
        (span({**TOOL, "strands.cancellation.type": "CancelledError"}), "strands.cancellation.type"),
        (span({**TOOL, "pydantic_ai.tool.deferral.name": "ApprovalRequired"}), "deferred: ApprovalRequired"),
        (
            span(TOOL, status="OK", events=(("exception", {"exception.type": "langgraph.errors.GraphInterrupt"}),)),
            "GraphInterrupt",
        ),
        (
            span({**TOOL, "gen_ai.tool.call.result": '{"graph": null, "update": {}, "resume": null, "goto": []}'}),
            "handed over",
        ),
        (
            span({**TOOL, "gen_ai.tool.call.result": '{"output": {"lc": 1, "id": ["langgraph", "Command"]}}'}),
            "handed over",
        ),
    ],
    ids=["cancelled", "deferred", "interrupted", "command", "serialized command"],
)
def test_a_call_that_was_called_off_or_handed_over_neither_worked_nor_failed(called_off, known_by):
    assert basis(called_off) == (None, known_by)
    assert only(called_off).outcome_unknown


def test_a_deferred_call_of_an_older_format_that_says_error_is_a_failure():
    deferred = {**TOOL, "pydantic_ai.tool.deferral.name": "CallDeferred"}
    raised = (("exception", {"exception.type": "pydantic_ai.exceptions.CallDeferred"}),)
    assert basis(span(deferred, status="ERROR", events=raised)) == (False, "status ERROR")


def test_an_exception_event_fails_a_tool_whatever_other_attributes_say():
    attributes = {**TOOL, "gen_ai.tool.status": "success", "gen_ai.task.status": "success", "output.value": "fine"}
    call = only(span(attributes, events=(("exception", {"exception.type": "KeyError", "exception.message": "k"}),)))
    assert (call.success, call.error_type, call.error_message) == (False, "KeyError", "k")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("RuntimeError('down')Traceback (most recent call last):\n  File \"/srv/bot.py\"", "RuntimeError('down')"),
        ('Traceback (most recent call last):\n  File "/srv/bot.py"\nRuntimeError: down', "RuntimeError: down"),
        ("Error: down\n    at pay (/srv/bot.js:1:2)", "Error: down"),
        ("down", "down"),
    ],
)
def test_the_message_of_an_error_is_told_without_its_stack(message, shown):
    assert only(span(TOOL, status="ERROR", message=message)).error_message == shown


def test_a_span_of_another_kind_that_failed_tells_why():
    row = told(span(CHAT, status="ERROR", events=(("exception", {"exception.type": "Timeout"}),))).spans[0]
    assert (row["kind"], row["error_type"], row["tool_success"]) == ("llm", "Timeout", None)


# the same call told twice


def nested(outer: Span, *inner: Span) -> tuple[Any, list[str]]:
    transcript = told(outer, *inner)
    (call,) = transcript.tool_calls
    return call, [row["kind"] for row in transcript.spans]


MCP = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "pay"}


def test_a_tool_span_below_one_of_the_same_tool_is_the_same_call():
    call, kinds = nested(span(TOOL), span(MCP, number=2, parent=1, name="tools/call pay"))
    assert kinds == ["tool", "other"]
    assert (call.success, call.span_id) == (True, f"{1:016x}")


def test_the_failure_of_the_inner_span_is_that_of_the_call():
    inner = span({**MCP, "error.type": "tool_error"}, number=3, parent=2, message="down")
    call, kinds = nested(span(TOOL, status="OK"), span({}, number=2, parent=1), inner)
    assert kinds == ["tool", "other", "other"]
    assert (call.success, call.error_type, call.error_message) == (False, "tool_error", "down")


def test_a_retry_inside_a_call_that_worked_makes_it_work():
    first = span(MCP, number=2, parent=1, status="ERROR")
    call, _ = nested(span(TOOL), first, span(MCP, number=3, parent=1))
    assert call.success is True


def test_what_the_outer_span_lacks_is_taken_from_the_inner_one():
    inner = {**MCP, "gen_ai.tool.call.arguments": '{"a": 1}', "gen_ai.tool.call.result": "done"}
    server = span(MCP, number=3, parent=2)
    call, _ = nested(span({**TOOL, "gen_ai.tool.call.result": "paid"}), span(inner, number=2, parent=1), server)
    assert (call.args, call.result) == ({"a": 1}, "paid")


@pytest.mark.parametrize("between", [CHAT, AGENT])
def test_the_same_tool_below_a_model_or_an_agent_is_a_call_of_its_own(between):
    spans = (span(TOOL), span(between, number=2, parent=1), span(TOOL, number=3, parent=2))
    assert len(told(*spans).tool_calls) == 2


def test_another_tool_below_a_tool_is_a_call_of_its_own():
    other = {**TOOL, "gen_ai.tool.name": "log"}
    assert len(told(span(TOOL), span(other, number=2, parent=1)).tool_calls) == 2


def test_a_tool_that_calls_itself_thousands_of_times_is_one_call():
    chain = [span(TOOL, number=number, parent=number - 1 if number > 1 else None) for number in range(1, 3001)]
    chain[-1] = span({**TOOL, "error.type": "Bottom"}, number=3000, parent=2999)
    call = only(*chain)
    assert (call.success, call.error_type) == (False, "Bottom")


# tokens


def test_the_agents_sum_of_its_two_calls_counts_once_in_every_turn():
    agent = {"openinference.span.kind": "AGENT", "llm.token_count.prompt": 113, "llm.token_count.completion": 11}
    llm = {"openinference.span.kind": "LLM"}
    turns = []
    for trace in ("a" * 32, "b" * 32):
        turns += [
            span(agent, number=1, trace=trace),
            span(
                {**llm, "llm.token_count.prompt": 56, "llm.token_count.completion": 5},
                number=2,
                parent=1,
                trace=trace,
            ),
            span(
                {**llm, "llm.token_count.prompt": 57, "llm.token_count.completion": 6},
                number=3,
                parent=1,
                trace=trace,
            ),
        ]
    assert told(*turns[:3]).tokens() == (113, 11)
    assert told(*turns).tokens() == (226, 22)
    assert told(turns[0]).tokens() == (113, 11)


def test_a_response_told_by_two_instrumentors_side_by_side_counts_once():
    one = span({**CHAT, **usage(56, 5), "gen_ai.response.id": "r1"}, number=1)
    other = span({"ai.operationId": "a.doGenerate", **usage(56, 5), "ai.response.id": "r1"}, number=2)
    assert told(one, other).tokens() == (56, 5)


def test_two_calls_of_a_stub_that_always_gives_one_response_id_count_both():
    spans = [span({**CHAT, **usage(56 + n, 5), "gen_ai.response.id": "r"}, number=n) for n in (1, 2)]
    assert told(*spans).tokens() == (115, 10)


CACHED = "gen_ai.usage.cache_read.input_tokens"
VERCEL = {"ai.operationId": "ai.generateText.doGenerate", "ai.usage.inputTokens": 100, "ai.usage.outputTokens": 20}


def openinference(kind, cached):
    counts = {"llm.token_count.prompt": 100, "llm.token_count.completion": 20}
    return {"openinference.span.kind": kind, **counts, "llm.token_count.prompt_details.cache_read": cached}


@pytest.mark.parametrize(
    "attributes",
    [
        {**CHAT, **usage(100, 20), CACHED: 40},
        {**CHAT, **usage(100, 20), "gen_ai.usage.cache_read_input_tokens": 40},
        {**CHAT, **usage(100, 20), "gen_ai.usage.details.cache_read_tokens": 40},
        {**CHAT, **usage(100, 20), "gen_ai.usage.details.cached_tokens": 40},
        {
            **AGENT,
            "gen_ai.aggregated_usage.input_tokens": 100,
            "gen_ai.aggregated_usage.cache_read.input_tokens": 40,
        },
        {
            **AGENT,
            "gen_ai.aggregated_usage.input_tokens": 100,
            "gen_ai.aggregated_usage.details.cache_read_tokens": 40,
        },
        openinference("LLM", 40),
        openinference("AGENT", 40),
        {**CHAT, **openinference("LLM", 40), **usage(100, 20)},
        {**VERCEL, "ai.usage.cachedInputTokens": 40},
        {**VERCEL, "ai.usage.inputTokenDetails.cacheReadTokens": 40},
    ],
)
def test_cached_tokens_are_found_under_each_of_their_names(attributes):
    (run,) = told(span(attributes)).runs
    assert (run["input_tokens"], run["cached_tokens"]) == (100, 40)


def cached_of(*spans):
    return [run.get("cached_tokens") for run in told(*spans).runs]


def test_cached_tokens_of_model_calls_are_added_up_and_those_around_them_are_not_added_to_them():
    spans = [
        span({**AGENT, **usage(170, 17), CACHED: 90}, number=1),
        span({**CHAT, **usage(56, 5), CACHED: 40}, number=2, parent=1),
        span({**CHAT, **usage(57, 6), CACHED: 30}, number=3, parent=1),
        span({**CHAT, **usage(57, 6), CACHED: 30}, number=4, parent=3),
        span({**CHAT, **usage(57, 6)}, number=5, parent=1),
    ]
    assert cached_of(*spans) == [70]
    assert cached_of(spans[0]) == [90]


def test_two_that_tell_of_one_response_tell_of_its_cache_once():
    answer = {**CHAT, **usage(56, 5), "gen_ai.response.id": "r1"}
    alike = [span({**answer, **more}, number=n) for n, more in enumerate(({}, {CACHED: 40}, {CACHED: 40}))]
    assert cached_of(*alike) == [40]


@pytest.mark.parametrize(("told_of", "counted"), [({CACHED: 400}, 56), ({CACHED: 0}, None), ({}, None)])
def test_no_more_is_cached_than_went_in_and_nothing_is_no_entry(told_of, counted):
    assert cached_of(span({**CHAT, **usage(56, 5), **told_of})) == [counted]


def test_the_cache_of_an_agent_that_counts_on_is_counted_once():
    again = {**openinference("AGENT", 70), "llm.token_count.prompt": 250, "input.value": '{"reset": false}'}
    turns = [span(openinference("AGENT", 40), number=1, trace="a" * 32), span(again, number=1, trace="b" * 32)]
    assert [run["input_tokens"] for run in told(*turns).runs] == [100, 150]
    assert cached_of(*turns) == [40, 30]


def test_reasoning_and_cached_tokens_are_not_added_to_the_totals():
    details = {
        "gen_ai.usage.reasoning.output_tokens": 15,
        "gen_ai.usage.reasoning_tokens": 15,
        "llm.token_count.completion_details.reasoning": 15,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "llm.token_count.prompt_details.cache_read": 40,
    }
    assert told(span({**CHAT, **usage(100, 20), **details})).tokens() == (100, 20)


@pytest.mark.parametrize(
    "attributes",
    [
        {**CHAT, **usage(7, 2), "gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 2},
        {**CHAT, "gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 2},
        {**AGENT, "gen_ai.aggregated_usage.input_tokens": 7, "gen_ai.aggregated_usage.output_tokens": 2},
        {"ai.operationId": "x.doStream", "ai.usage.promptTokens": 7, "ai.usage.completionTokens": 2},
        {"ai.operationId": "x.doStream", "ai.usage.inputTokens": 7, "ai.usage.outputTokens": 2},
        {"openinference.span.kind": "LLM", "llm.token_count.prompt": 7.0, "llm.token_count.completion": "2"},
        {"openinference.span.kind": "LLM", **usage(7, 2), "llm.token_count.prompt": 9},
    ],
)
def test_tokens_are_read_under_one_of_their_names(attributes):
    assert told(span(attributes)).tokens() == (7, 2)


@pytest.mark.parametrize("value", [-1, 1.5, "many", True, None, [7], {"n": 7}, "1e3", 2**64, float("inf")])
def test_a_count_that_is_none_is_unknown(value):
    run = told(span({**CHAT, "gen_ai.usage.input_tokens": value, "gen_ai.usage.output_tokens": 2})).runs[0]
    assert (run["input_tokens"], run["output_tokens"]) == (None, 2)


def smolagent(number: int, prompt: int, completion: int, *, reset: bool) -> Span:
    attributes = {
        "openinference.span.kind": "AGENT",
        "input.value": json.dumps({"task": "t", "reset": reset}),
        "llm.token_count.prompt": prompt,
        "llm.token_count.completion": completion,
    }
    return span(attributes, number=number, name="a.run", trace=f"{number:032x}")


def test_an_agent_that_goes_on_counting_has_its_earlier_runs_subtracted():
    runs = [smolagent(1, 203, 23, reset=True), smolagent(2, 410, 50, reset=False), smolagent(3, 621, 81, reset=False)]
    transcript = told(*runs)
    assert [run["input_tokens"] for run in transcript.runs] == [203, 207, 211]
    assert transcript.tokens() == (621, 81)


def test_an_agent_that_starts_anew_counts_in_full():
    assert told(smolagent(1, 203, 23, reset=True), smolagent(2, 410, 50, reset=True)).tokens() == (613, 73)
    assert told(smolagent(1, 203, 23, reset=True), smolagent(2, 99, 9, reset=False)).tokens() == (302, 32)


def given(**counts: int) -> dict[str, int]:
    """Write down the side of a call's usage that its provider told, or both."""
    return {f"gen_ai.usage.{side}_tokens": count for side, count in counts.items()}


BOTH = usage(100, 10)
ID = {"gen_ai.response.id": "r1"}


@pytest.mark.parametrize(
    ("spans", "tokens", "basis", "least"),
    [
        pytest.param([span(CHAT, number=1)], (None, None), None, (0, 0), id="the only call tells nothing"),
        pytest.param(
            [span({**CHAT, **BOTH}, number=1), span(CHAT, number=2)],
            (None, None),
            "llm spans",
            (100, 10),
            id="one of two calls tells nothing",
        ),
        pytest.param(
            [span({**CHAT, **BOTH}, number=1), span(CHAT, number=2, status="ERROR")],
            (None, None),
            "llm spans",
            (100, 10),
            id="a call that failed took nobody knows what",
        ),
        pytest.param(
            [span({**CHAT, **given(input=100)}, number=number) for number in (1, 2)],
            (200, None),
            "llm spans",
            (200, 0),
            id="no call tells its output",
        ),
        pytest.param(
            [span({**CHAT, **BOTH}, number=1), span({**CHAT, **given(input=50)}, number=2)],
            (150, None),
            "llm spans",
            (150, 10),
            id="one of two calls does not tell its output",
        ),
        pytest.param(
            [span(CHAT, number=1), span({**CHAT, **BOTH}, number=2, parent=1)],
            (100, 10),
            "llm spans",
            (100, 10),
            id="a call is told by the one inside",
        ),
        pytest.param(
            [span({**CHAT, **BOTH}, number=1), span(CHAT, number=2, parent=1)],
            (100, 10),
            "llm spans",
            (100, 10),
            id="a call is told by the one around it",
        ),
        pytest.param(
            [span({**CHAT, **given(input=100)}, number=1), span({**CHAT, **BOTH}, number=2, parent=1)],
            (100, 10),
            "llm spans",
            (100, 10),
            id="two spans of one call tell a side each",
        ),
        pytest.param(
            [span(CHAT, number=1), span({**CHAT, **BOTH}, number=2, parent=1), span(CHAT, number=3, parent=1)],
            (None, None),
            "llm spans",
            (100, 10),
            id="one of two calls inside another tells nothing",
        ),
        pytest.param(
            [span({**CHAT, **BOTH, **ID}, number=1), span({**CHAT, **ID}, number=2, scope="another instrumentor")],
            (100, 10),
            "llm spans",
            (100, 10),
            id="a response told by two instrumentors of which one counts",
        ),
        pytest.param(
            [span({**CHAT, **BOTH, **ID}, number=1), span({**CHAT, **ID}, number=2)],
            (None, None),
            "llm spans",
            (100, 10),
            id="two responses of a stub that always gives one id",
        ),
        pytest.param(
            [span({**AGENT, **BOTH}, number=1), span(CHAT, number=2, parent=1), span(CHAT, number=3, parent=1)],
            (100, 10),
            "agent totals",
            (100, 10),
            id="an agent counts its silent calls",
        ),
        pytest.param(
            [span({**AGENT, **BOTH}, number=1), span(CHAT, number=2, parent=1), span(CHAT, number=3)],
            (None, None),
            "agent totals",
            (100, 10),
            id="a silent call beside an agent is none of those it counts",
        ),
        pytest.param(
            [
                span({**AGENT, **usage(300, 30)}, number=1),
                span({**CHAT, **BOTH}, number=2, parent=1),
                span(CHAT, number=3, parent=1),
            ],
            (300, 30),
            "agent totals",
            (300, 30),
            id="an agent knows of more than its calls tell",
        ),
        pytest.param(
            [
                span({**AGENT, **BOTH}, number=1),
                span({**CHAT, **BOTH}, number=2, parent=1),
                span(CHAT, number=3, parent=1),
            ],
            (None, None),
            "llm spans",
            (100, 10),
            id="an agent counts a silent call as nothing",
        ),
        pytest.param(
            [span({**AGENT, **usage(0, 0)}, number=1), span(CHAT, number=2, parent=1)],
            (None, None),
            None,
            (0, 0),
            id="an agent counts its only call as nothing",
        ),
        pytest.param(
            [
                span({**AGENT, **BOTH}, number=1),
                span(CHAT, number=2, parent=1),
                span({**CHAT, **usage(50, 5)}, number=3),
            ],
            (150, 15),
            "llm spans and agent totals",
            (150, 15),
            id="one agent counts its calls and another's calls tell themselves",
        ),
        pytest.param(
            [span({**AGENT, **BOTH}, number=1), span({**AGENT, **given(output=5)}, number=2)],
            (None, 15),
            "agent totals",
            (100, 15),
            id="one of two agents does not tell its input",
        ),
        pytest.param(
            [span({**AGENT, **usage(300, 30)}, number=1), span({**CHAT, **BOTH}, number=2)],
            (100, 10),
            "llm spans",
            (100, 10),
            id="calls that all tell go before what stands on an agent",
        ),
    ],
)
def test_a_sum_is_known_only_when_every_model_call_is_in_it(spans, tokens, basis, least):
    transcript = told(*spans)
    (run,) = transcript.runs
    assert (run["input_tokens"], run["output_tokens"], run["tokens_basis"]) == (*tokens, basis)
    assert transcript.known_tokens() == tokens
    assert transcript.tokens() == least
    assert ("input_tokens_at_least" in run) is (tokens[0] is None and least[0] > 0)


def test_an_agent_that_came_back_may_count_its_earlier_turns_too_so_it_does_not_stand_in_for_a_silent_call():
    turns = []
    for number, trace in ((10, "a" * 32), (20, "b" * 32)):
        turns += [
            span({**AGENT, **usage(number * 30, number)}, number=number, trace=trace),
            span({**CHAT, **BOTH}, number=number + 1, parent=number, trace=trace),
            span(CHAT, number=number + 2, parent=number, trace=trace),
        ]
    assert [run["input_tokens"] for run in told(*turns).runs] == [300, None]


def test_an_agent_is_subtracted_its_earlier_run_also_where_the_calls_of_that_run_told_themselves():
    first = smolagent(1, 203, 23, reset=True)
    call = span({**CHAT, **usage(203, 23)}, number=3, parent=1, trace=first.trace_id)
    assert told(first, call, smolagent(2, 410, 50, reset=False)).tokens() == (410, 50)


# models: names, reasons, messages


@pytest.mark.parametrize(
    ("attributes", "model"),
    [
        ({**CHAT, "gen_ai.response.model": "r", "gen_ai.request.model": "q", "llm.model_name": "o"}, "r"),
        ({**CHAT, "gen_ai.request.model": "q", "llm.model_name": "o"}, "q"),
        ({"openinference.span.kind": "LLM", "llm.model_name": "o"}, "o"),
        ({"ai.operationId": "x.doGenerate", "ai.response.model": "v"}, "v"),
        ({**AGENT, "model_name": "p"}, "p"),
        ({**CHAT, "gen_ai.response.model": ["r"]}, None),
    ],
)
def test_the_model_of_a_run_is_read_under_its_names(attributes, model):
    assert told(span(attributes)).runs[0]["model"] == model


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({**CHAT, "gen_ai.response.finish_reasons": ["tool_use"]}, "tool_calls"),
        ({**CHAT, "gen_ai.response.finish_reasons": '["tool_calls"]'}, "tool_calls"),
        ({**CHAT, "gen_ai.response.finish_reasons": ["stop", "tool_call"]}, "tool_calls"),
        ({**CHAT, "gen_ai.response.finish_reasons": "STOP"}, "stop"),
        ({**CHAT, "gen_ai.response.finish_reasons": [None, 3]}, None),
        ({"openinference.span.kind": "LLM", "llm.finish_reason": "max_tokens"}, "length"),
        ({"ai.operationId": "x.doStream", "ai.response.finishReason": "tool-calls"}, "tool_calls"),
        ({"llm.request.type": "chat", "gen_ai.completion.0.finish_reason": "function_call"}, "tool_calls"),
        ({**CHAT, "gen_ai.response.finish_reasons": ["content_filter"]}, "content_filter"),
    ],
)
def test_the_finish_reason_has_one_name_for_all_providers(attributes, reason):
    (mapped,) = map_spans([span(attributes)])
    assert mapped.reading.finish_reason == reason


SAID = [
    ("system", "message", None, "Be kind."),
    ("user", "message", None, "Order 42?"),
    ("assistant", "tool_arguments", "call_0", {"order_id": "42"}),
    ("tool", "tool_result", "call_0", {"status": "shipped"}),
    ("assistant", "message", None, "It has shipped."),
]
ARGUMENTS, RESULT = '{"order_id": "42"}', '{"status": "shipped"}'
OPENAI_CALL = {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": ARGUMENTS}}
PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "Order 42?"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "call_0", "name": "look", "arguments": ARGUMENTS}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_0", "response": RESULT}]},
]
REPLY = [{"role": "assistant", "parts": [{"type": "text", "content": "It has shipped."}]}]
SHAPES: dict[str, tuple[dict[str, Any], tuple[tuple[str, dict[str, Any]], ...]]] = {
    "parts as JSON": (
        {
            **CHAT,
            "gen_ai.system_instructions": '[{"type": "text", "content": "Be kind."}]',
            "gen_ai.input.messages": json.dumps(PARTS),
            "gen_ai.output.messages": json.dumps(REPLY),
        },
        (),
    ),
    "parts as structure": (
        {
            **CHAT,
            "gen_ai.system_instructions": "Be kind.",
            "gen_ai.input.messages": PARTS,
            "gen_ai.output.messages": REPLY,
        },
        (),
    ),
    "three details events": (
        CHAT,
        tuple(
            ("gen_ai.client.inference.operation.details", {key: value})
            for key, value in (
                ("gen_ai.system_instructions", '[{"type": "text", "content": "Be kind."}]'),
                ("gen_ai.input.messages", json.dumps(PARTS)),
                ("gen_ai.output.messages", json.dumps(REPLY)),
            )
        ),
    ),
    "an event per message": (
        CHAT,
        (
            ("gen_ai.system.message", {"content": "Be kind."}),
            ("gen_ai.user.message", {"content": "Order 42?", "role": "user"}),
            ("gen_ai.assistant.message", {"tool_calls": json.dumps([OPENAI_CALL])}),
            ("gen_ai.tool.message", {"content": RESULT, "id": "call_0"}),
            ("gen_ai.choice", {"index": 0, "message": '{"role": "assistant", "content": "It has shipped."}'}),
        ),
    ),
    "strands events": (
        CHAT,
        (
            ("gen_ai.system.message", {"content": '[{"text": "Be kind."}]'}),
            ("gen_ai.user.message", {"content": '[{"text": "Order 42?"}]'}),
            (
                "gen_ai.assistant.message",
                {"content": '[{"toolUse": {"toolUseId": "call_0", "name": "look", "input": {"order_id": "42"}}}]'},
            ),
            (
                "gen_ai.tool.message",
                {
                    "content": json.dumps(
                        [{"toolResult": {"toolUseId": "call_0", "status": "success", "content": [{"text": RESULT}]}}]
                    )
                },
            ),
            ("gen_ai.choice", {"finish_reason": "end_turn", "message": '[{"text": "It has shipped."}]'}),
        ),
    ),
    "redacted events": (
        CHAT,
        (
            ("gen_ai.system.message", {"content": marker("Be kind.")}),
            ("gen_ai.user.message", {"content": marker("Order 42?"), "role": marker("user")}),
            ("gen_ai.assistant.message", {"tool_calls": marker(json.dumps([OPENAI_CALL]))}),
            ("gen_ai.tool.message", {"content": marker(RESULT), "id": marker("call_0")}),
            ("gen_ai.choice", {"message": marker('[{"text": "It has shipped."}]')}),
        ),
    ),
    "pydantic-ai events": (
        {
            **CHAT,
            "events": json.dumps(
                [
                    {"event.name": "gen_ai.system.message", "role": "system", "content": "Be kind."},
                    {"event.name": "gen_ai.user.message", "role": "user", "content": "Order 42?"},
                    {"event.name": "gen_ai.assistant.message", "role": "assistant", "tool_calls": [OPENAI_CALL]},
                    {"event.name": "gen_ai.tool.message", "role": "tool", "id": "call_0", "content": RESULT},
                    {
                        "event.name": "gen_ai.choice",
                        "message": {"role": "assistant", "content": [{"kind": "text", "text": "It has shipped."}]},
                    },
                ]
            ),
        },
        (),
    ),
    "openinference from one": (
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages.1.message.role": "system",
            "llm.input_messages.1.message.content": "Be kind.",
            "llm.input_messages.2.message.role": marker("user"),
            "llm.input_messages.2.message.contents.0.message_content.text": "Order 42?",
            "llm.input_messages.3.message.role": "assistant",
            "llm.input_messages.3.message.tool_calls.0.tool_call.id": marker("call_0"),
            "llm.input_messages.3.message.tool_calls.0.tool_call.function.name": "look",
            "llm.input_messages.3.message.tool_calls.0.tool_call.function.arguments": ARGUMENTS,
            "llm.input_messages.10.message.role": "tool",
            "llm.input_messages.10.message.content": "{'status': 'shipped'}",
            "llm.input_messages.10.message.tool_call_id": "call_0",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "It has shipped.",
        },
        (),
    ),
    "numbered prompts": (
        {
            "llm.request.type": "chat",
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "Be kind.",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": "Order 42?",
            "gen_ai.prompt.2.role": "assistant",
            "gen_ai.prompt.2.tool_calls.0.id": "call_0",
            "gen_ai.prompt.2.tool_calls.0.name": "look",
            "gen_ai.prompt.2.tool_calls.0.arguments": ARGUMENTS,
            "gen_ai.prompt.3.role": "tool",
            "gen_ai.prompt.3.content": RESULT,
            "gen_ai.prompt.3.tool_call_id": "call_0",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "It has shipped.",
        },
        (),
    ),
    "vercel": (
        {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.prompt.messages": json.dumps(
                [
                    {"role": "system", "content": "Be kind."},
                    {"role": "user", "content": [{"type": "text", "text": "Order 42?"}]},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "tool-call", "toolCallId": "call_0", "toolName": "look", "input": ARGUMENTS}
                        ],
                    },
                    {
                        "role": "tool",
                        "content": [
                            {
                                "type": "tool-result",
                                "toolCallId": "call_0",
                                "toolName": "look",
                                "output": {"type": "json", "value": {"status": "shipped"}},
                            }
                        ],
                    },
                ]
            ),
            "ai.response.text": "It has shipped.",
        },
        (),
    ),
    "openai shape": (
        {
            **CHAT,
            "gen_ai.input.messages": json.dumps(
                [
                    {"role": "developer", "content": "Be kind."},
                    {"role": "user", "content": "Order 42?"},
                    {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
                    {"role": "tool", "tool_call_id": "call_0", "content": RESULT},
                ]
            ),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "It has shipped."}]),
        },
        (),
    ),
    "responses items": (
        {
            **CHAT,
            "gen_ai.system_instructions": "Be kind.",
            "gen_ai.input.messages": json.dumps(
                [
                    {"role": "user", "content": "Order 42?"},
                    {
                        "type": "function_call",
                        "id": "fc_0",
                        "call_id": "call_0",
                        "name": "look",
                        "arguments": ARGUMENTS,
                    },
                    {"type": "function_call_output", "call_id": "call_0", "output": RESULT},
                ]
            ),
            "gen_ai.output.messages": json.dumps(
                [{"role": "assistant", "content": [{"type": "output_text", "text": "It has shipped."}]}]
            ),
        },
        (),
    ),
    "gemini parts": (
        {
            **CHAT,
            "gen_ai.system_instructions": "Be kind.",
            "gen_ai.input.messages": json.dumps(
                [
                    {"role": "user", "parts": [{"text": "Order 42?"}]},
                    {
                        "role": "model",
                        "parts": [{"function_call": {"id": "call_0", "name": "look", "args": {"order_id": "42"}}}],
                    },
                    {
                        "role": "user",
                        "parts": [
                            {
                                "function_response": {
                                    "id": "call_0",
                                    "name": "look",
                                    "response": {"status": "shipped"},
                                }
                            }
                        ],
                    },
                ]
            ),
            "gen_ai.output.messages": '[{"role": "model", "parts": [{"text": "It has shipped."}]}]',
        },
        (),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_messages_are_read_in_every_shape_they_are_written_in(shape):
    attributes, events = SHAPES[shape]
    content = told(span(attributes, events=events)).content
    rows = [row for row in content if row["span_id"] == f"{1:016x}"]
    assert [(row["role"], row["type"], row["call_id"], row["value"]) for row in rows] == SAID


def test_what_somebody_said_stays_text_even_when_it_is_json():
    reply = [{"role": "assistant", "parts": [{"type": "text", "content": '{"answer": 42}'}]}]
    (row,) = told(span({**CHAT, "gen_ai.output.messages": json.dumps(reply)})).content
    assert row["value"] == '{"answer": 42}'


def test_messages_of_chains_and_agents_are_not_told_again():
    attributes = {"openinference.span.kind": "CHAIN", "llm.input_messages.0.message.content": "hello"}
    assert told(span(attributes)).content == []


def test_the_messages_of_a_call_told_by_two_instrumentors_are_told_once():
    output = {**CHAT, "gen_ai.output.messages": json.dumps(REPLY)}
    rows = told(span(output), span(output, number=2, parent=1)).content
    assert [row["value"] for row in rows] == ["It has shipped."]


def test_the_whole_messages_before_a_cut_keep_their_calls_and_the_rest_is_shown_as_cut():
    history = json.dumps([*PARTS, {"role": "user", "parts": [{"type": "text", "content": "x" * 900}]}])
    mapped = map_spans([span({**CHAT, "gen_ai.input.messages": marker(history, kept=512)})])
    kinds = [message.kind for message in mapped[0].reading.messages]
    assert kinds == ["tool_arguments", "tool_result", "message"]
    row = answer("acme", "conv", mapped)["content"][-1]
    assert (row["role"], row["cut"], row["value"]) == ("user", True, history[:512])


# calls that no span tells of


def asking(*calls: tuple[str | None, str], **more: Any) -> dict[str, Any]:
    """Write a model's output that asks for calls: id and name."""
    parts = [{"type": "tool_call", "id": call_id, "name": name, "arguments": {"n": name}} for call_id, name in calls]
    return {**CHAT, "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]), **more}


def hearing(*results: tuple[str, str]) -> dict[str, Any]:
    """Write a model's input that brings results: id and text."""
    parts = [{"type": "tool_call_response", "id": call_id, "response": text} for call_id, text in results]
    return {**CHAT, "gen_ai.input.messages": json.dumps([{"role": "tool", "parts": parts}])}


def unseen(*spans: Span) -> list[tuple[str, str | None, Any, Any]]:
    transcript = told(*spans)
    sources = {row["span_id"]: row["source"] for row in transcript.spans}
    calls = [call for call in transcript.tool_calls if sources[call.span_id] == "model_output"]
    return [(call.name, call.call_id, call.args, call.result) for call in calls]


def test_a_call_without_a_span_is_told_with_the_result_that_the_next_input_brings():
    asked = span(asking(("c1", "look"), ("c2", "pay")))
    heard = span(hearing(("c1", "shipped"), ("c2", "Error: no such order")), number=2)
    assert unseen(asked, heard) == [
        ("look", "c1", {"n": "look"}, "shipped"),
        ("pay", "c2", {"n": "pay"}, "Error: no such order"),
    ]
    look, pay = told(asked, heard).tool_calls
    assert (look.success, look.soft_error, pay.soft_error) == (None, False, True)
    assert look.outcome_unknown
    assert unresolved_calls(map_spans([asked, heard])) == []


def test_a_call_that_hangs_is_told_without_a_result():
    spans = [span(asking(("c1", "look")))]
    assert unseen(*spans) == [("look", "c1", {"n": "look"}, None)]
    assert unresolved_calls(map_spans(spans)) == ["look"]


def tool(name: str, number: int, call_id: str = "") -> Span:
    return span({**TOOL, "gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id}, number=number)


@pytest.mark.parametrize(
    ("tools", "missing"),
    [
        ([tool("pay", 2, "c1"), tool("pay", 3, "c2")], []),
        ([tool("pay", 2), tool("pay", 3)], []),
        ([tool("pay", 2, "fc_1"), tool("pay", 3, "fc_2")], []),
        ([tool("pay", 2, "c2")], ["c1"]),
        ([tool("pay", 2)], ["c2"]),
        ([tool("look", 2)], ["c1", "c2"]),
    ],
    ids=["by id", "by name", "by name, other ids", "one by id", "first by name", "another tool"],
)
def test_calls_are_matched_to_spans_by_id_and_else_by_name_in_order(tools, missing):
    found = unseen(span(asking(("c1", "pay"), ("c2", "pay"))), *tools)
    assert [call_id for _, call_id, _, _ in found] == missing


def test_a_call_that_two_instrumentors_tell_of_is_told_once():
    spans = [span(asking(("c1", "pay"))), span(asking(("c1", "pay")), number=2, parent=1)]
    assert len(unseen(*spans)) == 1
    without_ids = [span(asking((None, "pay"))), span(asking((None, "pay")), number=2, parent=1)]
    assert len(unseen(*without_ids)) == 1


def test_a_call_whose_id_only_a_later_input_has_gets_it_and_its_result():
    litellm = {
        **CHAT,
        "gen_ai.response.finish_reasons": '["tool_calls"]',
        "gen_ai.output.messages": '[{"role": "assistant", "parts": [], "finish_reason": "tool_calls"}]',
        "gen_ai.input.messages": json.dumps(PARTS[:1]),
        "gen_ai.completion.0.function_call.name": "look",
        "gen_ai.completion.0.function_call.arguments": ARGUMENTS,
    }
    spans = [span(litellm), span({**CHAT, "gen_ai.input.messages": json.dumps(PARTS)}, number=2)]
    assert unseen(*spans) == [("look", "call_0", {"order_id": "42"}, {"status": "shipped"})]
    assert unresolved_calls(map_spans(spans)) == []


@pytest.mark.parametrize("name", ["final_answer", "final_result"])
def test_an_answer_in_the_form_of_a_call_is_a_message_and_no_call(name):
    spans = [span(asking(("c1", name), **{"gen_ai.response.finish_reasons": ["tool_calls"]}))]
    assert unseen(*spans) == []
    assert unresolved_calls(map_spans(spans)) == []
    assert not tools_unobservable(map_spans(spans))
    (row,) = told(*spans).content
    assert (row["role"], row["type"], row["value"]) == ("assistant", "message", {"n": name})


@pytest.mark.parametrize(
    ("spans", "silent"),
    [
        ([span({**CHAT, "gen_ai.response.finish_reasons": ["tool_calls"]})], True),
        ([span({**CHAT, "gen_ai.response.finish_reasons": ["tool_calls"], "gen_ai.output.messages": dropped()})], True),
        ([span({**CHAT, "gen_ai.response.finish_reasons": ["stop"]})], False),
        ([span(asking(("c", "pay"), **{"gen_ai.response.finish_reasons": ["tool_calls"]}))], False),
        ([span({**CHAT, "gen_ai.response.finish_reasons": ["tool_calls"]}), tool("pay", 2)], False),
    ],
    ids=["no content", "withheld", "no tool asked for", "shown by content", "shown by a span"],
)
def test_tools_that_a_model_asked_for_and_nothing_shows_are_told_to_be_unobservable(spans, silent):
    assert tools_unobservable(map_spans(spans)) is silent


# runs


def test_messages_nested_in_messages_without_end_have_an_answer():
    deep = '{"parts": [' * 300 + "]}" * 300
    assert told(span({**CHAT, "gen_ai.input.messages": f"[{deep}]"})).content == []


def test_a_trace_that_is_one_long_chain_has_an_answer():
    links = [span(CHAT if n % 2 else {}, number=n, parent=n - 1 if n > 1 else None) for n in range(1, 5001)]
    links.append(span({**CHAT, **usage(3, 1)}, number=5001, parent=5000))
    assert told(*links).tokens() == (3, 1)


def test_the_head_of_a_run_may_have_its_parent_in_another_process():
    remote = Span(TRACE, f"{2:016x}", f"{8:016x}", "POST /chat", start_ns=5 * SECOND, flags=0x300)
    (run,) = told(span(CHAT, number=3, parent=9), remote).runs
    assert run["head_span_id"] == f"{2:016x}"


def test_the_head_of_a_run_is_its_root_even_when_another_parent_is_missing():
    lost = span(CHAT, number=2, parent=9, start_s=0.5)
    (run,) = told(lost, span(AGENT, number=1)).runs
    assert run["head_span_id"] == f"{1:016x}"


@pytest.mark.parametrize("framework", [["strands"], {"name": "strands"}, True])
def test_a_framework_that_is_no_text_is_none(framework):
    odd = Span(TRACE, "a" * 16, None, "x", resource={"sonar.framework": framework})
    assert told(odd).runs[0]["framework"] is None
