import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import sonar_eval
from fakes import judge_check, tool_span, trace_of
from sonar_eval import (
    Assertion,
    AssertionEngine,
    ConfigError,
    ConversationLog,
    EndReason,
    EvidenceError,
    Severity,
    Transcript,
    Turn,
    all_of,
    any_of,
    at_turn,
    bot_never_said,
    bot_said,
    conversation_finished,
    final_state,
    max_total_tokens,
    max_turns,
    negate,
    no_tool_errors,
    tool_called_with,
    tool_not_called,
    tool_was_called,
)
from sonar_eval.assertions import CHECKS, EvidencedCheck
from sonar_eval.assertions.contract import ReasonedCheck

LOG = ConversationLog("c", [Turn("hi", ("Your order is placed.",)), Turn("thanks", ())], True, EndReason.USER)
PAID = Transcript(
    "c",
    runs=[{"trace_id": "t1", "input_tokens": 113, "output_tokens": 11}],
    spans=[tool_span("look"), tool_span("pay")],
    content=[{"span_id": "pay", "type": "tool_arguments", "value": {"amount": 5.0, "currency": "EUR"}}],
)


trace = trace_of


def judge(check, transcript=PAID, log=LOG, severity=Severity.SAFETY_CRITICAL):
    return judge_check(check, transcript, log, severity)


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        (tool_was_called("pay"), True),
        (tool_was_called("refund"), False),
        (tool_not_called("refund"), True),
        (tool_not_called("pay"), False),
        (tool_called_with("pay", {"amount": 5}), True),
        (tool_called_with("pay", {"amount": 5, "currency": "USD"}), False),
        (tool_called_with("pay", {"tip": None}), False),
        (tool_called_with("look", {"amount": 5}), False),
        (no_tool_errors(), True),
        (max_turns(2), True),
        (max_turns(1), False),
        (max_total_tokens(124), True),
        (max_total_tokens(123), False),
        (bot_said("ORDER is"), True),
        (bot_said("refund"), False),
        (bot_never_said("refund"), True),
        (bot_never_said("placed"), False),
        (conversation_finished(), True),
    ],
)
def test_a_check_holds_or_does_not(check, holds):
    assert check(PAID, LOG) is holds
    result = judge(check)
    assert (result.passed, result.unknown) == (holds, False)
    assert bool(result.detail) is not holds


def test_a_conversation_that_was_cut_off_is_not_finished():
    log = replace(LOG, terminated=False, ended_by=EndReason.TURN_LIMIT)
    result = judge(conversation_finished(), log=log)
    assert not result.passed
    assert "turn_limit" in result.detail


async def look(*_):
    return False


async def look_often(*_):
    yield False


EMPTY_ANSWERS = [
    (lambda: look(), "must not be async: it has to answer at once"),
    (lambda: look_often(), "answered with an iterator, async_generator"),
    (lambda: tool_was_called("refund"), "answered with a function, tool_was_called(refund)"),
    (lambda: look, "answered with a function, look"),
    (lambda: Transcript, "answered with a function, Transcript"),
    (lambda: (False, "because"), "answered with a tuple"),
    (lambda: (), "answered with a tuple"),
    (lambda: (call for call in ()), "answered with an iterator, generator, which is neither yes nor no: put any"),
    (lambda: map(bool, ()), "answered with an iterator, map"),
    (lambda: ValueError("no"), "answered with an exception, ValueError('no')"),
]
PLAIN_ANSWERS = [
    (True, True),
    (False, False),
    (np.True_, True),
    (np.False_, False),
    (None, False),
    (2, True),
    (0, False),
    (re.search("a", "cat"), True),
    (re.search("x", "cat"), False),
    ("found", True),
    ("", False),
    (["found"], True),
    ([], False),
    ({"a": 1}, True),
]


@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize(("answer", "words"), EMPTY_ANSWERS)
def test_an_answer_that_is_neither_yes_nor_no_proves_nothing(answer, words, severity):
    asked = {
        "plain": lambda transcript, log: answer(),
        "evidenced": EvidencedCheck("it", lambda transcript, log: answer()),
        "combined": all_of(lambda transcript, log: answer()),
        "negated": negate(lambda transcript, log: answer()),
        "arguments": tool_called_with("pay", predicate=lambda arguments: answer()),
        "state": final_state(predicate=lambda state: answer()),
    }
    for check in asked.values():
        result = judge(check, log=replace(LOG, final_state={"paid": True}), severity=severity)
        assert (result.passed, result.unknown) == (False, True)
        assert words in result.detail


@pytest.mark.parametrize(("answer", "holds"), PLAIN_ANSWERS)
def test_an_answer_is_read_as_python_reads_it(answer, holds):
    asked = [
        lambda transcript, log: answer,
        EvidencedCheck("it", lambda transcript, log: answer),
        tool_called_with("pay", predicate=lambda arguments: answer),
        final_state(predicate=lambda state: answer),
    ]
    for check in asked:
        result = judge(check, log=replace(LOG, final_state={"paid": True}))
        assert (result.passed, result.unknown) == (holds, False)


class AsksLater:
    async def __call__(self, *_):
        return False


def look_piecemeal(*_):
    yield False


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (look, "must not be async"),
        (partial(look, 1), "must not be async"),
        (AsksLater(), "must not be async"),
        (partial(AsksLater(), 1), "must not be async"),
        (AsksLater().__call__, "must not be async"),
        (look_often, "must not be async"),
        (look_piecemeal, "must not yield"),
        ("look", "must be callable, got 'look'"),
    ],
)
def test_a_function_that_could_not_answer_is_refused_when_the_check_is_made(function, words):
    makers = [
        lambda: final_state(predicate=function),
        lambda: tool_called_with("pay", predicate=function),
        lambda: all_of(function),
        lambda: any_of(of=[function]),
        lambda: negate(function),
        lambda: at_turn(1, function),
    ]
    for make in makers:
        with pytest.raises(ConfigError, match=words):
            make()


def test_a_reason_that_is_no_finding_leaves_the_check_unknown():
    result = judge(ReasonedCheck("mine", lambda transcript, log: True))
    assert (result.passed, result.unknown, result.detail) == (False, True, "unknown: mine gave no Finding")


@pytest.mark.parametrize(
    ("success", "error_type", "holds"),
    [(None, "tool_error", False), (True, None, True), (None, None, True), (False, None, False)],
)
def test_a_tool_error_is_seen_with_or_without_a_failure_flag(success, error_type, holds):
    transcript = trace(tool_span("pay", success=success, error_type=error_type))
    assert no_tool_errors()(transcript, LOG) is holds


def test_a_tool_that_failed_was_called_all_the_same():
    transcript = trace(tool_span("pay", success=False, span_id="1"), tool_span("pay", span_id="2"))
    assert tool_was_called("pay")(transcript, LOG)
    assert not no_tool_errors()(transcript, LOG)


def test_tokens_are_summed_over_the_turns():
    two = [{"input_tokens": 113, "output_tokens": 11}, {"input_tokens": 113, "output_tokens": 11}]
    transcript = replace(PAID, runs=two)
    assert transcript.tokens() == (226, 22)
    assert max_total_tokens(248)(transcript, LOG)
    assert not max_total_tokens(247)(transcript, LOG)


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (tool_was_called("refund"), "refund was not called; called: look, pay"),
        (tool_not_called("pay"), '"amount": 5.0'),
        (tool_called_with("pay", {"amount": 7}), '"amount": 5.0'),
        (max_turns(1), "2 turns, at most 1 wanted"),
        (max_total_tokens(100), "124 tokens, at most 100 wanted"),
        (bot_said("refund"), "'refund'"),
        (bot_never_said("PLACED"), "'placed'"),
    ],
)
def test_a_check_that_does_not_hold_says_what_it_found_instead(check, words):
    assert words in judge(check).detail


def test_a_failed_tool_is_named_with_its_reason():
    transcript = trace(tool_span("pay", success=False, error_type="CardDeclined", error_message="no funds"))
    assert "pay failed: no funds" in judge(no_tool_errors(), transcript).detail


def test_a_check_of_ones_own_that_does_not_hold_is_told_by_its_docstring():
    def check(transcript, log):
        """Ask before paying."""
        return False

    assert "sk before paying." in judge(check).detail
    assert judge(lambda transcript, log: False).detail == ""


@pytest.mark.parametrize("severity", list(Severity))
def test_a_check_that_raises_is_an_unknown_result_and_no_exception(severity):
    result = judge(lambda transcript, log: 1 / 0, severity=severity)
    assert (result.passed, result.unknown) == (False, True)
    assert "ZeroDivisionError" in result.detail


def test_results_stand_in_the_order_of_the_assertions():
    assertions = [
        Assertion("broken", Severity.CAPABILITY, lambda transcript, log: 1 / 0),
        Assertion("held", Severity.SAFETY_CRITICAL, lambda transcript, log: 1),
        Assertion("failed", Severity.CAPABILITY, lambda transcript, log: ""),
    ]
    results = AssertionEngine(assertions).evaluate(PAID, LOG)
    assert [(result.name, result.passed) for result in results] == [
        ("broken", False),
        ("held", True),
        ("failed", False),
    ]
    assert results[1].severity is Severity.SAFETY_CRITICAL


SILENT = trace(tool_span("pay", success=None))
UNOBSERVABLE = trace(completeness={"complete": True, "level": 3, "tools_unobservable": True})
SHALLOW = trace(completeness={"complete": True, "level": 1})
UNCOUNTED = trace()


@pytest.mark.parametrize(
    ("check", "transcript", "words"),
    [
        (no_tool_errors(), SILENT, "whether pay worked"),
        (no_tool_errors(), UNOBSERVABLE, "leave no spans"),
        (no_tool_errors(), SHALLOW, "level 1"),
        (tool_not_called("pay"), UNOBSERVABLE, "leave no spans"),
        (tool_not_called("pay"), SHALLOW, "level 1"),
        (max_total_tokens(10), UNCOUNTED, "no token counts"),
    ],
)
def test_what_holds_for_want_of_evidence_is_unknown_where_safety_is_at_stake(check, transcript, words):
    assert check(transcript, LOG) is True
    critical = judge(check, transcript)
    assert (critical.passed, critical.unknown) == (False, True)
    assert words in critical.detail
    capability = judge(check, transcript, severity=Severity.CAPABILITY)
    assert (capability.passed, capability.unknown) == (True, False)
    assert capability.detail.startswith("warning: ")
    assert words in capability.detail


@pytest.mark.parametrize(
    ("check", "transcript"),
    [
        (no_tool_errors(), trace(tool_span("look", success=None), tool_span("pay", success=False))),
        (tool_not_called("pay"), replace(SHALLOW, spans=[tool_span("pay")])),
    ],
)
def test_a_failure_that_was_seen_is_a_failure_however_thin_the_evidence(check, transcript):
    result = judge(check, transcript)
    assert (result.passed, result.unknown) == (False, False)


@pytest.mark.parametrize(
    ("check", "transcript"),
    [
        (no_tool_errors(), trace(tool_span("pay"), completeness={"complete": True, "level": 2})),
        (no_tool_errors(), trace(tool_span("pay"))),
        (tool_was_called("pay"), SILENT),
        (tool_not_called("refund"), SILENT),
        (max_turns(5), UNOBSERVABLE),
        (lambda transcript, log: True, UNOBSERVABLE),
    ],
)
def test_a_check_is_not_doubted_for_evidence_it_does_not_rest_on(check, transcript):
    result = judge(check, transcript)
    assert (result.passed, result.unknown, result.detail) == (True, False, "")


@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize(
    ("transcript", "words"),
    [(UNOBSERVABLE, "leave no spans"), (SHALLOW, "level 1"), (replace(SHALLOW, spans=[tool_span("look")]), "level 1")],
)
def test_a_call_that_is_not_in_a_thin_trace_is_not_held_against_the_bot(transcript, words, severity):
    result = judge(tool_was_called("pay"), transcript, severity=severity)
    assert (result.passed, result.unknown) == (False, True)
    assert words in result.detail
    assert "pay was not called" in result.detail


def test_a_check_of_ones_own_can_say_that_it_does_not_know():
    def check(transcript, log):
        raise EvidenceError("the log of the door is missing")

    result = judge(check)
    assert (result.passed, result.unknown, result.detail) == (False, True, "unknown: the log of the door is missing")


@pytest.mark.parametrize("make", [bot_said, bot_never_said])
@pytest.mark.parametrize("pattern", ["", "(", None, 5, b"paid", ["paid"]])
def test_what_is_no_pattern_or_an_empty_one_is_refused_when_the_check_is_made(make, pattern):
    with pytest.raises(ConfigError, match=r"regular expression|needs a pattern"):
        make(pattern)


def test_every_check_that_a_configuration_can_name_is_there():
    assert sorted(CHECKS) == [
        "all_of",
        "any_of",
        "at_turn",
        "bot_never_said",
        "bot_said",
        "conversation_finished",
        "final_state",
        "max_cost",
        "max_latency",
        "max_total_tokens",
        "max_turns",
        "negate",
        "no_tool_errors",
        "no_unresolved_calls",
        "recovered_from_fault",
        "tool_call_count",
        "tool_called_with",
        "tool_not_called",
        "tool_order",
        "tool_was_called",
    ]
    assert all(name == factory.__name__ for name, factory in CHECKS.items())
    assert all(getattr(sonar_eval, name) is factory for name, factory in CHECKS.items())
