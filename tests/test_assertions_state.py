"""The state that the bot left behind: compared as a subset, or by a function; unknown without a snapshot."""

from __future__ import annotations

import pytest

from fakes import judge_check, trace_of
from sonar_eval import ConfigError, ConversationLog, Severity, final_state, negate

STATE = {"orders": {"A-17": {"total": 3.8, "refunded": 3.8, "lines": [{"item": "latte", "n": 1}]}}, "open": True}


def judge(check, state=STATE, severity=Severity.SAFETY_CRITICAL):
    return judge_check(check, trace_of(), ConversationLog("c", final_state=state), severity)


@pytest.mark.parametrize(
    ("expected", "against"),
    [
        ({}, ""),
        ({"orders": {"A-17": {"refunded": 3.8}}}, ""),
        ({"orders": {"A-17": {"lines": [{"item": "latte"}]}}}, ""),
        ({"open": True}, ""),
        ({"orders": {"A-17": {"refunded": 6}}}, "orders.A-17.refunded: wanted 6, found 3.8"),
        ({"orders": {"A-18": {"total": 1}}}, 'orders.A-18: wanted {"total": 1}, is missing'),
        ({"orders": {"A-17": {"lines": []}}}, "orders.A-17.lines: wanted 0 entries, found 1: "),
        ({"orders": {"A-17": {"lines": [{"n": 2}]}}}, "orders.A-17.lines[0].n: wanted 2, found 1"),
        ({"open": 1}, "open: wanted 1, found true"),
        ({"open": False, "orders": []}, "open: wanted false, found true; orders: wanted [], found {"),
        (["orders"], 'wanted ["orders"], found {'),
    ],
)
def test_the_state_must_contain_what_is_expected_and_the_difference_is_told(expected, against):
    result = judge(final_state(expected))
    assert (result.passed, result.unknown) == (not against, False)
    assert result.detail.startswith(against)
    assert bool(result.detail) is bool(against)


def test_keys_are_texts_and_tuples_lists_as_they_are_in_a_snapshot():
    assert judge(final_state({7: (1, 2)}), {"7": [1, 2]}).passed


def test_of_many_differences_only_some_are_shown():
    result = judge(final_state({str(number): number for number in range(20)}), {"a": 1})
    assert result.detail.count("is missing") == 8
    assert result.detail.endswith("; and 12 more")


def all_refunded(state):
    return all(order["refunded"] == order["total"] for order in state["orders"].values())


def test_a_function_may_look_at_the_state_alone_or_beside_what_is_expected():
    for check in (final_state(all_refunded), final_state(predicate=all_refunded)):
        assert judge(check).passed
        unpaid = judge(check, {"orders": {"A-1": {"total": 1, "refunded": 0}}})
        assert (unpaid.passed, unpaid.unknown) == (False, False)
        assert unpaid.detail == "all_refunded says no to it"
    assert not judge(final_state({"open": False}, predicate=all_refunded)).passed


@pytest.mark.parametrize("severity", list(Severity))
def test_without_a_snapshot_nothing_is_known_of_the_state(severity):
    for check in (final_state({}), final_state(all_refunded), negate(final_state({"open": True}))):
        result = judge(check, None, severity)
        assert (result.passed, result.unknown) == (False, True)
        assert "no snapshot" in result.detail


def test_a_function_that_raises_leaves_it_unknown():
    result = judge(final_state(all_refunded), {"customers": {}})
    assert result.unknown
    assert "KeyError" in result.detail


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "needs expected or predicate"), (({1, 2},), "plain JSON values"), ((float("nan"),), "plain JSON values")],
)
def test_what_makes_no_sense_cannot_be_expected(arguments, said):
    with pytest.raises(ConfigError, match=said):
        final_state(*arguments)
