"""Three-valued logic: all_of, any_of and negate, over every mix of known and unknown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import judge_check, tool_span, trace_of
from sonar_eval import (
    ConfigError,
    ConversationLog,
    Severity,
    all_of,
    any_of,
    bot_said,
    max_cost,
    negate,
    no_tool_errors,
    tool_not_called,
    tool_was_called,
)
from sonar_eval.assertions.contract import Finding, ReasonedCheck, find

examples = settings(deadline=None, max_examples=60, database=None, derandomize=True)
LOG = ConversationLog("c")
TRACE = trace_of(tool_span("look"))
SHALLOW = trace_of(tool_span("look"), completeness={"complete": True, "level": 1})

findings = st.builds(
    lambda held, doubt: Finding(held, doubt or ("blind" if held is None else "")),
    st.sampled_from([True, False, None]),
    st.sampled_from(["", "thin"]),
)
checks = st.recursive(
    findings.map(lambda finding: ReasonedCheck("leaf", lambda transcript, log: finding)),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda several: all_of(*several)),
        st.lists(inner, min_size=1, max_size=3).map(lambda several: any_of(*several)),
        inner.map(negate),
    ),
    max_leaves=8,
)


def known(check, severity=Severity.SAFETY_CRITICAL, transcript=TRACE):
    """Return True, False, or None for unknown."""
    result = judge_check(check, transcript, LOG, severity)
    return None if result.unknown else result.passed


def value(check):
    found = find(check, TRACE, LOG)
    return found.held, found.proven


@examples
@given(checks)
def test_a_finding_is_never_unknown_without_a_reason_nor_proven_against_how_it_looks(check):
    found = find(check, TRACE, LOG)
    assert bool(found.doubt) is (found.proven is None)
    assert found.proven in (None, found.held)


@examples
@given(checks)
def test_nothing_safety_critical_passes_unless_it_is_proven(check):
    result = judge_check(check, TRACE, LOG)
    assert result.passed is (find(check, TRACE, LOG).proven is True)
    assert result.unknown is (find(check, TRACE, LOG).proven is None)
    assert result.unknown <= bool(result.detail)


@examples
@given(checks)
def test_a_capability_passes_in_doubt_only_with_a_warning(check):
    found, result = find(check, TRACE, LOG), judge_check(check, TRACE, LOG, Severity.CAPABILITY)
    assert result.passed is (found.held is True)
    assert result.detail.startswith("warning: ") is (found.held is True and found.proven is None)


@examples
@given(checks)
def test_negated_twice_is_the_check_itself(check):
    assert value(negate(negate(check))) == value(check)


@examples
@given(checks, checks)
def test_not_both_is_one_of_them_not(one, other):
    assert value(negate(all_of(one, other))) == value(any_of(negate(one), negate(other)))
    assert value(negate(any_of(one, other))) == value(all_of(negate(one), negate(other)))


@examples
@given(checks, checks, checks)
def test_order_and_grouping_do_not_matter(one, other, third):
    for combine in (all_of, any_of):
        assert value(combine(one, other)) == value(combine(other, one))
        assert value(combine(one, combine(other, third))) == value(combine(one, other, third))
        assert value(combine(one, one)) == value(combine(one)) == value(one)


@examples
@given(checks)
def test_what_is_known_decides_whatever_is_unknown_beside_it(check):
    assert known(all_of(check, lambda transcript, log: False)) is False
    assert known(any_of(check, lambda transcript, log: True)) is True


@examples
@given(st.recursive(st.booleans(), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6), st.booleans())
def test_where_all_is_known_it_is_ordinary_logic(tree, conjunctive):
    def build(node, conjunctive):
        if isinstance(node, bool):
            return (lambda transcript, log: node), node
        parts = [build(child, not conjunctive) for child in node]
        combine, fold = (all_of, all) if conjunctive else (any_of, any)
        return combine(*[check for check, _ in parts]), fold(held for _, held in parts)

    check, held = build(tree, conjunctive)
    assert known(check) is held
    assert known(negate(check)) is not held
    assert bool(check(TRACE, LOG)) is held


@pytest.mark.parametrize(
    ("plain", "double"),
    [
        (tool_not_called("pay"), negate(tool_was_called("pay"))),
        (tool_was_called("pay"), negate(tool_not_called("pay"))),
        (tool_not_called("look"), negate(tool_was_called("look"))),
    ],
)
@pytest.mark.parametrize("severity", list(Severity))
def test_a_negated_check_rests_on_what_its_opposite_rests_on(plain, double, severity):
    for transcript in (TRACE, SHALLOW, trace_of(completeness={"level": 3, "tools_unobservable": True})):
        assert known(double, severity, transcript) is known(plain, severity, transcript)


def test_a_call_that_is_not_in_a_thin_trace_is_no_proof_that_it_was_not_made():
    result = judge_check(negate(tool_was_called("pay")), SHALLOW, LOG)
    assert (result.passed, result.unknown) == (False, True)
    assert "level 1" in result.detail


def test_no_error_that_was_seen_is_no_proof_of_an_error():
    assert known(negate(no_tool_errors()), transcript=trace_of(tool_span("pay", success=None))) is None
    assert known(negate(no_tool_errors()), transcript=TRACE) is False
    assert known(negate(no_tool_errors()), transcript=trace_of(tool_span("pay", success=False))) is True


@pytest.mark.parametrize("severity", list(Severity))
def test_what_cannot_be_told_is_no_pass_negated_or_not(severity):
    for check in (max_cost(1.0), lambda transcript, log: 1 / 0):
        assert known(check, severity) is known(negate(check), severity) is None


def test_those_that_do_not_hold_are_named():
    def polite(transcript, log):
        return False

    both = judge_check(all_of(tool_was_called("pay"), tool_was_called("look"), polite), TRACE, LOG)
    assert both.detail == "pay was not called; called: look; polite does not hold"
    either = judge_check(any_of(tool_was_called("pay"), bot_said("hi")), TRACE, LOG)
    assert either.detail == "pay was not called; called: look and nothing the bot said matches 'hi'"
    assert judge_check(negate(tool_was_called("look")), TRACE, LOG).detail == (
        "tool_was_called(look) holds, and is not to"
    )


def test_checks_can_be_given_as_a_list_by_name():
    several = [tool_was_called("look"), tool_was_called("pay")]
    assert known(all_of(of=several)) is False
    assert known(any_of(of=several)) is True


@pytest.mark.parametrize("make", [lambda: all_of(), lambda: any_of(of=[]), lambda: negate("pay"), lambda: all_of(None)])
def test_nothing_cannot_be_combined(make):
    with pytest.raises(ConfigError, match=r"one check or more|takes checks"):
        make()
