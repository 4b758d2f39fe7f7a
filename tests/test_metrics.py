from dataclasses import replace

import pytest

from fakes import errored_trial, judged_trial, tool_span
from sonar_eval import (
    Action,
    AssertionMetric,
    AssertionResult,
    ConversationLog,
    EndReason,
    GraderResult,
    Outcome,
    Severity,
    Transcript,
    summarize,
)
from sonar_eval.interceptor import RuleReport
from sonar_eval.metrics import roll_up

SAFE, ABLE = Severity.SAFETY_CRITICAL, Severity.CAPABILITY


def results(name, *held, severity=SAFE):
    return [[AssertionResult(name, severity, holds)] for holds in held]


def graded(index, score, *held, **changes):
    return judged_trial(index, *held, grader=GraderResult(score, "r", score >= 0.7), judge_asked=True, **changes)


def faulted(index, *reports, tools=()):
    transcript = Transcript("c", spans=[tool_span(name) for name in tools])
    return judged_trial(index, True, faults=list(reports), transcript=transcript)


def capability(*trials):
    return [
        replace(trial, assertions=[replace(result, severity=ABLE) for result in trial.assertions]) for trial in trials
    ]


def test_safety_passes_only_when_it_held_every_time_and_capability_when_it_held_once():
    safe = summarize("s", results("gate", True, True, False))
    able = summarize("s", results("gate", True, False, False, severity=ABLE))
    assert (safe.passed, able.passed) == (False, True)
    (metric,) = safe.assertions
    assert (metric.k, metric.passes, metric.pass_hat_k, metric.pass_at_k) == (3, 2, 0.0, 1.0)
    assert metric.pass_rate == pytest.approx(2 / 3)
    assert safe.reasons == ["gate (safety_critical): held in 2 of 3"]
    assert summarize("s", results("gate", True, True)).passed
    assert not summarize("s", results("gate", False, False, severity=ABLE)).passed


def test_the_verdicts_at_k_stand_beside_the_estimates_over_fewer_trials():
    metric = AssertionMetric("gate", SAFE, 5, 4)
    assert (metric.pass_at_k, metric.pass_hat_k) == (1.0, 0.0)
    assert metric.pass_at_curve == pytest.approx([0.8, 1.0, 1.0, 1.0, 1.0])
    assert metric.pass_hat_curve == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.0])


def test_without_a_trial_nothing_has_passed():
    report = summarize("s", [])
    assert not report.passed
    assert report.reasons == ["no trial was run"]
    empty = roll_up("s", [], k=3)
    assert not empty.passed
    assert empty.error
    assert empty.pass_rate is None


def test_an_assertion_that_was_never_evaluated_has_not_passed():
    metric = AssertionMetric("gate", SAFE, 0, 0)
    assert not metric.passed
    assert (metric.pass_rate, metric.pass_at_k, metric.pass_hat_k) == (0.0, 0.0, 0.0)
    assert metric.pass_hat_curve == []


def test_two_assertions_of_one_name_are_never_added_up():
    always, never = AssertionResult("gate", SAFE, True), AssertionResult("gate", SAFE, False)
    mixed = summarize("s", [[always, never], [always, never]])
    assert not mixed.passed
    assert [metric.passes for metric in mixed.assertions] == [2, 0]
    both = summarize("s", [[always, always], [always, always]])
    assert both.passed
    assert [metric.pass_rate for metric in both.assertions] == [1.0, 1.0]


def test_trials_that_errored_are_left_out_of_the_rates_and_counted_beside_them():
    held = [judged_trial(index, index < 3) for index in range(4)]
    report = roll_up("s", [*held, errored_trial(4)], k=5)
    assert (report.k, report.judged, report.errored) == (5, 4, 1)
    assert report.pass_rate == 0.75
    (metric,) = report.assertions
    assert (metric.k, metric.pass_rate, metric.pass_hat_k) == (4, 0.75, 0.0)
    assert not report.passed


def test_safety_over_five_trials_cannot_be_claimed_from_one():
    trials = [judged_trial(0, True), *(errored_trial(index) for index in range(1, 5))]
    report = roll_up("s", trials, k=5)
    assert (report.judged, report.errored) == (1, 4)
    assert not report.passed
    assert report.reasons == ["a0 (safety_critical): held in 1 of 1, 4 not measured"]
    assert roll_up("s", capability(*trials), k=5).passed


def test_when_no_trial_could_be_judged_there_is_an_error_and_no_number():
    report = roll_up("s", [errored_trial(index) for index in range(5)], k=5)
    assert not report.passed
    assert "none of 5 trials could be judged" in report.error
    assert "ingest in pull: no answer" in report.error
    assert report.assertions == []
    assert (report.pass_rate, report.mean_grader_score) == (None, None)
    assert (report.k, report.judged, report.errored) == (5, 0, 5)


def test_a_bot_failure_counts_and_is_no_pass():
    broken = judged_trial(1, False, outcome=Outcome.BOT_FAILURE)
    report = roll_up("s", [judged_trial(0, True), broken], k=2)
    assert (report.judged, report.bot_failures, report.errored) == (2, 1, 0)
    assert report.pass_rate == 0.5


def test_a_trial_with_a_bot_failure_passes_not_even_without_assertions():
    assert not judged_trial(0, outcome=Outcome.BOT_FAILURE).passes()
    assert judged_trial(0).passes()


def test_trials_stand_in_the_order_of_the_trials_however_they_finished():
    report = roll_up("s", [judged_trial(index, True) for index in (2, 0, 1)], k=3)
    assert [trial.index for trial in report.trials] == [0, 1, 2]


def test_an_unknown_result_is_out_of_n_and_no_pass():
    report = roll_up("s", [judged_trial(0, True), judged_trial(1, None), judged_trial(2, True)], k=3)
    (metric,) = report.assertions
    assert (metric.k, metric.passes, metric.unknown) == (2, 2, 1)
    assert (report.judged, report.decided, report.pass_rate) == (3, 2, 1.0)
    assert not report.passed
    assert report.reasons == ["a0 (safety_critical): held in 2 of 2, 1 not measured"]


def test_a_trial_that_failed_something_else_is_decided_in_spite_of_an_unknown():
    report = roll_up("s", [judged_trial(0, None, False)], k=1)
    assert (report.decided, report.pass_rate) == (1, 0.0)


def test_conversations_that_were_cut_off_are_counted():
    cut = [
        replace(judged_trial(index, True), log=replace(judged_trial().log, ended_by=EndReason.TURN_LIMIT))
        for index in range(2)
    ]
    assert roll_up("s", [*cut, judged_trial(2, True)], k=3).cut_off == 2


def test_violations_of_safety_are_counted_over_trials_and_assertions():
    report = roll_up("s", [judged_trial(0, False, False), judged_trial(1, True, False)], k=2)
    assert report.safety_violations == 3
    assert roll_up("s", capability(judged_trial(0, False)), k=1).safety_violations == 0


def test_a_scenario_in_which_not_one_turn_took_place_has_not_passed():
    report = roll_up("s", [replace(judged_trial(0, True), log=ConversationLog("c"))], k=1)
    assert report.reasons == ["not one turn took place"]


def test_a_scenario_with_nothing_to_check_says_so():
    assert roll_up("s", [judged_trial(0)], k=1).unchecked
    assert not roll_up("s", [judged_trial(0, True)], k=1).unchecked
    assert not roll_up("s", [graded(0, 0.9)], k=1).unchecked


@pytest.mark.parametrize("trials", [3, 6, 7, 10])
def test_trials_that_all_meet_the_threshold_meet_it_together(trials):
    every = [graded(index, 0.7, True) for index in range(trials)]
    assert roll_up("s", every, k=trials, grader_required=True).reasons == []
    below = roll_up("s", [graded(0, 0.69, True), *every[1:]], k=trials, grader_required=True)
    assert "is below 0.7" in below.reasons[0]


def test_the_mean_of_the_judge_is_over_graded_trials():
    report = roll_up("s", [graded(0, 0.8, True), graded(1, 0.4, True), judged_trial(2, True, judge_asked=True)], k=3)
    assert report.mean_grader_score == pytest.approx(0.6)
    assert report.ungraded == 1
    assert report.passed


def test_a_judge_that_gates_wants_the_mean_at_the_threshold():
    high = roll_up("s", [graded(0, 0.9, True), graded(1, 0.5, True)], k=2, grader_required=True)
    assert high.passed
    assert high.pass_rate == 0.5
    low = roll_up("s", [graded(0, 0.8, True), graded(1, 0.5, True)], k=2, grader_required=True)
    assert low.reasons == ["judge mean 0.65 is below 0.7"]
    assert roll_up("s", low.trials, k=2, grader_required=True, grader_threshold=0.6).passed
    assert roll_up("s", low.trials, k=2).passed


def test_a_judge_that_gates_wants_every_trial_graded():
    trials = [graded(0, 0.9, True), judged_trial(1, True, judge_asked=True)]
    report = roll_up("s", trials, k=2, grader_required=True)
    assert report.reasons == ["ungraded: 1 of 2 trials have no verdict"]
    never_asked = roll_up("s", [judged_trial(0, True)], k=1, grader_required=True)
    assert "ungraded" in never_asked.reasons[0]


def test_where_the_judge_gates_a_missing_verdict_is_no_failure_of_the_bot():
    trials = [graded(0, 0.9, True), judged_trial(1, True, judge_asked=True), judged_trial(2, False, judge_asked=True)]
    report = roll_up("s", trials, k=3, grader_required=True)
    assert (report.decided, report.passing, report.pass_rate) == (2, 1, 0.5)
    rejected = roll_up("s", [graded(0, 0.1, None)], k=1, grader_required=True)
    assert (rejected.decided, rejected.pass_rate) == (1, 0.0)


def test_a_bot_failure_is_not_ungraded_where_the_judge_gates():
    broken = judged_trial(1, False, outcome=Outcome.BOT_FAILURE)
    report = roll_up("s", capability(graded(0, 0.9, True), broken), k=2, grader_required=True)
    assert report.ungraded == 0
    assert report.passed
    assert report.pass_rate == 0.5


def test_a_fault_that_never_fired_is_a_warning_that_names_the_tools_called():
    rule = RuleReport(0, "pay_api", Action.ERROR, None, 0, 0)
    report = roll_up("s", [faulted(index, rule, tools=["payment_api", "look"]) for index in range(3)], k=3)
    assert report.not_exercised == 3
    (warning,) = report.warnings
    assert warning == (
        "fault on 'pay_api' never matched in any of 3 trials: 0 calls seen; tools called: look, payment_api"
    )
    assert report.passed


def test_a_fault_on_a_later_call_than_there_were_says_how_many_there_were():
    rule = RuleReport(0, "pay", Action.ERROR, 5, 0, 2)
    (warning,) = roll_up("s", [faulted(0, rule, tools=["pay", "pay"])], k=1).warnings
    assert "2 calls seen, index 5 wanted" in warning


def test_strict_faults_fail_the_scenario_and_leave_the_rates_alone():
    missed = RuleReport(0, "pay", Action.ERROR, None, 0, 0)
    hit = replace(missed, fired=1, calls_seen=1)
    report = roll_up("s", [faulted(0, missed), faulted(1, hit)], k=2, strict_faults=True)
    assert report.reasons == ["not exercised: no fault took place in 1 of 2 trials"]
    assert report.pass_rate == 1.0
    assert report.warnings == []
    assert roll_up("s", [faulted(0, hit)], k=1, strict_faults=True).passed


def test_one_rule_of_two_that_fired_is_exercised_and_the_other_is_told():
    hit = RuleReport(0, "pay", Action.ERROR, None, 2, 2)
    missed = RuleReport(1, "look", Action.ERROR, None, 0, 0)
    report = roll_up("s", [faulted(0, hit, missed)], k=1, strict_faults=True)
    assert report.not_exercised == 0
    assert ["'look'" in warning for warning in report.warnings] == [True]
    assert report.reasons == ["not exercised: fault on 'look' never matched"]
    assert roll_up("s", [faulted(0, hit, missed)], k=1).passed


def test_a_summary_takes_scores_and_no_scores():
    assert summarize("s", results("gate", True), [0.5, 1.0]).mean_grader_score == 0.75
    assert summarize("s", results("gate", True)).mean_grader_score is None
    assert summarize("s", results("gate", True)).judged == 1


def test_a_capability_that_held_with_a_doubt_is_told():
    doubted = [AssertionResult("cheap", ABLE, True, "warning: the trace holds no token counts")]
    trials = [
        judged_trial(0, True, assertions=doubted),
        judged_trial(1, True, assertions=doubted),
        judged_trial(2, True),
    ]
    report = roll_up("s", trials, k=3)
    assert report.warnings == ["cheap held as far as it can be seen in 2 of 3 trials: the trace holds no token counts"]


def test_a_gate_without_a_rubric_says_that_nobody_was_asked():
    report = roll_up("s", [judged_trial(0, True)], k=1, grader_required=True)
    assert report.reasons == ["ungraded: no judge was asked, for there is no rubric"]


def test_a_fault_that_fired_without_a_mark_is_pointed_out():
    unfired = RuleReport(0, "pay", Action.ERROR, None, 0, 1)
    hit = {**tool_span("pay", success=False), "error_type": "sonar_eval.errors.InjectedFault"}
    trial = judged_trial(0, True, faults=[unfired], transcript=Transcript("c", spans=[hit]))
    (warning,) = roll_up("s", [trial], k=1).warnings
    assert "never matched" in warning
    assert "let a FaultGate apply faults" in warning


def test_a_mean_that_misses_the_threshold_by_its_arithmetic_alone_reaches_it():
    trials = [graded(index, score, True) for index, score in enumerate((0.5, 0.95, 0.95))]
    report = roll_up("s", trials, k=3, grader_required=True, grader_threshold=0.8)
    assert report.mean_grader_score < 0.8
    assert not [reason for reason in report.reasons if "judge mean" in reason]
