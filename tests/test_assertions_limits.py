"""Checks that nothing took too long or cost too much, and what they say when that is not known."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import judge_check, trace_of
from sonar_eval import (
    ConfigError,
    ConversationLog,
    Severity,
    Turn,
    max_cost,
    max_latency,
    max_total_tokens,
    max_turns,
    negate,
)
from sonar_eval.usage import Spend


def verdict(check, log, severity=Severity.SAFETY_CRITICAL):
    """Return True, False, or None for unknown."""
    result = judge_check(check, trace_of(), log, severity)
    return None if result.unknown else result.passed


def took(*seconds):
    return ConversationLog("c", [Turn("hi", ("ok",), latency_s=latency) for latency in seconds])


def cost(**roles):
    return ConversationLog("c", [Turn("hi", ("ok",))], spent={role: Spend(1, 5, 5, usd) for role, usd in roles.items()})


@pytest.mark.parametrize(
    ("latencies", "limit", "quantile", "held"),
    [
        ((0.5, 2.0), 2.0, 1.0, True),
        ((0.5, 2.1), 2.0, 1.0, False),
        ((0.5, None), 2.0, 1.0, None),
        ((2.1, None), 2.0, 1.0, False),
        ((None, None), 2.0, 1.0, None),
        ((), 2.0, 1.0, None),
        ((*[1.0] * 9, 9.0), 2.0, 0.9, True),
        ((*[1.0] * 8, 9.0, 9.0), 2.0, 0.9, False),
        ((1.0, 1.0, 9.0), 2.0, 0.5, True),
        ((*[1.0] * 9, None), 2.0, 0.9, True),
        ((*[1.0] * 8, None, None), 2.0, 0.9, None),
        ((*[9.0] * 2, *[1.0] * 7, None), 2.0, 0.9, False),
    ],
)
def test_how_long_the_bot_took_counts_for_every_turn_or_a_share_of_them(latencies, limit, quantile, held):
    assert verdict(max_latency(limit, quantile=quantile), took(*latencies)) is held


def test_a_slow_answer_is_told_with_its_time():
    assert judge_check(max_latency(1), trace_of(), took(0.1, 3.456)).detail == (
        "the slowest turn took 3.46 s, at most 1 s wanted"
    )
    told = judge_check(max_latency(1, quantile=0.5), trace_of(), took(2.0, 2.0)).detail
    assert told == "quantile 0.5 of the turns took 2 s, at most 1 s wanted"
    assert "of 1 of 2 turns" in judge_check(max_latency(1), trace_of(), took(0.1, None)).detail


def test_a_capability_passes_with_a_warning_when_only_some_times_are_known():
    assert verdict(max_latency(1), took(0.1, None), Severity.CAPABILITY) is True
    assert verdict(max_latency(1), took(None), Severity.CAPABILITY) is None


@pytest.mark.parametrize(
    ("spent", "role", "held"),
    [
        ({"bot": 0.01}, "bot", True),
        ({"bot": 0.03}, "bot", False),
        ({"bot": 0.01, "simulator": 9.0}, "bot", True),
        ({"bot": None}, "bot", None),
        ({}, "bot", None),
        ({"simulator": 0.03}, "simulator", False),
        ({"bot": 0.01, "simulator": 0.005}, "total", True),
        ({"bot": 0.01, "simulator": 0.02}, "total", False),
        ({"bot": 0.01, "simulator": None}, "total", None),
        ({"bot": None, "simulator": 0.03}, "total", False),
        ({"simulator": 0.001}, "total", None),
        ({"bot": 0.01, "judge": 9.0}, "total", True),
        ({"bot": 0.0}, "total", True),
    ],
)
def test_what_the_models_cost_counts_by_role_and_is_no_pass_where_it_is_not_known(spent, role, held):
    assert verdict(max_cost(0.02, role=role), cost(**spent)) is held


@pytest.mark.parametrize("severity", list(Severity))
def test_a_cost_that_is_not_known_is_never_a_pass(severity):
    for check in (max_cost(1), negate(max_cost(1))):
        result = judge_check(check, trace_of(), cost(bot=None), severity)
        assert (result.passed, result.unknown) == (False, True)
        assert "bot cost is not known" in result.detail


def test_a_cost_too_high_is_told():
    assert judge_check(max_cost(0.02), trace_of(), cost(bot=0.5)).detail == "it cost 0.5 USD, at most 0.02 USD wanted"


@pytest.mark.parametrize("number", [np.int64(3), np.float64(3), 3.0])
def test_a_limit_may_be_any_kind_of_number(number):
    assert verdict(max_turns(number), took(0.1, 0.1, 0.1)) is True
    assert verdict(max_latency(number), took(0.1)) is True


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: max_latency(-1), "0 or more, got -1"),
        (lambda: max_latency(float("nan")), "got nan"),
        (lambda: max_latency("2s"), "got '2s'"),
        (lambda: max_latency(1, quantile=0), "quantile must lie above 0"),
        (lambda: max_latency(1, quantile=90), "quantile must lie above 0"),
        (lambda: max_cost(True), "got True"),
        (lambda: max_turns("3"), "max_turns needs a number of 0 or more, got '3'"),
        (lambda: max_turns(-1), "got -1"),
        (lambda: max_total_tokens(None), "max_total_tokens needs a number of 0 or more, got None"),
        (lambda: max_total_tokens(float("nan")), "got nan"),
        (lambda: max_cost(1, role="judge"), "role must be bot, simulator or total"),
    ],
)
def test_a_limit_that_makes_no_sense_cannot_be_made(make, said):
    with pytest.raises(ConfigError, match=said):
        make()
