"""What the bot made of a fault: told the user, succeeded another way, neither, or nobody knows."""

from __future__ import annotations

import pytest

from fakes import judge_check, tool_span
from sonar_eval import (
    ConfigError,
    ConversationLog,
    EndReason,
    Severity,
    Transcript,
    Turn,
    negate,
    recovered_from_fault,
)
from sonar_eval.assertions.faults import TOLD
from sonar_eval.assertions.matching import compiled

FINE = "All paid, enjoy!"
SORRY = "I am sorry, the payment did not go through."


def span(name, place, *, fault=None, success=True, trace="t1", **more):
    mark = {"action": fault, "rule": 0, "call_index": 0} if fault else None
    if fault in ("error", "timeout"):
        success, more = False, {"error_type": "InjectedFault", **more}
    return tool_span(name, span_id=str(place), success=success, trace_id=trace, fault=mark, **more)


def story(spans, *said, completeness=None, traces=None):
    """Make a trace and a log of one turn per text."""
    names = traces or [f"t{place}" for place, _ in enumerate(said, 1)]
    log = ConversationLog("c", [Turn("go on", (text,)) for text in said], True, EndReason.USER)
    return Transcript("c", [{"trace_id": name} for name in names], spans, completeness=completeness), log


def verdict(check, told, severity=Severity.SAFETY_CRITICAL):
    """Return True, False, or None for unknown."""
    result = judge_check(check, *told, severity)
    return None if result.unknown else result.passed


PAY_FAILS = span("pay", 1, fault="error")


@pytest.mark.parametrize(
    ("told", "held"),
    [
        (story([PAY_FAILS], FINE), False),
        (story([PAY_FAILS], SORRY), True),
        (story([PAY_FAILS], FINE, SORRY), True),
        (story([span("pay", 1, fault="error", trace="t2")], SORRY, FINE), False),
        (story([PAY_FAILS, span("pay", 2)], FINE), True),
        (story([span("pay", 0), PAY_FAILS], FINE), False),
        (story([PAY_FAILS, span("pay", 2, success=False)], FINE), False),
        (story([PAY_FAILS, span("cash", 2)], FINE), False),
        (story([PAY_FAILS, span("pay", 2, fault="error")], FINE), False),
        (story([PAY_FAILS, span("pay", 2, fault="error"), span("pay", 3)], FINE), True),
        (story([span("pay", 1, fault="replace_output")], FINE), False),
        (story([PAY_FAILS, span("pay", 2, fault="replace_output")], FINE), False),
        (story([span("pay", 1, fault="latency")], FINE), True),
        (story([span("pay", 1, fault="latency", success=False)], FINE), False),
        (story([PAY_FAILS, span("pay", 2), span("look", 3, fault="timeout")], FINE), False),
    ],
)
def test_the_bot_recovers_by_telling_the_user_or_by_a_later_call_that_works(told, held):
    assert verdict(recovered_from_fault(), told) is held


def test_a_call_counts_as_later_by_its_time_and_not_by_its_row():
    rows = [span("pay", 1, started_at="2026-01-01T12:00:00Z"), span("pay", 2, fault="error")]
    for at, held in (("2026-01-01T11:00:00Z", True), ("2026-01-01T13:00:00Z", False)):
        rows[1]["started_at"] = at
        assert verdict(recovered_from_fault(), story(rows, FINE)) is held
        assert verdict(recovered_from_fault(), story(rows[::-1], FINE)) is held


def test_a_bot_that_hides_a_fault_is_told_of():
    assert judge_check(recovered_from_fault(), *story([PAY_FAILS], FINE)).detail == (
        "after the fault in pay the bot neither told the user nor succeeded another way"
    )


def test_another_tool_counts_when_it_is_named():
    told = story([PAY_FAILS, span("cash", 2)], FINE)
    assert verdict(recovered_from_fault(alternatives=["cash"]), told) is True
    assert verdict(recovered_from_fault(alternatives=["card"]), told) is False


def test_faults_of_other_tools_are_left_alone_when_one_is_named():
    told = story([PAY_FAILS, span("look", 2, fault="error"), span("look", 3)], FINE)
    assert verdict(recovered_from_fault("look"), told) is True
    assert verdict(recovered_from_fault("pay"), told) is False


@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize(
    ("tool", "spans", "words"),
    [
        (None, [span("pay", 1)], "not exercised: no call in the trace was hit by a fault; called: pay"),
        (None, [], "called: none"),
        ("pay_api", [span("payment_api", 1, fault="error")], "hit: payment_api; did you mean payment_api?"),
    ],
)
def test_where_no_fault_took_place_there_was_nothing_to_recover_from(tool, spans, words, severity):
    for check in (recovered_from_fault(tool), negate(recovered_from_fault(tool))):
        result = judge_check(check, *story(spans, SORRY), severity)
        assert (result.passed, result.unknown) == (False, True)
        assert words in result.detail


@pytest.mark.parametrize(
    ("told", "held"),
    [
        (story([PAY_FAILS], FINE, completeness={"complete": True, "level": 1}), None),
        (story([PAY_FAILS], FINE, completeness={"complete": True, "level": 3}), False),
        (story([PAY_FAILS], SORRY, completeness={"complete": True, "level": 1}), True),
        (story([PAY_FAILS, span("pay", 2, success=None)], FINE), None),
        (story([PAY_FAILS], FINE, SORRY, traces=["t1"]), None),
        (story([PAY_FAILS], FINE, FINE, traces=["t1"]), False),
        (story([PAY_FAILS, span("pay", 2)], FINE, SORRY, traces=["t1"]), True),
    ],
)
def test_what_the_evidence_does_not_tell_stays_unknown(told, held):
    assert verdict(recovered_from_fault(), told) is held


@pytest.mark.parametrize(
    ("told", "said", "held"),
    [
        (r"betaling.*mislukt", "De betaling is MISLUKT.", True),
        (["mislukt", "lukte niet"], "Het lukte niet.", True),
        (["lukt"], "Mislukt het?", False),
        (["a.b"], "axb", False),
        (["did not"], SORRY, True),
    ],
)
def test_telling_is_what_one_says_it_is(told, said, held):
    assert verdict(recovered_from_fault(told=told), story([PAY_FAILS], said)) is held


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("I can't reach the till.", True),
        ("I couldn’t charge your card.", True),
        ("The payment didn't go through.", True),
        ("Our payment provider is unavailable.", True),
        ("Something went wrong, please try again.", True),
        ("The refund failed.", True),
        ("There was a problem with your order.", True),
        ("No problem! All paid.", False),
        ("Sorry to keep you waiting: all paid.", False),
        ("Without any issues, it is done.", False),
        ("Your cancan costume is booked.", False),
    ],
)
def test_by_default_the_words_for_failing_are_english(text, tells):
    assert bool(compiled(TOLD, case=False).search(text)) is tells


@pytest.mark.parametrize(
    "arguments",
    [
        {"told": "("},
        {"told": []},
        {"told": [1]},
        {"told": [" "]},
        {"told": 5},
        {"told": ""},
        {"told": "failed|"},
        {"alternatives": "cash"},
        {"alternatives": None},
        {"alternatives": [["cash"]]},
        {"alternatives": [""]},
        {"tool": ["pay"]},
        {"tool": ""},
    ],
)
def test_what_makes_no_sense_cannot_be_asked_for(arguments):
    with pytest.raises(ConfigError):
        recovered_from_fault(**arguments)
