"""Checks on tools: arguments, counts, order, outcomes, and names that are nearly right."""

from __future__ import annotations

import pytest

from fakes import judge_check, tool_span, trace_of
from sonar_eval import (
    ConfigError,
    ConversationLog,
    Severity,
    no_unresolved_calls,
    tool_call_count,
    tool_called_with,
    tool_not_called,
    tool_order,
    tool_was_called,
)

SHALLOW = {"complete": True, "level": 1}
COUNTED = {"complete": True, "level": 3}
BLIND = {"complete": True, "level": 3, "tools_unobservable": True}


def calls(*names, **changes):
    """Make a trace of these calls, in this order."""
    return trace_of(*[tool_span(name, span_id=str(place)) for place, name in enumerate(names)], **changes)


def call_with(args, **row):
    return calls("refund", content=[{"span_id": "0", "trace_id": "t1", "type": "tool_arguments", "value": args, **row}])


def verdict(check, transcript, severity=Severity.SAFETY_CRITICAL):
    """Return True, False, or None for unknown."""
    result = judge_check(check, transcript, severity=severity)
    return None if result.unknown else result.passed


REFUND = call_with({"order_id": "A-17", "amount": 3.8, "to": {"iban": "NL1", "name": "Kim"}, "items": [1, {"n": 2}]})


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ({"args": {"amount": 3.8}}, True),
        ({"args": {"amount": 3.8 + 1e-15}}, True),
        ({"args": {"amount": "3.8"}}, False),
        ({"args": {"to": {"iban": "NL1"}}}, True),
        ({"args": {"to": {"iban": "NL2"}}}, False),
        ({"args": {"to": {}}}, True),
        ({"args": {"items": [1, {}]}}, True),
        ({"args": {"items": [1]}}, False),
        ({"args": {"items": [True, {}]}}, False),
        ({"args": {}}, True),
        ({"matching": {"order_id": "^A-"}}, True),
        ({"matching": {"order_id": "^a-"}}, False),
        ({"matching": {"amount": r"^3\.8$"}}, True),
        ({"matching": {"to": "Kim"}}, True),
        ({"matching": {"reason": ".*"}}, False),
        ({"args": {"amount": 3.8}, "matching": {"order_id": "-18$"}}, False),
        ({"predicate": lambda args: args["amount"] < 4}, True),
        ({"args": {"amount": 3.8}, "predicate": lambda args: args["amount"] > 4}, False),
    ],
)
def test_arguments_are_asked_for_by_value_by_pattern_and_by_predicate(asked, held):
    check = tool_called_with("refund", **asked)
    assert check(REFUND, ConversationLog("c")) is held
    assert verdict(check, REFUND) is held


def test_large_ids_are_told_apart():
    transcript = call_with({"id": 2**60})
    assert verdict(tool_called_with("refund", {"id": 2**60}), transcript) is True
    assert verdict(tool_called_with("refund", {"id": 2**60 + 1}), transcript) is False


def test_all_that_is_asked_of_arguments_must_be_met_by_one_call():
    content = [
        {"span_id": "0", "type": "tool_arguments", "value": {"amount": 5, "to": "Kim"}},
        {"span_id": "1", "type": "tool_arguments", "value": {"amount": 6, "to": "Ada"}},
    ]
    transcript = calls("refund", "refund", content=content)
    assert verdict(tool_called_with("refund", {"amount": 6}, matching={"to": "Ada"}), transcript) is True
    assert verdict(tool_called_with("refund", {"amount": 5}, matching={"to": "Ada"}), transcript) is False


@pytest.mark.parametrize(
    "transcript",
    [
        calls("refund"),
        call_with('{"amount": 3.8, "rea', cut=True),
        call_with({"amount": "[withheld]"}, redaction={"policy": "mask"}),
    ],
    ids=["no content at all", "cut", "redacted"],
)
def test_arguments_that_the_trace_does_not_show_refute_nothing(transcript):
    result = judge_check(tool_called_with("refund", {"amount": 9}), transcript)
    assert result.unknown
    assert "does not show with what refund was called" in result.detail


def test_a_call_without_arguments_beside_one_with_them_had_none():
    content = [{"span_id": "1", "type": "tool_arguments", "value": {"amount": 5}}]
    assert verdict(tool_called_with("refund", {"amount": 5}), calls("refund", "pay", content=content)) is False


def test_a_predicate_that_raises_leaves_it_unknown():
    result = judge_check(tool_called_with("refund", predicate=lambda args: args["nothing"]), REFUND)
    assert result.unknown
    assert "KeyError" in result.detail


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ({"exactly": 2}, True),
        ({"exactly": 1}, False),
        ({"exactly": 3}, False),
        ({"at_least": 2}, True),
        ({"at_least": 3}, False),
        ({"at_most": 2}, True),
        ({"at_most": 1}, False),
        ({"at_least": 1, "at_most": 2}, True),
        ({"at_least": 3, "at_most": 4}, False),
        ({"at_most": 0}, False),
    ],
)
def test_calls_are_counted(asked, held):
    check, transcript = tool_call_count("pay", **asked), calls("look", "pay", "pay")
    assert check(transcript, ConversationLog("c")) is held
    result = judge_check(check, transcript)
    assert (result.passed, result.unknown) == (held, False)
    assert held or "pay was called 2 times, wanted " in result.detail


@pytest.mark.parametrize("completeness", [SHALLOW, BLIND])
@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ({"at_least": 2}, True),
        ({"at_least": 3}, None),
        ({"at_most": 2}, None),
        ({"at_most": 1}, False),
        ({"exactly": 2}, None),
        ({"exactly": 1}, False),
        ({"exactly": 3}, None),
    ],
)
def test_in_a_thin_trace_only_what_can_be_seen_counts(asked, held, completeness):
    assert verdict(tool_call_count("pay", **asked), calls("pay", "pay", completeness=completeness)) is held


@pytest.mark.parametrize(
    ("order", "strict", "held"),
    [
        (["look", "pay"], False, True),
        (["look", "pay"], True, False),
        (["look", "stock", "pay"], True, True),
        (["stock", "pay", "look"], True, True),
        (["pay", "stock"], False, False),
        (["look", "look"], False, True),
        (["look", "look", "look"], False, False),
        (["look", "refund"], False, False),
    ],
)
def test_an_order_of_calls_is_found_with_others_between_unless_it_is_strict(order, strict, held):
    check, transcript = tool_order(order, strict=strict), calls("look", "stock", "pay", "look")
    assert check(transcript, ConversationLog("c")) is held
    result = judge_check(check, transcript)
    assert (result.passed, result.unknown, bool(result.detail)) == (held, False, not held)


def started(name, at):
    return tool_span(name, started_at=at)


NOON = "2026-01-01T12:00:00+00:00"


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        ([started("b", "2026-01-01T12:00:00.5Z"), started("a", "2026-01-01T12:00:00Z")], ["a", "b"]),
        ([started("b", NOON), started("a", "2026-01-01T12:30:00+01:00")], ["a", "b"]),
        ([started("b", NOON), started("a", "2026-01-01T11:59:59")], ["a", "b"]),
        ([started("a", NOON), started("b", NOON)], ["a", "b"]),
        # where one tells no time, the rows decide
        ([started("a", NOON), started("b", "2026-01-01T11:00:00Z"), started("c", None)], ["a", "b"]),
        ([started("a", NOON), started("b", "once")], ["a", "b"]),
        ([started("a", NOON), started("b", 5)], ["a", "b"]),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_calls_are_ordered_by_the_time_they_started_wherever_their_rows_stand(rows, order, strict):
    assert verdict(tool_order(order, strict=strict), trace_of(*rows)) is True
    assert verdict(tool_order(order[::-1], strict=strict), trace_of(*rows)) is False


@pytest.mark.parametrize(
    ("order", "strict", "held"),
    [(["a", "b"], False, True), (["b", "a"], False, None), (["a", "b"], True, None), (["b", "a"], True, None)],
)
def test_in_a_thin_trace_an_order_that_was_seen_holds_and_direct_succession_is_never_proven(order, strict, held):
    assert verdict(tool_order(order, strict=strict), calls("a", "b", completeness=SHALLOW)) is held


@pytest.mark.parametrize(
    ("spans", "completeness", "held"),
    [
        ([tool_span("a"), tool_span("b", success=False, error_type="E")], COUNTED, True),
        ([tool_span("a", success=None, error_type="E")], COUNTED, True),
        ([tool_span("a")], None, True),
        ([tool_span("a")], {**COUNTED, "unresolved_calls": ["pay"]}, False),
        ([tool_span("a")], {**SHALLOW, "unresolved_calls": ["pay"]}, None),
        ([tool_span("a")], SHALLOW, None),
        ([tool_span("a")], BLIND, None),
        ([tool_span("a", success=None)], COUNTED, None),
    ],
)
def test_every_call_must_have_come_to_an_end_good_or_bad(spans, completeness, held):
    assert verdict(no_unresolved_calls(), trace_of(*spans, completeness=completeness)) is held


def test_calls_without_a_result_are_named():
    transcript = trace_of(completeness={**COUNTED, "unresolved_calls": ["pay", "look"]})
    assert judge_check(no_unresolved_calls(), transcript).detail.endswith("neither run nor answered: pay, look")


def test_a_result_without_a_verdict_is_a_result():
    content = [{"span_id": "a", "type": "tool_result", "value": "done"}]
    assert verdict(no_unresolved_calls(), trace_of(tool_span("a", success=None), content=content)) is True


NEARLY = "pay_api was not called; called: payment_api, menu_lookup; did you mean payment_api?"


@pytest.mark.parametrize(
    "check",
    [
        tool_was_called("pay_api"),
        tool_called_with("pay_api", {"amount": 1}),
        tool_call_count("pay_api", at_least=1),
        tool_order(["menu_lookup", "pay_api"]),
    ],
)
def test_a_name_that_is_nearly_right_is_explained_by_the_names_that_were_called(check):
    assert judge_check(check, calls("payment_api", "menu_lookup", "payment_api")).detail == NEARLY


def test_no_name_is_suggested_where_none_comes_close():
    assert judge_check(tool_was_called("pay"), calls("menu")).detail == "pay was not called; called: menu"
    assert judge_check(tool_was_called("pay"), trace_of()).detail == "pay was not called; called: none"


def test_many_calls_are_not_all_shown():
    content = [{"span_id": str(place), "type": "tool_arguments", "value": {"n": place}} for place in range(9)]
    result = judge_check(tool_called_with("pay", {"n": 10}), calls(*["pay"] * 9, content=content))
    assert result.detail.endswith('{"n": 4}; and 4 more')


def test_a_call_that_must_not_be_is_shown_with_its_arguments():
    assert '"amount": 3.8' in judge_check(tool_not_called("refund"), REFUND).detail


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tool_called_with("pay"), "needs args, matching or predicate"),
        (lambda: tool_called_with("pay", matching={"a": "("}), r"'\(' is no regular expression"),
        (lambda: tool_call_count("pay"), "needs exactly, at_least or at_most"),
        (lambda: tool_call_count("pay", exactly=1, at_most=2), "not both"),
        (lambda: tool_call_count("pay", at_least=-1), "got -1"),
        (lambda: tool_call_count("pay", at_least=True), "got True"),
        (lambda: tool_call_count("pay", at_least=3, at_most=2), "at_least 3 is more than at_most 2"),
        (lambda: tool_order(["pay"]), "two tools or more"),
        (lambda: tool_order("pay"), "two tools or more"),
        (lambda: tool_order(["pay", " "]), "two tools or more"),
        (lambda: tool_order(None), "two tools or more, got None"),
        (lambda: tool_called_with("pay", {"amount"}), "args must be a mapping of arguments, got"),
        (lambda: tool_called_with("pay", matching=["5"]), "matching must be a mapping of arguments, got"),
        (lambda: tool_called_with("pay", matching={"a": b"5"}), "is no regular expression"),
    ],
)
def test_a_check_that_makes_no_sense_cannot_be_made(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize("name", [["pay", "refund"], ("pay",), None, "", " ", 5, b"pay", tool_was_called])
def test_what_is_no_name_of_a_tool_is_refused_since_no_call_would_ever_bear_it(name):
    makers = {
        "tool_was_called": lambda: tool_was_called(name),
        "tool_not_called": lambda: tool_not_called(name),
        "tool_called_with": lambda: tool_called_with(name, {"amount": 5}),
        "tool_call_count": lambda: tool_call_count(name, at_most=0),
    }
    for check, make in makers.items():
        with pytest.raises(ConfigError, match=f"{check} needs the name of one tool, got"):
            make()
