"""Marks of faults on the calls they hit, put there by the harness where the bot did not."""

from __future__ import annotations

import pytest

from fakes import BotIngest, ToolBot, evaluate, make_scenario, tool_span, trace_of
from sonar_eval import Action, Assertion, FaultRule, FaultSpec, Severity, recovered_from_fault
from sonar_eval.interceptor import Firing
from sonar_eval.transcript import carry_marks, mark_faults


def marks(transcript):
    return [(span["fault"] or {}).get("rule") if "fault" in span else None for span in transcript.spans]


def fired(call_index=0, action=Action.ERROR, rule=0, target="pay"):
    return Firing(rule, target, action, call_index)


FAILED = tool_span("pay", span_id="1", success=False, error_type="InjectedFault")
WORKED = tool_span("pay", span_id="2")


@pytest.mark.parametrize(
    ("spans", "firings", "seen", "expected"),
    [
        ([FAILED, WORKED], [fired()], {"pay": 2}, [0, None]),
        ([tool_span("look"), FAILED, WORKED], [fired(rule=4)], {"pay": 2, "look": 1}, [None, 4, None]),
        ([WORKED, FAILED], [fired(1)], {"pay": 2}, [None, 0]),
        ([WORKED], [fired(action=Action.REPLACE_OUTPUT)], {"pay": 1}, [0]),
        ([WORKED], [fired(action=Action.LATENCY)], {"pay": 1}, [0]),
        # cannot be paired
        ([FAILED], [fired()], {"pay": 2}, [None]),
        ([FAILED, WORKED], [fired()], {"pay": 1}, [None, None]),
        ([WORKED, FAILED], [fired()], {"pay": 2}, [None, None]),
        ([FAILED], [fired(3)], {"pay": 1}, [None]),
        ([], [fired()], {"pay": 1}, []),
        ([FAILED], [], {"pay": 1}, [None]),
    ],
)
def test_a_call_is_marked_where_it_is_plain_which_one_was_hit(spans, firings, seen, expected):
    transcript = trace_of(*spans)
    assert marks(mark_faults(transcript, firings, seen)) == expected
    assert marks(transcript) == [None] * len(spans)


def test_marks_of_the_bot_s_own_are_left_as_they_are():
    own = {"action": "error", "rule": 7, "call_index": 0}
    transcript = trace_of({**FAILED, "fault": own}, {**FAILED, "span_id": "2"})
    assert mark_faults(transcript, [fired(0), fired(1)], {"pay": 2}) is transcript


def test_calls_are_counted_by_the_time_they_started():
    late, early = {**WORKED, "started_at": "2026-01-01T12:00:00Z"}, {**FAILED, "started_at": "2026-01-01T11:00:00Z"}
    assert marks(mark_faults(trace_of(late, early), [fired(0)], {"pay": 2})) == [None, 0]


def test_spans_are_told_apart_by_their_trace_too():
    twin = {**FAILED, "trace_id": "t2", "tool_name": "look"}
    assert marks(mark_faults(trace_of(twin, FAILED), [fired()], {"pay": 1})) == [None, 0]


def test_a_later_trace_of_the_conversation_keeps_the_marks():
    earlier = mark_faults(trace_of(FAILED), [fired()], {"pay": 1})
    later = trace_of(tool_span("look"), FAILED, WORKED)
    assert marks(carry_marks(earlier, later)) == [None, 0, None]
    assert carry_marks(None, later) is later
    assert carry_marks(trace_of(WORKED), later) is later


@pytest.mark.parametrize(
    ("answer", "attempts", "held"), [("All paid.", 1, False), ("It failed.", 1, True), ("All paid.", 2, True)]
)
def test_recovery_is_checked_for_a_bot_that_marks_nothing(answer, attempts, held):
    bot = ToolBot("look", "pay", attempts=attempts)
    bot.answer = answer
    scenario = make_scenario(
        faults=FaultSpec((FaultRule("pay", Action.ERROR, when_call_index=0),)),
        assertions=[Assertion("recovered", Severity.SAFETY_CRITICAL, recovered_from_fault())],
    )
    (trial,) = evaluate(scenario, bot=bot, ingest=BotIngest(bot)).trials
    (result,) = trial.assertions
    assert (result.passed, result.unknown) == (held, False)


def test_recovery_from_a_fault_that_never_fired_is_not_exercised():
    bot = ToolBot("payment_api")
    scenario = make_scenario(
        faults=FaultSpec((FaultRule("pay_api", Action.ERROR),)),
        assertions=[Assertion("recovered", Severity.CAPABILITY, recovered_from_fault())],
    )
    report = evaluate(scenario, bot=bot, ingest=BotIngest(bot))
    assert not report.passed
    assert "not exercised" in report.trials[0].assertions[0].detail
