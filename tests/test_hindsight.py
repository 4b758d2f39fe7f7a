"""Judging without calling the bot: what is stored, and what only a trace tells of."""

import pytest

from fakes import evaluate, judged_trial, make_scenario, make_task, run, tool_span, verdict
from sonar_eval import (
    Assertion,
    ConversationLog,
    EndReason,
    Grader,
    LLMConfig,
    Outcome,
    Owner,
    ScriptedClient,
    Severity,
    Transcript,
    TrialFailure,
    Turn,
    bot_said,
    conversation_finished,
    max_turns,
    no_tool_errors,
    tool_was_called,
)
from sonar_eval.errors import IngestError
from sonar_eval.hindsight import judge_again, judge_conversation
from sonar_eval.records import trial_record
from sonar_eval.report import side_by_side, verdict_changes
from sonar_eval.transcript import turns_of


def scenario(*assertions, **changes):
    checks = [Assertion(name, Severity.SAFETY_CRITICAL, check) for name, check in assertions]
    return make_task().resolve(make_scenario(assertions=checks, **changes))


def judges(*replies):
    client = ScriptedClient(list(replies))
    return client, lambda resolved: Grader(client, LLMConfig("judge"), resolved.grader_rubric or "")


def message(role, value, seq, span="llm2", **more):
    return {"span_id": span, "trace_id": "t2", "seq": seq, "role": role, "type": "message", "value": value, **more}


def trace(*content, runs=2, spans=()):
    return Transcript(
        "c1", [{"trace_id": f"t{n + 1}"} for n in range(runs)], list(spans) or [tool_span("pay")], [*content]
    )


TALK = (
    message("assistant", "Which one?", 0, span="llm1", trace_id="t1"),
    message("system", "Be kind.", 0),
    message("user", "A latte.", 1),
    message("assistant", "Which one?", 2),
    message("user", "Big.", 3),
    message("assistant", "Here you are.", 4),
)


# Trials that are stored.


def test_a_stored_trial_gets_the_verdicts_of_other_assertions_and_keeps_its_old_ones():
    report = evaluate(make_scenario(assertions=[Assertion("old", Severity.SAFETY_CRITICAL, bot_said("never"))]))
    (before,) = report.trials
    again = run(judge_again(scenario(("said-ok", bot_said("ok"))), before))
    assert [(result.name, result.passed) for result in again.assertions] == [("said-ok", True)]
    assert [(result.name, result.passed) for result in before.assertions] == [("old", False)]
    assert (again.conversation_id, again.index, again.random_seed) == (
        before.conversation_id,
        before.index,
        before.random_seed,
    )


def test_a_stored_trial_is_put_before_another_judge():
    (before,) = evaluate(make_scenario(grader_rubric="old"), judge=[verdict(0.9)]).trials
    client, factory = judges(verdict(0.2, "worse"))
    again = run(judge_again(scenario(grader_rubric="new"), before, factory))
    assert (before.grader.score, again.grader.score) == (0.9, 0.2)
    assert "new" in client.requests[0].messages[0].content
    unasked = run(judge_again(scenario(grader_rubric="new"), before))
    assert (unasked.judge_asked, unasked.grader) == (False, None)


def test_a_judge_that_fails_leaves_the_trial_ungraded_again():
    (before,) = evaluate(make_scenario()).trials
    _, factory = judges("no verdict")
    again = run(judge_again(scenario(grader_rubric="new"), before, factory))
    assert (again.ungraded, again.grader_failure.owner) == (True, Owner.JUDGE)


def test_what_said_nothing_about_the_bot_is_not_judged_after_the_fact():
    failure = TrialFailure(Owner.INGEST, "pull", "IngestError", "no answer")
    before = judged_trial(0, outcome=Outcome.ERRORED, failure=failure, transcript=trace())
    client, factory = judges(verdict(1.0))
    again = run(judge_again(scenario(("called", tool_was_called("pay")), grader_rubric="x"), before, factory))
    assert (again.outcome, again.assertions, again.grader) == (Outcome.ERRORED, [], None)
    assert client.requests == []


def test_a_bot_that_failed_holds_none_of_the_other_assertions_either():
    failure = TrialFailure(Owner.BOT, "turn 1", "RuntimeError", "bot exploded")
    before = judged_trial(0, outcome=Outcome.BOT_FAILURE, failure=failure, transcript=trace())
    again = run(judge_again(scenario(("called", tool_was_called("pay"))), before))
    assert [(result.passed, "bot exploded" in result.detail) for result in again.assertions] == [(False, True)]


# Conversations of others.


def test_turns_are_read_from_the_last_model_call_in_order():
    assert turns_of(trace(*reversed(TALK))) == [Turn("A latte.", ("Which one?",)), Turn("Big.", ("Here you are.",))]


@pytest.mark.parametrize(
    "content",
    [
        (),
        TALK[:1],
        (*TALK[:2], message("user", None, 1, redaction={"by": "collector"}), *TALK[3:]),
        (*TALK[:5], message("assistant", "Here you", 4, cut=True)),
        TALK[3:],
    ],
    ids=["nothing", "no user", "withheld", "cut", "fewer than traces"],
)
def test_turns_that_are_not_all_there_are_not_known(content):
    assert turns_of(trace(*content)) is None


def outcomes(result):
    return {one.name: "unknown" if one.unknown else one.passed for one in result.assertions}


CHECKS = (
    ("called", tool_was_called("pay")),
    ("no-errors", no_tool_errors()),
    ("short", max_turns(2)),
    ("served", bot_said("here you are")),
    ("finished", conversation_finished()),
    ("state", lambda transcript, log: log.final_state is None),
    ("cut-off", lambda transcript, log: not log.cut_off),
)


def test_a_conversation_is_judged_by_what_its_trace_tells_and_the_rest_is_unknown():
    client, factory = judges(verdict(0.8))
    result = run(judge_conversation(scenario(*CHECKS, grader_rubric="kind"), trace(*TALK), factory))
    assert outcomes(result) == {
        "called": True,
        "no-errors": True,
        "short": True,
        "served": True,
        "finished": "unknown",
        "state": "unknown",
        "cut-off": "unknown",
    }
    assert "does not tell who ended the conversation" in result.assertions[4].detail
    assert result.grader.score == 0.8
    assert "user: Big." in client.requests[0].messages[0].content
    assert not result.passes()


def test_without_its_words_nothing_about_a_conversation_s_words_is_judged():
    client, factory = judges(verdict(0.8))
    result = run(judge_conversation(scenario(*CHECKS, grader_rubric="kind"), trace(TALK[0]), factory))
    assert outcomes(result) == {"called": True, "no-errors": True} | dict.fromkeys(
        ["short", "served", "finished", "state", "cut-off"], "unknown"
    )
    assert client.requests == []
    assert (result.ungraded, result.grader_failure.message) == (
        True,
        "the trace does not tell what the user and the bot said to each other",
    )
    assert result.warnings


def test_a_trace_that_is_not_whole_is_not_judged():
    partial = trace(*TALK)
    partial.completeness = {"complete": False, "reasons": ["the root span is missing"]}
    with pytest.raises(IngestError, match="the root span is missing"):
        run(judge_conversation(scenario(), partial))


# What people see of it.


def record(trial, **changes):
    return {**trial_record("s", trial), **changes}


def test_what_changed_in_a_verdict_is_said_and_nothing_else():
    old, new = record(judged_trial(2, True, False, None)), record(judged_trial(2, True, True, False))
    new["assertions"][1]["detail"] = "now it does"
    assert verdict_changes(old, new) == [
        "trial 3: not passed, as before",
        "    a1: NOT held -> held: now it does",
        "    a2: unknown -> NOT held",
    ]
    graded = record(judged_trial(2, True), judge_asked=True, grader={"score": 0.5, "reasoning": ""})
    assert verdict_changes(record(judged_trial(2, True, True)), graded) == [
        "trial 3: passed, as before",
        "    a1: held -> not asked",
        "    judge: not asked -> 0.50",
    ]
    assert verdict_changes(old, {**new, "passed": True})[0] == "trial 3: not passed -> passed"


def test_two_trials_stand_side_by_side_turn_by_turn():
    long = ConversationLog("c9", [Turn("one", ("first",)), Turn("two " * 30, ("second",))], True, EndReason.USER)
    lines = side_by_side(record(judged_trial(0, True)), record(judged_trial(0, False, log=long)), width=80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    (first,) = [line for line in lines if "User: one" in line]
    assert first.startswith("User: hi ")
    assert any(line.startswith(" ") and line.endswith("Bot: second") for line in lines)
    (held,) = [line for line in lines if "a0" in line]
    assert "a0: held" in held.split(" | ")[0]
    assert "a0: NOT held" in held.split(" | ")[1]
