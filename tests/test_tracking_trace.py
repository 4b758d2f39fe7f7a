"""A trial's record drawn as a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import errored_trial, judged_trial, tool_span
from sonar_eval import (
    AssertionResult,
    ConversationLog,
    EndReason,
    Form,
    FormField,
    FormSubmission,
    GraderResult,
    Outcome,
    Owner,
    Severity,
    Transcript,
    TrialFailure,
    Turn,
)
from sonar_eval.records import trial_record
from sonar_eval.tracking.assessment import assess
from sonar_eval.tracking.trace import ended_ms, trial_traces
from sonar_eval.verdict import CriterionResult, CriterionVerdict

CHOICES = {"model": "m", "prompt": "p", "scenario": "refund", "fault": "outage"}
AGENT, CHAT, TOOL, LATER = "00000000000000a1", "00000000000000a2", "00000000000000a3", "00000000000000a4"
FIRST, SECOND = "1" * 32, "2" * 32


def at(second):
    return f"2026-11-03T10:00:{second:09.6f}+00:00"


def row(kind, span_id, trace_id, start, seconds, parent=None, **more):
    place = {"trace_id": trace_id, "parent_span_id": parent, "started_at": at(start), "duration_ms": seconds * 1000}
    return {**tool_span(more.pop("tool", ""), span_id=span_id), "kind": kind, "name": kind, **place, **more}


def text(span_id, trace_id, role, kind, value, **more):
    return {"span_id": span_id, "trace_id": trace_id, "role": role, "type": kind, "value": value, **more}


FAILED = {"tool_success": False, "error_type": "Down", "error_message": "off"}
TRANSCRIPT = Transcript(
    "c0",
    [
        {"trace_id": SECOND, "head_span_id": LATER, "started_at": at(5), "input_tokens": None, "output_tokens": None},
        {"trace_id": FIRST, "head_span_id": AGENT, "started_at": at(1), "input_tokens": 30, "output_tokens": 12},
    ],
    [
        row("agent", AGENT, FIRST, 1, 2),
        row("llm", CHAT, FIRST, 1.1, 0.5, AGENT),
        row("tool", TOOL, FIRST, 1.7, 0.25, AGENT, tool="pay", **FAILED),
        row("agent", LATER, SECOND, 5, 1),
    ],
    [
        text(CHAT, FIRST, "system", "message", "Be kind."),
        text(CHAT, FIRST, "user", "message", "hello"),
        text(CHAT, FIRST, "assistant", "tool_arguments", {"amount": 3}, name="pay", call_id="k1"),
        text(TOOL, FIRST, "tool", "tool_arguments", {"amount": 3}),
        text(TOOL, FIRST, "tool", "tool_result", {"error": "off"}),
    ],
)  # fmt: skip
LOG = ConversationLog(
    "c0",
    [Turn("hello", ("Sorry.", "Again?"), latency_s=2.0), Turn("bye", ("Bye!",), latency_s=1.0)],
    True,
    EndReason.USER,
)


def record(trial=None, **changes):
    ordinary = replace(judged_trial(0, True, False), log=LOG, transcript=TRANSCRIPT, started_at=at(0), duration_s=7.0)
    return {**trial_record("refund", trial or ordinary), **changes}


def drawn(found=None, **how):
    (trace,) = trial_traces(found or record(), CHOICES, "run", **how)
    return trace, {span.name: span for span in trace.spans}


def test_a_trial_is_one_trace_of_its_conversation_its_turns_and_the_bots_own_spans():
    trace, _ = drawn()
    by_id = {span.span_id: span for span in trace.spans}
    tree = [(span.name, by_id[span.parent_id].name if span.parent_id else None) for span in trace.spans]
    assert tree == [
        ("conversation", None),
        ("turn 1", "conversation"),
        ("agent", "turn 1"),
        ("llm", "agent"),
        ("pay", "agent"),
        ("turn 2", "conversation"),
        ("agent", "turn 2"),
    ]
    assert [span.type for span in trace.spans] == ["AGENT", "CHAIN", "AGENT", "CHAT_MODEL", "TOOL", "CHAIN", "AGENT"]


def test_spans_keep_their_ids_and_times_and_tell_the_trace_they_came_from():
    trace, _ = drawn()
    spans = {span.span_id: span for span in trace.spans}
    assert {AGENT, CHAT, TOOL, LATER} <= set(spans)
    tool = spans[TOOL]
    assert (tool.end_ns - tool.start_ns, tool.start_ns % 10**10) == (250_000_000, 1_700_000_000)
    assert [spans[one].attributes["sonar.trace_id"] for one in (TOOL, LATER)] == [FIRST, SECOND]


def test_the_root_holds_the_whole_conversation_and_every_span_lies_within_it():
    trace, spans = drawn()
    root = spans["conversation"]
    said = [(message["role"], message["content"]) for message in root.inputs["messages"]]
    assert said == [("user", "hello"), ("assistant", "Sorry."), ("assistant", "Again?"), ("user", "bye")]
    assert root.outputs == {"messages": [{"role": "assistant", "content": "Bye!"}]}
    assert all(root.start_ns <= span.start_ns <= span.end_ns <= root.end_ns for span in trace.spans)
    assert trace.duration_ms == 7000


def test_calls_show_what_went_in_and_out_and_what_broke():
    _, spans = drawn()
    assert (spans["pay"].inputs, spans["pay"].outputs, spans["pay"].error) == (
        {"amount": 3},
        {"error": "off"},
        "Down: off",
    )
    chat = spans["llm"]
    assert [message["content"] for message in chat.inputs["messages"]] == ["Be kind.", "hello"]
    (call,) = chat.outputs["messages"][0]["tool_calls"]
    assert (call["id"], call["function"]) == ("k1", {"name": "pay", "arguments": '{"amount": 3}'})
    assert chat.error is None


def test_tokens_stand_at_the_head_of_the_trace_that_counted_them():
    trace, _ = drawn()
    usage = {span.span_id: span.attributes.get("mlflow.chat.tokenUsage") for span in trace.spans}
    assert usage[AGENT] == {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42}
    assert [one for one, counted in usage.items() if counted] == [AGENT]


def test_tokens_of_which_one_side_is_not_known_are_not_shown_as_a_usage():
    runs = [{**run, "output_tokens": None} for run in TRANSCRIPT.runs]
    trial = replace(judged_trial(0, True, False), log=LOG, transcript=replace(TRANSCRIPT, runs=runs))
    trace, _ = drawn(record(trial))
    assert not [span for span in trace.spans if "mlflow.chat.tokenUsage" in span.attributes]


def test_a_trace_is_found_by_what_it_was_a_trial_of():
    trace, _ = drawn(record(index=4))
    assert trace.request == "refund / outage / trial 5"
    assert trace.response == "Bye!"
    assert trace.conversation_id == trace.tags["conversation_id"] == "c0"
    assert (trace.tags["model"], trace.tags["trial"], trace.session) == ("m", "5", None)


def test_the_same_trial_has_the_same_trace_id_within_a_run_and_another_in_another():
    ids = [trial_traces(record(), CHOICES, run)[0].trace_id for run in ("one", "one", "two")]
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 32


def test_without_a_trace_per_turn_the_bots_spans_hang_below_the_conversation():
    transcript = replace(TRANSCRIPT, runs=TRANSCRIPT.runs[:1])
    trace, spans = drawn(record(replace(judged_trial(0, True), log=LOG, transcript=transcript, started_at=at(0))))
    by_id = {span.span_id: span for span in trace.spans}
    assert by_id[by_id[AGENT].parent_id].name == by_id[by_id[LATER].parent_id].name == "conversation"
    assert spans["turn 1"].start_ns < spans["turn 1"].end_ns <= spans["turn 2"].start_ns


@pytest.mark.parametrize("odd", ["", "zz", "0" * 16, CHAT.upper(), "1" * 15])
def test_an_id_that_is_none_is_replaced_and_children_still_find_their_parent(odd):
    spans = [{**TRANSCRIPT.spans[0], "span_id": odd}, {**TRANSCRIPT.spans[1], "parent_span_id": odd}]
    transcript = replace(TRANSCRIPT, spans=spans)
    trace, _ = drawn(record(replace(judged_trial(0, True), log=LOG, transcript=transcript)))
    by_id = {span.span_id: span for span in trace.spans}
    assert all(len(one) == 16 and int(one, 16) for one in by_id)
    assert by_id[by_id[CHAT].parent_id].name == "agent"


def test_two_spans_of_one_id_in_two_traces_stay_two_spans():
    spans = [TRANSCRIPT.spans[0], {**TRANSCRIPT.spans[3], "span_id": AGENT}]
    trace, _ = drawn(record(replace(judged_trial(0, True), log=LOG, transcript=replace(TRANSCRIPT, spans=spans))))
    assert len({span.span_id for span in trace.spans}) == len(trace.spans) == 5


def test_a_trial_that_failed_is_an_error_and_says_whose():
    trace, _ = drawn(trial_record("refund", errored_trial(0, Owner.INGEST)))
    assert trace.failed
    assert trace.tags["failed_by"] == "ingest"
    assert trace.response == "ok"
    silent = replace(errored_trial(0), log=ConversationLog("c0"))
    trace, spans = drawn(trial_record("refund", silent))
    assert trace.response == "(ingest failed in pull: no answer)"
    assert spans["conversation"].error == "ingest failed in pull: no answer"
    assert [span.name for span in trace.spans] == ["conversation"]


def test_an_assertion_that_did_not_hold_is_no_error():
    assert not drawn()[0].failed


def test_turns_can_be_traces_of_one_session_with_the_verdicts_at_the_first():
    traces = trial_traces(record(), CHOICES, "run", per_turn=True)
    assert [(trace.request, trace.response) for trace in traces] == [("hello", "Again?"), ("bye", "Bye!")]
    assert {trace.session for trace in traces} == {"c0"}
    assert len({trace.trace_id for trace in traces}) == 2
    assert [bool(trace.assessments) for trace in traces] == [True, False]
    assert [[span.parent_id is None for span in trace.spans].count(True) for trace in traces] == [1, 1]


def test_media_are_told_in_words():
    log = ConversationLog("c0", [Turn("The menu?", (), media=("menu.png",))])
    trace, spans = drawn(trial_record("s", replace(judged_trial(0, True), log=log)))
    said = spans["conversation"].inputs["messages"]
    assert trace.response == "[file or picture: menu.png]"
    assert [message["content"] for message in said] == ["The menu?"]


def test_forms_are_told_in_words():
    form = Form("address", fields=(FormField("street"), FormField("city")))
    turns = [Turn("hi", (), forms=(form,)), Turn("", ("Thanks",), FormSubmission("address", {"city": "Bern"}))]
    trial = replace(judged_trial(0, True), log=ConversationLog("c0", turns))
    said = drawn(trial_record("s", trial))[1]["conversation"].inputs["messages"]
    assert [message["content"] for message in said] == [
        "hi",
        "[form address: street, city]",
        '[form address: {"city": "Bern"}]',
    ]


def test_when_a_trial_ended_is_known_from_its_record():
    assert ended_ms(record()) - ended_ms(record(duration_s=None)) == 7000
    assert ended_ms(record(started_at=None)) is None


def found_in(trial, **changes):
    return {finding.name: finding for finding in assess({**trial_record("s", trial), **changes})}


def test_every_assertion_is_a_finding_with_its_reason():
    results = [
        AssertionResult("kept", Severity.CAPABILITY, True),
        AssertionResult("lost", Severity.SAFETY_CRITICAL, False, "it was not there"),
    ]
    found = found_in(replace(judged_trial(), assertions=results))
    assert (found["kept"].value, found["lost"].value, found["all_passed"].value) == (True, False, False)
    assert (found["lost"].rationale, found["lost"].notes["severity"]) == ("it was not there", "safety_critical")
    assert not any(finding.by_judge or finding.error for finding in found.values())


def test_what_is_unknown_is_neither_true_nor_false():
    found = found_in(replace(judged_trial(0, None)))
    assert (found["a0"].value, found["a0"].error[:7]) == (None, "unknown")
    found = found_in(errored_trial(0))
    assert (found["all_passed"].value, found["all_passed"].error) == (None, "errored, not counted. ingest: no answer")


def test_a_bot_failure_did_not_pass():
    failure = TrialFailure(Owner.BOT, "send", "Timeout", "too slow")
    found = found_in(replace(judged_trial(), outcome=Outcome.BOT_FAILURE, failure=failure))
    assert (found["all_passed"].value, found["all_passed"].rationale) == (False, "bot: too slow")


def test_the_judges_score_is_a_finding_of_the_judge():
    found = found_in(replace(judged_trial(), grader=GraderResult(0.75, "mostly", True), judge_asked=True))["judge"]
    assert (found.value, found.rationale, found.by_judge, found.notes["passed"]) == (0.75, "mostly", True, "true")


def test_a_judge_that_gave_no_verdict_gave_no_score():
    failure = TrialFailure(Owner.JUDGE, "grade", "E", "unreadable")
    found = found_in(replace(judged_trial(), judge_asked=True, grader_failure=failure))["judge"]
    assert (found.value, found.error) == (None, "no verdict: unreadable")
    assert "judge" not in found_in(judged_trial())


@pytest.mark.parametrize(
    ("verdict", "value", "error"),
    [("passed", True, None), ("failed", False, None), ("cannot_tell", None, "cannot tell: curt")],
)
def test_each_criterion_of_the_judge_is_a_finding(verdict, value, error):
    criteria = (CriterionResult("tone", CriterionVerdict(verdict), "curt"),)
    grader = GraderResult(1.0, "", True, criteria=criteria)
    found = found_in(replace(judged_trial(), grader=grader, judge_asked=True))["judge/tone"]
    assert (found.value, found.rationale, found.by_judge, found.error) == (value, "curt", True, error)


def test_two_assertions_of_one_name_are_two_findings():
    twice = [AssertionResult("a", Severity.CAPABILITY, held) for held in (True, False)]
    found = found_in(replace(judged_trial(), assertions=twice))
    assert (found["a"].value, found["a (2)"].value) == (True, False)


def test_findings_over_a_trace_that_changed_say_so():
    found = found_in(replace(judged_trial(0, True), changed_after_grading=True))
    assert {finding.notes.get("changed_after_grading") for finding in found.values()} == {"true"}
