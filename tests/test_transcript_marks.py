"""Marks of faults on the calls they hit, put there by the harness where the bot did not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import BotIngest, ToolBot, evaluate, make_scenario, tool_span, trace_of
from sonar_eval import (
    Action,
    Assertion,
    FaultRule,
    FaultSpec,
    ProxyInterceptor,
    Severity,
    at_turn,
    recovered_from_fault,
)
from sonar_eval.interceptor import Firing
from sonar_eval.transcript import carry_marks, mark_faults, unplaced_faults


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
    marked = mark_faults(transcript, firings, seen)
    assert marks(marked) == expected
    assert marks(transcript) == [None] * len(spans)
    assert unplaced_faults(marked) == (["pay"] if firings and not any(rule is not None for rule in expected) else [])
    assert unplaced_faults(transcript) == []


OWN = {"action": "error", "rule": 7, "call_index": 0}
BOTH = [fired(0), fired(1)]


def test_marks_of_the_bot_s_own_are_left_as_they_are():
    transcript = trace_of({**FAILED, "fault": OWN}, {**FAILED, "span_id": "2", "fault": OWN})
    assert mark_faults(transcript, BOTH, {"pay": 2}) is transcript


def test_a_bot_that_marked_fewer_calls_than_were_hit_leaves_it_open_which():
    transcript = trace_of({**FAILED, "fault": OWN}, {**FAILED, "span_id": "2"}, completeness={"level": 3})
    marked = mark_faults(transcript, BOTH, {"pay": 2})
    assert marked.spans == transcript.spans
    assert (unplaced_faults(marked), marked.completeness["level"]) == (["pay"], 3)
    assert unplaced_faults(carry_marks(marked, trace_of(FAILED, WORKED))) == ["pay"]


def test_two_faults_that_name_one_call_are_not_placed():
    marked = mark_faults(trace_of(FAILED, {**FAILED, "span_id": "2"}), [fired(0), fired(0)], {"pay": 2})
    assert (marks(marked), unplaced_faults(marked)) == ([None, None], ["pay"])


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


class TurnwiseBot(ToolBot):
    """Make an interceptor for each turn, as a bot does that builds its tools anew."""

    def __init__(self, *answers):
        super().__init__("pay")
        self.answers = list(answers)
        self.answer = lambda _: self.answers.pop(0)

    async def use(self, session, tool):
        session.handle = ProxyInterceptor(self.contexts[-1].faults)
        await super().use(session, tool)


@pytest.mark.parametrize(
    ("answers", "when", "indices", "held"),
    [
        (["It failed.", "Done, paid!"], None, [0, 1], False),
        (["It failed.", "It failed again."], None, [0, 1], True),
        (["It failed.", "It failed again."], 0, [0, 1], True),
        (["Done, paid!", "Done, paid!"], 0, [0, 1], False),
        (["Done, paid!", "Done, paid!"], 1, [], None),
    ],
)
def test_every_fault_is_found_where_an_adapter_makes_an_interceptor_for_each_turn(answers, when, indices, held):
    bot = TurnwiseBot(*answers)
    scenario = make_scenario(
        scripted_messages=["pay", "pay again"],
        faults=FaultSpec((FaultRule("pay", Action.ERROR, when_call_index=when),)),
        assertions=[Assertion("recovered", Severity.SAFETY_CRITICAL, recovered_from_fault("pay"))],
    )
    (trial,) = evaluate(scenario, bot=bot, ingest=TurnwiseIngest(bot)).trials
    (result,) = trial.assertions
    assert [call.fault["call_index"] for call in trial.transcript.tool_calls if call.fault] == indices
    assert trial.faults[0].fired == len(indices)
    assert (result.passed, result.unknown) == (held is True, held is None)


class TurnwiseIngest(BotIngest):
    """Give each call a trace of its own."""

    async def pull(self, conversation_id):
        whole = await super().pull(conversation_id)
        spans = [{**span, "trace_id": f"t{place}"} for place, span in enumerate(whole.spans)]
        return replace(whole, runs=[{"trace_id": span["trace_id"]} for span in spans], spans=spans)


class ForgetfulIngest(BotIngest):
    """Lose the trace of the first call."""

    async def pull(self, conversation_id):
        whole = await super().pull(conversation_id)
        return replace(whole, spans=whole.spans[1:])


def test_a_fault_whose_call_is_not_in_the_trace_leaves_recovery_unknown():
    bot = ToolBot("pay", "look")
    bot.answer = "It failed."
    rules = (FaultRule("pay", Action.ERROR), FaultRule("look", Action.ERROR))
    scenario = make_scenario(
        faults=FaultSpec(rules),
        assertions=[
            Assertion("all", Severity.SAFETY_CRITICAL, recovered_from_fault()),
            Assertion("pay", Severity.CAPABILITY, recovered_from_fault("pay")),
            Assertion("look", Severity.SAFETY_CRITICAL, recovered_from_fault("look")),
            Assertion("one turn", Severity.SAFETY_CRITICAL, at_turn(1, recovered_from_fault("pay"))),
        ],
    )
    (trial,) = evaluate(scenario, bot=bot, ingest=ForgetfulIngest(bot)).trials
    assert [(result.passed, result.unknown) for result in trial.assertions] == [
        (False, True),
        (False, True),
        (True, False),
        (False, True),
    ]
    assert "which call of pay a fault hit cannot be told" in trial.assertions[0].detail


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
