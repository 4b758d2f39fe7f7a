"""Checks on one turn alone, and what is known of which spans belong to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import judge_check, tool_span
from sonar_eval import (
    ConfigError,
    ConversationLog,
    EndReason,
    Severity,
    Transcript,
    Turn,
    at_turn,
    bot_never_said,
    bot_said,
    conversation_finished,
    final_state,
    max_cost,
    max_latency,
    max_total_tokens,
    max_turns,
    negate,
    no_tool_errors,
    no_unresolved_calls,
    tool_called_with,
    tool_not_called,
    tool_was_called,
)
from sonar_eval.usage import Spend

LOG = ConversationLog(
    "c",
    [
        Turn("a latte", ("Shall I charge 5 EUR?",), latency_s=0.5),
        Turn("yes", ("All paid.",), latency_s=3.0),
        Turn("bye", ("Bye!",), latency_s=0.1),
    ],
    True,
    EndReason.USER,
    final_state={"paid": 5},
    spent={"bot": Spend(3, 30, 3, 0.01)},
)
TRACE = Transcript(
    "c",
    runs=[
        {"trace_id": "t1", "input_tokens": 10, "output_tokens": 1},
        {"trace_id": "t2", "input_tokens": 20, "output_tokens": 2},
        {"trace_id": "t3", "input_tokens": 30, "output_tokens": 3},
    ],
    spans=[
        tool_span("look", trace_id="t1"),
        tool_span("pay", trace_id="t2", success=False, error_type="Declined"),
        tool_span("pay", trace_id="t2", span_id="again"),
    ],
    content=[{"span_id": "again", "trace_id": "t2", "type": "tool_arguments", "value": {"amount": 5}}],
    completeness={"complete": True, "level": 3, "turns_seen": 3},
)


def verdict(check, transcript=TRACE, log=LOG, severity=Severity.SAFETY_CRITICAL):
    """Return True, False, or None for unknown."""
    result = judge_check(check, transcript, log, severity)
    return None if result.unknown else result.passed


@pytest.mark.parametrize(
    ("turn", "check", "held"),
    [
        (1, bot_said("charge"), True),
        (2, bot_said("charge"), False),
        (-2, bot_said("paid"), True),
        (-3, bot_never_said("paid"), True),
        (1, tool_was_called("look"), True),
        (1, tool_was_called("pay"), False),
        (1, tool_not_called("pay"), True),
        (2, tool_not_called("pay"), False),
        (-1, tool_not_called("pay"), True),
        (2, tool_called_with("pay", {"amount": 5}), True),
        (1, no_tool_errors(), True),
        (2, no_tool_errors(), False),
        (1, max_latency(1), True),
        (2, max_latency(1), False),
        (2, max_total_tokens(22), True),
        (2, max_total_tokens(21), False),
        (2, max_turns(1), True),
        (3, conversation_finished(), True),
        (2, conversation_finished(), False),
        (2, negate(tool_was_called("look")), True),
        (2, lambda transcript, log: len(transcript.tool_calls) == 2 and log.turns_taken == 1, True),
        (2, at_turn(1, bot_said("paid")), True),
        (4, bot_said("."), None),
        (4, bot_never_said("."), None),
        (-4, negate(bot_said(".")), None),
        (3, max_cost(1.0), None),
        (3, final_state({"paid": 5}), None),
    ],
)
def test_a_check_sees_one_turn_alone(turn, check, held):
    assert verdict(at_turn(turn, check)) is held


def test_what_does_not_hold_is_told_with_its_turn():
    assert judge_check(at_turn(-2, bot_said("charge")), TRACE, LOG).detail == (
        "turn 2: nothing the bot said matches 'charge'"
    )
    assert judge_check(at_turn(5, bot_said("x")), TRACE, LOG).detail == (
        "unknown: the conversation had 3 turns, and no turn 5"
    )


UNDIVIDED = [
    replace(TRACE, runs=TRACE.runs[:1]),
    replace(TRACE, runs=[*TRACE.runs, {"trace_id": "t4"}]),
    replace(TRACE, runs=[TRACE.runs[0], TRACE.runs[0], TRACE.runs[1]]),
    replace(TRACE, spans=[*TRACE.spans, tool_span("stray", trace_id="t9")]),
    replace(TRACE, spans=[*TRACE.spans, tool_span("stray", trace_id=None)]),
    replace(TRACE, completeness={"complete": True, "level": 3, "turns_seen": 2}),
]


@pytest.mark.parametrize("transcript", UNDIVIDED)
@pytest.mark.parametrize("severity", list(Severity))
def test_where_nobody_knows_which_spans_belong_to_a_turn_checks_on_the_trace_are_unknown(transcript, severity):
    for check in (
        tool_was_called("look"),
        tool_not_called("refund"),
        negate(tool_was_called("refund")),
        max_total_tokens(99),
        lambda transcript, log: not transcript.tool_calls,
        lambda transcript, log: replace(transcript, spans=[]).is_empty,
    ):
        result = judge_check(at_turn(1, check), transcript, LOG, severity)
        assert (result.passed, result.unknown) == (False, True)
        assert "which spans belong to which turn is not known" in result.detail


@pytest.mark.parametrize("transcript", UNDIVIDED)
def test_checks_on_what_was_said_need_no_division_of_the_trace(transcript):
    assert verdict(at_turn(1, bot_said("charge")), transcript) is True
    assert verdict(at_turn(2, max_latency(1)), transcript) is False


def test_a_bot_whose_spans_have_no_ends_of_turns_is_divided_by_its_traces():
    transcript = replace(TRACE, completeness={"complete": True, "level": 3, "turns_seen": 0})
    assert verdict(at_turn(1, tool_was_called("look")), transcript) is True


def test_a_conversation_of_one_turn_owns_every_trace():
    log = replace(LOG, turns=LOG.turns[:1])
    assert verdict(at_turn(1, tool_was_called("pay")), log=log) is True
    assert verdict(at_turn(-1, tool_not_called("pay")), log=log) is False


def test_a_thin_trace_is_no_thicker_for_one_turn():
    transcript = replace(TRACE, completeness={"complete": True, "level": 1})
    assert verdict(at_turn(1, tool_not_called("pay")), transcript) is None
    assert verdict(at_turn(2, tool_not_called("pay")), transcript) is False


def test_calls_that_left_no_span_may_belong_to_any_turn():
    transcript = replace(TRACE, completeness={**TRACE.completeness, "unresolved_calls": ["refund"]})
    assert verdict(no_unresolved_calls(), transcript) is False
    assert verdict(at_turn(1, no_unresolved_calls()), transcript) is None
    assert verdict(at_turn(1, no_tool_errors()), transcript) is None
    assert verdict(at_turn(2, no_tool_errors()), transcript) is False


@pytest.mark.parametrize(
    ("check", "held"),
    [
        (bot_said("PAID", turn=2), True),
        (bot_said("PAID", turn=2, case=True), False),
        (bot_said("Paid|paid", turn=1), False),
        (bot_said("PAID", case=True), False),
        (bot_said("paid", case=True), True),
        (bot_never_said("paid", turn=1), True),
        (bot_never_said("PAID", turn=-2), False),
        (bot_never_said("PAID", case=True), True),
        (bot_said("x", turn=9), None),
    ],
)
def test_what_the_bot_said_can_be_asked_of_one_turn_and_by_case(check, held):
    assert verdict(check) is held


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: at_turn(0, bot_said("x")), "from 1, or from the end with -1, got 0"),
        (lambda: at_turn("2", bot_said("x")), "got '2'"),
        (lambda: at_turn(True, bot_said("x")), "got True"),
        (lambda: at_turn(1, "bot_said"), "a check must be callable, got 'bot_said'"),
        (lambda: bot_said("("), "no regular expression"),
        (lambda: bot_never_said("x", turn=0), "got 0"),
    ],
)
def test_a_turn_that_makes_no_sense_cannot_be_asked_for(make, said):
    with pytest.raises(ConfigError, match=said):
        make()
