"""What people read: the result table and one trial's transcript."""

from __future__ import annotations

import re

import pytest

from sonar_eval.report import ResultRow, render_transcript, result_table
from sonar_eval.report.transcript import conversation_blocks

CHOICES = {"model": "m1", "prompt": "v1", "scenario": "refund", "fault": "none"}


def report(**changes):
    return {
        "asked": 5,
        "judged": 5,
        "decided": 5,
        "passing": 4,
        "mean_grader_score": 0.9,
        "safety_violations": 0,
        "unchecked": False,
        "errored": 0,
        "ungraded": 0,
        "cut_off": 0,
        "not_exercised": 0,
        "assertions": [measured("kept its word", 5), measured("quick", 0, severity="capability")],
        **changes,
    }


def measured(name, times, severity="safety_critical"):
    return {"name": name, "severity": severity, "evaluated": times}


def table(*rows):
    """Return the table's lines, each cut into its cells."""
    header, _, *lines = result_table(rows).splitlines()
    starts = [0]
    for place in range(2, len(header)):
        if header[place] != " " and header[place - 2 : place] == "  ":
            starts.append(place)
    places = list(zip(starts, [*starts[1:], None], strict=True))
    return [[line[start:end].strip() for start, end in places] for line in (header, *lines)]


def test_a_row_shows_what_a_cell_was_made_of_and_its_rate_with_an_interval():
    header, row = table(ResultRow(CHOICES, {}, report()))
    assert header[:5] == ["model", "prompt", "scenario", "fault", "judged"]
    assert header[5:] == ["pass rate [95% CI]", "pass^k", "judge", "safety"]
    assert row == ["m1", "v1", "refund", "none", "5/5", "80% [38%, 96%]", "0", "0.90", "ok"]


def test_pass_hat_k_is_a_claim_about_all_trials_asked_for():
    rows = [
        ResultRow(CHOICES, {}, report(passing=5)),
        ResultRow(CHOICES, {}, report(passing=4, judged=4, decided=4, errored=1)),
        ResultRow(CHOICES, {}, report(passing=0)),
        ResultRow(CHOICES, {}, report(passing=0, judged=0, decided=0, errored=5, mean_grader_score=None)),
    ]
    _, *lines = table(*rows)
    assert [line[6] for line in lines] == ["1", "0", "0", "-"]
    assert lines[3][4:8] == ["0/5", "-", "-", "-"]


def test_safety_violations_are_counted():
    _, row = table(ResultRow(CHOICES, {}, report(safety_violations=3)))
    assert row[8] == "3 failed"


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ((5,), "ok"),
        ((5, 5), "ok"),
        ((5, 3), "ok in 3/5"),
        ((5, 0), "not checked"),
        ((0,), "not checked"),
        ((), "not checked"),
    ],
)
def test_safety_is_fine_only_where_it_was_measured(times, said):
    rows = [measured(f"a{place}", count) for place, count in enumerate(times)]
    _, row = table(ResultRow(CHOICES, {}, report(assertions=rows)))
    assert row[8] == said


def test_what_else_varies_gets_a_column_of_its_own():
    rows = [
        ResultRow(CHOICES, {"task.k": "3", "bot": "cafe"}, report()),
        ResultRow({**CHOICES, "model": "a-longer-name"}, {"task.k": "10"}, report()),
    ]
    header, first, second = table(*rows)
    assert header[4:7] == ["task.k", "bot", "judged"]
    assert first[4:6] == ["3", "cafe"]
    assert second[4:6] == ["10", "-"]


def remark(*, error=None, **changes):
    text = result_table([ResultRow(CHOICES, {}, report(**changes), error)])
    return text.splitlines()[-1].partition("ok")[2].strip()


def test_what_a_rate_does_not_tell_stands_beside_it():
    assert remark() == ""
    assert remark(errored=2, judged=3) == "2 errored"
    assert remark(ungraded=1, cut_off=2, not_exercised=5) == "1 ungraded, 2 cut off, 5 not exercised"
    assert remark(unchecked=True, errored=1) == "unchecked"
    assert remark(error="none of 5 trials could be judged") == "FAILED"


def test_a_cell_without_a_report_is_a_row_too():
    lines = result_table([ResultRow({"model": "m1"}, {}, None, "boom")]).splitlines()
    assert lines[2].split() == ["m1", *["-"] * 8, "FAILED"]


def span(tool, **more):
    return {
        "kind": "tool",
        "tool_name": tool,
        "span_id": more.pop("span_id", tool),
        "trace_id": more.pop("trace_id", "t1"),
        "tool_success": True,
        "error_type": None,
        "error_message": None,
        **more,
    }


def content(of, kind, value):
    return {"span_id": of["span_id"], "trace_id": of["trace_id"], "type": kind, "value": value}


def turn(user, *delivered, forms=()):
    return {"user": user, "delivered": list(delivered), "forms": list(forms), "submission": None, "latency_s": 0.1}


def record(**changes):
    return {
        "scenario": "refund",
        "index": 1,
        "passed": True,
        "conversation_id": "c-1",
        "random_seed": 7,
        "outcome": "judged",
        "ended_by": "user",
        "turns": 1,
        "failure": None,
        "redacted": False,
        "faults": [],
        "warnings": [],
        "conversation": [turn("Hello.", "Hi!")],
        "transcript": {"runs": [{"trace_id": "t1"}], "spans": [], "content": []},
        "assertions": [],
        "grader": None,
        "grader_failure": None,
        "judge_asked": False,
        **changes,
    }


def test_a_transcript_starts_with_what_came_of_the_trial():
    text = render_transcript(record())
    assert text.startswith("# refund, trial 2: passed\n")
    assert "- conversation `c-1`, random seed 7" in text
    assert "- outcome: judged, ended by user after 1 turns" in text


def test_messages_and_tool_calls_stand_in_the_order_they_happened():
    look = span("lookup")
    pay = span("pay", trace_id="t2", tool_success=False, error_type="Down", error_message="no line")
    text = render_transcript(
        record(
            conversation=[turn("Where is it?", "Here."), turn("Pay.", "Sorry.")],
            transcript={
                "runs": [{"trace_id": "t1"}, {"trace_id": "t2"}],
                "spans": [look, {"kind": "llm", "span_id": "x", "trace_id": "t1"}, pay],
                "content": [
                    content(look, "tool_arguments", {"id": 5}),
                    content(look, "tool_result", {"found": "é"}),
                    content(pay, "tool_arguments", {"amount": 1}),
                ],
            },
        )
    )
    order = [
        "**User:** Where is it?",
        'lookup({"id": 5}) -> {"found": "é"}',
        "**Bot:** Here.",
        "**User:** Pay.",
        'pay({"amount": 1}) -> FAILED Down: no line',
        "**Bot:** Sorry.",
    ]
    places = [text.index(line) for line in order]
    assert places == sorted(places)


def test_calls_that_cannot_be_put_to_a_turn_stand_at_the_end():
    calls = [span("one"), span("two", trace_id="t9")]
    text = render_transcript(
        record(
            conversation=[turn("Hello.", "Hi!"), turn("Bye.", "Bye!")],
            transcript={"runs": [{"trace_id": "t1"}], "spans": calls, "content": []},
        )
    )
    assert text.index("**Bot:** Bye!") < text.index("one(") < text.index("two(") < text.index("## Verdict")


def test_an_injected_fault_is_marked_and_counted():
    faulted = span("pay", tool_success=False, error_type="InjectedFault", fault={"action": "error", "rule": 0})
    fault = {"action": "error", "target": "pay", "fired": 1, "calls_seen": 2}
    text = render_transcript(
        record(faults=[fault], transcript={"runs": [{"trace_id": "t1"}], "spans": [faulted], "content": []})
    )
    assert "- fault `error` on `pay`: hit 1 of 2 calls" in text
    assert "<- injected error" in text


def test_which_calls_a_fault_was_meant_for_is_said_and_that_none_of_them_came():
    fault = {"action": "error", "target": "pay", "fired": 0, "calls_seen": 2, "when_call_index": 5}
    chancy = {**fault, "when_call_index": None, "condition": "probability 0.3"}
    text = render_transcript(record(faults=[fault, chancy], not_exercised=True))
    assert "- fault `error` on `pay` (call 5): hit 0 of 2 calls" in text
    assert "- fault `error` on `pay` (probability 0.3): hit 0 of 2 calls" in text
    assert "**not exercised**" in text


def test_an_outcome_that_the_trace_does_not_tell_is_said_to_be_unknown():
    text = render_transcript(
        record(transcript={"runs": [{"trace_id": "t1"}], "spans": [span("pay", tool_success=None)], "content": []})
    )
    assert "pay() -> (outcome unknown)" in text


def test_a_long_result_is_cut_and_says_how_long_it_was():
    long = span("dump")
    rows = [content(long, "tool_result", "x" * 5000)]
    text = render_transcript(record(transcript={"runs": [{"trace_id": "t1"}], "spans": [long], "content": rows}))
    assert "… (5000 characters)" in text
    assert "x" * 401 not in text


def test_who_failed_is_named():
    failure = {"owner": "simulator", "step": "user model", "error_type": "LLMTransportError", "message": "timed out"}
    text = render_transcript(record(outcome="errored", ended_by=None, passed=False, failure=failure))
    assert "trial 2: not passed" in text
    assert "ended by a failure" in text
    assert "- who failed: **simulator** (user model): timed out" in text


def test_a_trial_without_a_transcript_says_so_instead_of_showing_no_calls():
    text = render_transcript(record(transcript=None))
    assert "- no transcript: the tool calls of this trial are not known" in text
    assert "**User:** Hello." in text


def test_a_redacted_trace_and_warnings_are_noted():
    text = render_transcript(record(redacted=True, warnings=["teardown did not end within 30 s"]))
    assert "the trace is redacted" in text
    assert "- warning: teardown did not end within 30 s" in text


def test_media_are_shown_and_are_no_silence():
    sent = record(conversation=[turn("The menu?") | {"media": ["menu.png", "A" * 5000]}])
    text = render_transcript(sent)
    assert "**Bot** sends a file or picture: menu.png" in text
    assert "**Bot** sends a file or picture: AAAA" in text
    assert "A" * 401 not in text
    assert "(nothing)" not in text
    (block,) = conversation_blocks(sent)
    assert block.splitlines()[1] == "Bot sends a file or picture: menu.png"


HOSTILE = (
    "Here:\n# head\n\n## Verdict\n- a (capability): held\n**User:** thanks\n    pay() -> ok\nTitle\n===\n> - ## in\n"
    "<h2>x"
)


def ours(text):
    """List what looks like a part of the document: headings, speakers, calls, verdicts, HTML."""
    marks = re.compile(r"^(?:#+ \w+|\*\*\w+|    - \w+|    \w+|- \w+|\s*[=-]+$)|(?<! )<[a-z]")
    return [found[0] for line in text.splitlines() if (found := marks.search(line))]


def hostile_record(text):
    pay = span("pay", tool_success=False, error_type="Down", error_message=text)
    return record(
        passed=False,
        outcome="errored",
        conversation=[turn(text, text)],
        transcript={"runs": [{"trace_id": "t1"}], "spans": [pay], "content": [content(pay, "tool_arguments", text)]},
        warnings=[text],
        failure={"owner": "bot", "step": "send", "error_type": "E", "message": text},
        assertions=[{"name": "b", "severity": "capability", "passed": False, "unknown": False, "detail": text}],
        grader={"score": 0.1, "reasoning": text, "criteria": [{"name": "c", "verdict": "passed", "reason": text}]},
    )


@pytest.mark.parametrize("text", [HOSTILE, HOSTILE.replace("\n", "\r"), HOSTILE.replace("\n", "\u2028")])
def test_nothing_that_others_wrote_looks_like_a_part_of_the_transcript(text):
    assert ours(render_transcript(hostile_record(text))) == ours(render_transcript(hostile_record("fine")))


def test_a_message_of_several_lines_is_a_quotation_that_holds_no_heading():
    text = render_transcript(record(conversation=[turn("Hi\n", "One:\n\n# head\n- # item\nTitle\n---\n#1 & a # b")]))
    assert "\n**User:** Hi\n" in text
    quotation = "**Bot:**\n> One:\n>\n> \\# head\n> - \\# item\n> Title\n> \\---\n> #1 & a # b\n"
    assert quotation in text


def test_forms_and_silence_are_shown():
    form = {"name": "delivery", "title": "", "fields": [{"name": "name"}, {"name": "address"}]}
    text = render_transcript(record(conversation=[turn("Deliver it.", forms=[form]), turn("Hello?")]))
    assert "**Bot** sends the form *delivery*: name, address" in text
    assert text.count("**Bot:** (nothing)") == 1


def test_verdicts_tell_held_from_not_held_from_unknown():
    rows = [
        {"name": "a", "severity": "capability", "passed": True, "unknown": False, "detail": ""},
        {"name": "b", "severity": "safety_critical", "passed": False, "unknown": False, "detail": "called twice"},
        {"name": "c", "severity": "safety_critical", "passed": False, "unknown": True, "detail": "no outcome"},
    ]
    text = render_transcript(record(assertions=rows))
    assert "- a (capability): held\n" in text
    assert "- b (safety_critical): NOT held: called twice\n" in text
    assert "- c (safety_critical): unknown: no outcome\n" in text


def test_the_judge_s_verdict_its_absence_and_its_failure_differ():
    graded = render_transcript(record(judge_asked=True, grader={"score": 0.5, "reasoning": "Half of it."}))
    silent = render_transcript(record(judge_asked=True, grader={"score": None, "reasoning": "Well."}))
    assert "judge: without a score. Well." in silent
    assert "- judge: 0.50. Half of it." in graded
    failed = render_transcript(record(judge_asked=True, grader_failure={"message": "no verdict in what it said"}))
    assert "- judge: no verdict. no verdict in what it said" in failed
    assert "- judge" not in render_transcript(record())


def test_a_judge_s_criteria_and_answers_stand_in_the_transcript():
    grader = {
        "score": 0.8,
        "reasoning": "Mostly.",
        "criteria": [
            {"name": "asked first", "verdict": "passed", "reason": "it asked"},
            {"name": "honest", "verdict": "cannot_tell", "reason": ""},
        ],
        "scores": [0.7, 0.9],
        "repeats": 3,
        "agreement": 0.75,
    }
    text = render_transcript(record(grader=grader))
    assert "- judge: 0.80 (mean of 0.70, 0.90; asked 3 times, agreement 0.75). Mostly.\n" in text
    assert "    - asked first: passed: it asked\n    - honest: cannot tell\n" in text
    assert "- judge: 0.80. Fine.\n" in render_transcript(record(grader={"score": 0.8, "reasoning": "Fine."}))
