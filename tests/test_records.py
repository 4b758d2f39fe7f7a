import json
from dataclasses import replace

import pytest

from fakes import errored_trial, judged_trial, tool_span
from sonar_eval import (
    Action,
    AssertionResult,
    ConversationLog,
    CriterionResult,
    CriterionVerdict,
    EndReason,
    Form,
    FormField,
    FormSubmission,
    GraderResult,
    Outcome,
    Owner,
    Severity,
    Transcript,
    TrialFailure,
    TrialResult,
    Turn,
)
from sonar_eval.conversation import RoleBreak
from sonar_eval.interceptor import RuleReport
from sonar_eval.metrics import roll_up
from sonar_eval.records import SCHEMA_VERSION, read_trial, scenario_record, trial_record

FORM = Form("order", "Your order", (FormField("size", "choice", True, ("small", "large")), FormField("note")))
RICH = TrialResult(
    "c7",
    [
        AssertionResult("gate", Severity.SAFETY_CRITICAL, True),
        AssertionResult("helps", Severity.CAPABILITY, False, "nothing the bot said matches"),
        AssertionResult("calm", Severity.SAFETY_CRITICAL, False, "unknown: no spans", unknown=True),
    ],
    GraderResult(
        0.8,
        "fine",
        True,
        criteria=(
            CriterionResult("asked first", CriterionVerdict.PASSED, "it asked"),
            CriterionResult("honest", CriterionVerdict.CANNOT_TELL),
        ),
        repeats=3,
        scores=(0.7, 0.9),
        agreement=0.5,
        shortened=True,
    ),
    ConversationLog(
        "c7",
        [
            Turn("hi", ("Please fill in.", "Take your time."), None, (FORM,), 0.25),
            Turn("{…}", (), FormSubmission("order", {"size": "large", "note": None}), (), None, ("menu.png",)),
        ],
        True,
        EndReason.USER,
        role_breaks=[RoleBreak(2, "it repeats the chatbot's last message", "Please fill in.")],
        final_state={"orders": {"A-1": {"paid": 3.8}}},
    ),
    index=7,
    outcome=Outcome.BOT_FAILURE,
    failure=TrialFailure(Owner.BOT, "turn 2", "RuntimeError", "RuntimeError: bot exploded"),
    grader_failure=TrialFailure(Owner.JUDGE, "verdict", "unreadable", "score 8 names no scale"),
    transcript=Transcript(
        "c7",
        runs=[{"trace_id": "t1", "input_tokens": 113, "output_tokens": 11}],
        spans=[tool_span("pay", success=None)],
        content=[{"span_id": "pay", "type": "tool_result", "value": {"nested": [1, 2.5, None]}}],
        completeness={"level": 2, "complete": True, "reasons": []},
    ),
    faults=[RuleReport(0, "pay", Action.TIMEOUT, 1, 1, 2), RuleReport(1, "look", Action.LATENCY, None, 0, 0)],
    random_seed=2**62 + 1,
    duration_s=1.5,
    started_at="2025-01-01T00:00:00+00:00",
    earlier_failures=[TrialFailure(Owner.INGEST, "pull", "EmptyTranscriptError", "no transcript")],
    warnings=["teardown failed: OSError: busy"],
    judge_asked=True,
)


@pytest.mark.parametrize(
    "trial",
    [RICH, judged_trial(3, True, None), errored_trial(1), replace(RICH, transcript=None, grader=None)],
    ids=["rich", "plain", "errored", "without transcript"],
)
def test_a_trial_comes_back_from_its_record_as_it_was(trial):
    record = json.loads(json.dumps(trial_record("s", trial)))
    assert read_trial(record) == trial


def test_a_record_without_the_later_fields_is_read_as_well():
    record = json.loads(json.dumps(trial_record("s", RICH)))
    record["grader"] = {"score": 0.8, "reasoning": "fine", "passed": True, "error": None}
    del record["role_breaks"]
    for turn in record["conversation"]:
        del turn["media"]
    trial = read_trial(record)
    assert trial.grader == GraderResult(0.8, "fine", True)
    assert trial.log.role_breaks == []
    assert [turn.media for turn in trial.log.turns] == [(), ()]


def test_a_trial_record_says_at_its_top_what_people_look_for():
    record = trial_record("refund", replace(RICH, outcome=Outcome.JUDGED, failure=None))
    wanted = {
        "schema_version": SCHEMA_VERSION,
        "scenario": "refund",
        "conversation_id": "c7",
        "index": 7,
        "outcome": "judged",
        "passed": False,
        "turns": 2,
        "terminated": True,
        "ended_by": "user",
        "tokens": {"input": 113, "output": 11},
        "not_exercised": False,
        "redacted": False,
    }
    assert {key: record[key] for key in wanted} == wanted


def test_a_trial_record_tells_whether_the_trial_passed_by_the_rule_of_the_run():
    rejected = judged_trial(0, True, grader=GraderResult(0.1, "no", False), judge_asked=True)
    assert trial_record("s", rejected)["passed"] is True
    assert trial_record("s", rejected, grader_required=True)["passed"] is False


def test_tokens_that_nobody_counted_are_not_zero():
    assert trial_record("s", replace(RICH, transcript=Transcript("c7")))["tokens"] is None
    assert trial_record("s", replace(RICH, transcript=None))["tokens"] is None


def test_a_record_tells_when_content_was_withheld():
    content = [{"span_id": "pay", "value": None, "redaction": {"by": "collector"}}]
    assert trial_record("s", replace(RICH, transcript=replace(RICH.transcript, content=content)))["redacted"]


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, None, "1", 1.5])
def test_a_record_of_a_schema_that_is_not_known_is_refused(version):
    record = {**trial_record("s", RICH), "schema_version": version}
    with pytest.raises(ValueError, match="schema"):
        read_trial(record)


def test_a_scenario_record_holds_the_six_counts_the_verdict_and_its_reasons():
    cut = replace(judged_trial(1, True), log=replace(judged_trial().log, ended_by=EndReason.TURN_LIMIT))
    trials = [judged_trial(0, True), cut, judged_trial(2, False, judge_asked=True), errored_trial(3)]
    record = scenario_record(roll_up("refund", trials, k=4))
    wanted = {
        "schema_version": SCHEMA_VERSION,
        "scenario": "refund",
        "asked": 4,
        "judged": 3,
        "errored": 1,
        "ungraded": 1,
        "cut_off": 1,
        "not_exercised": 0,
        "passed": False,
        "reasons": ["a0 (safety_critical): held in 2 of 3, 1 not measured"],
        "error": None,
        "pass_rate": pytest.approx(2 / 3),
    }
    assert {key: record[key] for key in wanted} == wanted
    (metric,) = record["assertions"]
    assert (metric["evaluated"], metric["passes"], metric["pass_hat_k"]) == (3, 2, 0.0)
    assert json.loads(json.dumps(record)) == record


def graded(index, *verdicts, agreement=None):
    criteria = tuple(CriterionResult(f"c{place}", said, "") for place, said in enumerate(verdicts))
    grader = GraderResult(0.5, "", False, criteria=criteria, agreement=agreement)
    return judged_trial(index, True, grader=grader, judge_asked=True)


def test_a_scenario_record_rolls_criteria_agreement_and_role_breaks_up():
    passed, failed, unknown = CriterionVerdict.PASSED, CriterionVerdict.FAILED, CriterionVerdict.CANNOT_TELL
    trials = [
        graded(0, passed, unknown, agreement=1.0),
        graded(1, failed, unknown, agreement=0.5),
        judged_trial(2, True),
    ]
    trials[2].log.role_breaks.append(RoleBreak(4, "it says 'How can I help you'", "How can I help you?"))
    record = scenario_record(roll_up("s", trials, k=3))
    assert record["criteria"] == [
        {"name": "c0", "passed": 1, "failed": 1, "cannot_tell": 0, "pass_rate": 0.5},
        {"name": "c1", "passed": 0, "failed": 0, "cannot_tell": 2, "pass_rate": None},
    ]
    assert (record["judge_agreement"], record["role_breaks"]) == (0.75, 1)
    (warning,) = record["warnings"]
    assert "in 1 of 3 trials, e.g. trial 3, turn 4: it says 'How can I help you'" in warning
    plain = scenario_record(roll_up("s", [judged_trial(0, True)], k=1))
    assert (plain["criteria"], plain["judge_agreement"], plain["role_breaks"], plain["warnings"]) == ([], None, 0, [])
