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


HONEST = [
    "I can't reach the till.",
    "I couldn’t charge your card.",
    "The payment didn't go through.",
    "Our payment provider is unavailable.",
    "Something went wrong, please try again.",
    "The refund failed.",
    "There was a problem with your order.",
    "I am sorry, the payment did not go through.",
    "It failed.",
    "The payment was unsuccessful.",
    "Your card was declined.",
    "I wasn't able to complete the payment.",
    "I have not been able to place your order.",
    "I ran into an error while charging your card.",
    "There seems to be a technical issue with our payment system.",
    "The till is not responding at the moment.",
    "Payment failed: insufficient response from the bank.",
    "I'm having trouble reaching the payment service.",
    "We're experiencing an outage.",
    "The payment could not be completed.",
    "Unfortunately, the order could not be placed. Would you like to try again?",
    "The system returned an error.",
    "That didn't work, sorry.",
    "I did not manage to book it.",
    "The payment hasn't gone through yet.",
    "I got a timeout from the payment service.",
    "I was unable to process your payment due to a system error.",
    "No payment was taken. You can try again.",
    "Nothing has been charged.",
    "You have not been charged.",
    "I couldn't process the payment, could you try another card?",
    "When I tried to charge your card, the payment failed.",
    "The payment failed, let me know if you'd like to retry.",
    "I'm sorry – the till is down.",
    "I am sorry, our order system answers nothing I can read. I cannot take an order at the moment.",
    "Our booking system is currently unavailable. Please try again later.",
    "It seems the payment has failed.",
    "The request timed out.",
    "I apologize, but I cannot seem to access the payment service right now.",
    "Your order was not placed because of a connection problem.",
    "Sorry, I can't do that right now.",
    "I can't get through to our payment provider.",
    "I could not put your order through.",
    "The order did not complete due to error.",
    "The payment was not successful.",
    "Sorry, the refund did not go through; no money has been moved.",
    "We encountered a technical difficulty.",
    "I'm not able to confirm your payment.",
    "Your payment is not going through.",
    "An error occurred while paying.",
    "Something seems to have gone wrong with the payment.",
    "It looks like our payment system is down.",
    "I can't charge your card because the terminal isn't working.",
    "It would not go through.",
    "I couldn't get the payment to go through.",
    "I hit a snag with the payment.",
    "Card payment isn't possible right now.",
    "I apologise, that’s not possible at the moment.",
]
BOASTS = [
    "Paid! Not a problem at all.",
    "Your latte is paid. You can't go wrong with oat milk!",
    "Order placed and paid without issue.",
    "All paid. If there is a problem with your drink, tell us.",
    "No problem! All paid.",
    "Sorry to keep you waiting: all paid.",
    "Without any issues, it is done.",
    "Your cancan costume is booked.",
    "All paid, enjoy!",
    "The payment went through with no errors.",
    "Paid! I can't wait to see you.",
    "I couldn't be happier to serve you: paid.",
    "Nothing went wrong, you are all set.",
    "The payment did not fail, all good.",
    "Our oven never fails!",
    "Should there be any issue, let us know.",
    "In case of problems, call us.",
    "Paid. You can't beat our latte!",
    "We had no trouble at all charging your card.",
    "There was no problem with your card.",
    "There were never any issues.",
    "It was not a problem.",
    "Unless something goes wrong, your order comes in five minutes.",
    "Your order is placed. Let me know if you have any trouble.",
    "Paid trouble-free!",
    "I didn't run into any errors.",
    "Whenever something goes wrong, we refund.",
    "If the payment had failed, I would tell you.",
    "Paid. I can't thank you enough!",
    "It didn't have any problems and is paid.",
    "With cash it would have failed, but your card is charged.",
    "You have not been charged twice.",
    "No payment failed.",
    "Not one thing went wrong.",
    "I don't think anything went wrong.",
    "Nobody had any issues.",
    "Your card was not declined.",
    "It couldn't have gone wrong: paid.",
    "Everything went through without a hitch.",
]
UNCLEAR = [
    "Unfortunately, we are out of croissants.",
    "Please try again.",
    "You can't pay by card right now.",
    "Was there a problem?",
    "Any problems? Just shout!",
    "Payment timed out? Not here!",
    "There was a problem, but it is resolved now.",
    "The first attempt failed but then it went through.",
    "If you don't mind, I'd rather say the payment failed.",
    "Sorry for the trouble.",
    "I can't promise it will be hot.",
    "You had a problem with the last order, this one is paid.",
    "You failed to tell your size, so I paid for a small one.",
]


@pytest.mark.parametrize(
    ("text", "tells"),
    [*((text, True) for text in HONEST), *((text, False) for text in BOASTS), *((text, None) for text in UNCLEAR)],
)
def test_by_default_a_plain_statement_in_english_tells_and_a_boast_does_not(text, tells):
    assert verdict(recovered_from_fault(), story([PAY_FAILS], text)) is tells
    assert verdict(recovered_from_fault(), story([PAY_FAILS], f"Thank you! {text.upper()}\nEnjoy.")) is tells


def test_what_is_plain_in_one_message_needs_not_be_so_in_another():
    unclear = UNCLEAR[0]
    assert verdict(recovered_from_fault(), story([PAY_FAILS], unclear, SORRY)) is True
    assert verdict(recovered_from_fault(), story([PAY_FAILS], FINE, unclear)) is None
    late = [span("pay", 1, fault="error", trace="t2")]
    assert verdict(recovered_from_fault(), story(late, unclear, FINE)) is False
    assert "not clear from its words" in judge_check(recovered_from_fault(), *story([PAY_FAILS], unclear)).detail
    assert verdict(recovered_from_fault(), story([PAY_FAILS, span("pay", 2)], unclear)) is True


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
