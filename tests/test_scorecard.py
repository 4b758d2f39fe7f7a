import math
import re
from dataclasses import replace

import pytest

from fakes import errored_trial, judged_trial
from sonar_eval import Action, CriterionResult, CriterionVerdict, GraderResult, Transcript
from sonar_eval.interceptor import RuleReport
from sonar_eval.metrics import roll_up
from sonar_eval.scorecard import clean_name, scorecard

COUNTS = [
    "trials_asked",
    "trials_judged",
    "trials_errored",
    "trials_ungraded",
    "trials_cut_off",
    "trials_not_exercised",
]


def last(scores):
    return {score.name: score.value for score in scores}


def curve(scores, name):
    return [(score.step, score.value) for score in scores if score.name == name]


def named(trial, *names):
    return replace(
        trial,
        assertions=[replace(result, name=name) for result, name in zip(trial.assertions, names, strict=True)],
    )


def test_headlines_come_first_and_the_six_counts_always_stand():
    scores = scorecard(roll_up("s", [judged_trial(0, True), judged_trial(1, False), errored_trial(2)], k=3))
    names = list(dict.fromkeys(score.name for score in scores))
    assert names[:5] == ["pass_rate", "pass_rate_ci_low", "pass_rate_ci_high", "pass_hat_k", "pass_at_k"]
    sections = [name for name in names if "/" in name]
    assert names[-len(sections) :] == sections
    values = last(scores)
    assert [values[name] for name in COUNTS] == [3, 2, 1, 0, 0, 0]
    assert values["pass_rate"] == 0.5
    assert values["safety_violations"] == 1


def test_a_rate_stands_with_its_interval_and_its_curves():
    scores = scorecard(roll_up("s", [judged_trial(index, index < 4) for index in range(5)], k=5))
    values = last(scores)
    assert (values["pass_rate"], values["pass_rate_ci_low"], values["pass_rate_ci_high"]) == (0.8, 0.3755, 0.9638)
    assert curve(scores, "pass_hat_k") == [(1, 0.8), (2, 0.6), (3, 0.4), (4, 0.2), (5, 0.0)]
    assert curve(scores, "pass_at_k") == [(1, 0.8), (2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0)]
    assert curve(scores, "assertion_pass_hat_k/a0") == curve(scores, "pass_hat_k")
    assert values["assertion_pass_rate/a0"] == 0.8


def test_what_was_not_measured_has_no_number():
    values = last(scorecard(roll_up("s", [errored_trial(index) for index in range(5)], k=5)))
    assert values == {
        "safety_violations": 0,
        "trials_asked": 5,
        "trials_judged": 0,
        "trials_errored": 5,
        "trials_ungraded": 0,
        "trials_cut_off": 0,
        "trials_not_exercised": 0,
    }


def test_an_assertion_that_is_unknown_everywhere_has_no_rate():
    values = last(scorecard(roll_up("s", [judged_trial(0, None)], k=1)))
    assert "assertion_pass_rate/a0" not in values
    assert "pass_rate" not in values


def test_a_scenario_with_nothing_to_check_has_no_pass_rate():
    assert "pass_rate" not in last(scorecard(roll_up("s", [judged_trial(0)], k=1)))


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_what_is_not_finite_is_left_out(score):
    trial = judged_trial(0, True, grader=GraderResult(score, "", False), judge_asked=True)
    values = last(scorecard(roll_up("s", [trial], k=1)))
    assert "judge_mean" not in values
    assert all(math.isfinite(value) for value in values.values())


def test_numbers_have_four_digits():
    trials = [judged_trial(index, index < 2) for index in range(3)]
    assert last(scorecard(roll_up("s", trials, k=3)))["pass_rate"] == 0.6667


def test_turns_tokens_latencies_and_the_judge_are_averaged_over_trials():
    trials = []
    for index in range(2):
        trial = judged_trial(index, True, grader=GraderResult(0.5 + index / 4, "", False), judge_asked=True)
        trial.log.turns[0].latency_s = 1.0 + 2 * index
        runs = [{"trace_id": "t", "input_tokens": 100, "output_tokens": 10 + index}]
        trials.append(replace(trial, transcript=Transcript("c", runs=runs)))
    values = last(scorecard(roll_up("s", [*trials, judged_trial(2, True)], k=3)))
    assert values["turns_mean"] == 1
    assert values["tokens_mean"] == 110.5
    assert (values["tokens/bot_input"], values["tokens/bot_output"]) == (200, 21)
    assert (values["latency_p50_s"], values["latency_p95_s"]) == (2.0, 2.9)
    assert values["judge_mean"] == 0.625


def test_tokens_that_nobody_counted_have_no_number():
    values = last(scorecard(roll_up("s", [judged_trial(0, True, transcript=Transcript("c", [{}]))], k=1)))
    assert not [name for name in values if "token" in name]


def test_faults_are_summed_by_rule():
    rules = [RuleReport(0, "pay", Action.ERROR, 0, 1, 2), RuleReport(1, "pay", Action.ERROR, 1, 0, 2)]
    values = last(scorecard(roll_up("s", [judged_trial(index, True, faults=rules) for index in range(2)], k=2)))
    assert (values["fault_fired/0 pay error"], values["fault_fired/1 pay error"]) == (2, 0)


ODD = [
    *("pass@k ok?", "a^b", "a@b", "/lead", "//", "..", ".", "", " ", "日本", "50% off (VIP), |", "a\nb"),
    *("x" * 300, "x" * 299),
]


def test_any_name_becomes_one_that_trackers_accept_and_stays_apart_from_others():
    cleaned = [clean_name(name) for name in ODD]
    assert len(set(cleaned)) == len(ODD)
    for name in cleaned:
        assert re.fullmatch(r"[\w.\- ]{1,100}", name)
        assert name.strip(". ") == name
    assert cleaned == [clean_name(name) for name in ODD]


@pytest.mark.parametrize("name", ["no_tool_errors", "日本", "asks first", "v1.2-b"])
def test_a_name_that_is_fine_stays_as_it_is(name):
    assert clean_name(name) == name


def test_assertions_whose_names_look_alike_keep_their_own_metrics():
    values = last(scorecard(roll_up("s", [named(judged_trial(0, True, False), "a@b", "a^b")], k=1)))
    assert sorted(value for name, value in values.items() if name.startswith("assertion_pass_rate/")) == [0.0, 1.0]


def test_a_criterion_has_the_share_of_passed_among_the_trials_that_told():
    def graded(index, *verdicts):
        criteria = tuple(
            CriterionResult(name, CriterionVerdict(said)) for name, said in zip(("kind", "a@b"), verdicts, strict=True)
        )
        return judged_trial(index, True, grader=GraderResult(1.0, "", True, criteria=criteria), judge_asked=True)

    trials = [graded(0, "passed", "cannot_tell"), graded(1, "failed", "cannot_tell"), graded(2, "passed", "passed")]
    values = last(scorecard(roll_up("s", [*trials, judged_trial(3, True)], k=4)))
    assert values["judge/kind"] == 0.6667
    assert values[f"judge/{clean_name('a@b')}"] == 1.0
    untold = last(scorecard(roll_up("s", trials[1:2], k=1)))
    assert [name for name in untold if name.startswith("judge/")] == ["judge/kind"]
