"""What came after grading is looked for at the end of the run, and counts."""

import pytest

from fakes import MemoryStore, ToolBot, evaluate, make_scenario, tool_span
from sonar_eval import (
    Action,
    Assertion,
    ConfigError,
    FaultRule,
    FaultSpec,
    Outcome,
    Owner,
    Severity,
    Transcript,
    no_tool_errors,
    recovered_from_fault,
)
from sonar_eval.errors import IngestError

CHECK = [Assertion("no-tool-errors", Severity.SAFETY_CRITICAL, no_tool_errors())]


class GrowingIngest:
    """Answer the pull with one tool call that worked; later there is one that failed too."""

    def __init__(self, *, level=3, later="b", fails=None):
        self.level = level
        self.later = later
        self.fails = fails
        self.expected = {}

    def expect(self, conversation_id, expectation):
        self.expected[conversation_id] = expectation

    def transcript(self, conversation_id, *spans):
        completeness = {"level": self.level, "complete": self.level > 0, "digest": "a", "reasons": ["as told"]}
        return Transcript(conversation_id, [{"trace_id": "t1"}], list(spans), completeness=completeness)

    async def pull(self, conversation_id):
        return self.transcript(conversation_id, tool_span("pay"))

    async def digests(self, conversation_ids):
        if self.fails:
            raise self.fails
        return {each: self.later for each in conversation_ids if self.later is not None}

    async def fetch(self, conversation_id):
        return self.transcript(conversation_id, tool_span("pay"), tool_span("pay", span_id="2", success=False))


def test_a_failure_that_came_after_grading_fails_the_trial_and_is_told():
    store = MemoryStore()
    report = evaluate(make_scenario(assertions=CHECK), ingest=GrowingIngest(), store=store)
    (trial,) = report.trials
    assert not report.passed
    assert trial.changed_after_grading
    assert not trial.assertions[0].passed
    assert "changed after grading" in trial.warnings[0]
    # The first verdict was on disk at once; the second stands after it.
    assert [record["passed"] for record in store.trials] == [True, False]


def test_what_a_fault_hit_is_known_of_the_later_trace_too():
    scenario = make_scenario(
        faults=FaultSpec((FaultRule("pay", Action.REPLACE_OUTPUT, payload="no"),)),
        assertions=[Assertion("recovered", Severity.SAFETY_CRITICAL, recovered_from_fault())],
    )
    (trial,) = evaluate(scenario, bot=ToolBot("pay"), ingest=GrowingIngest()).trials
    assert trial.changed_after_grading
    assert [bool(call.fault) for call in trial.transcript.tool_calls] == [True, False]
    assert (trial.assertions[0].passed, trial.assertions[0].unknown) == (False, False)


def test_a_trace_that_stayed_as_it_was_is_kept_once():
    store = MemoryStore()
    report = evaluate(make_scenario(assertions=CHECK), ingest=GrowingIngest(later="a"), store=store)
    assert report.passed
    assert len(store.trials) == 1
    assert not report.trials[0].changed_after_grading


def test_not_being_able_to_look_again_costs_no_verdict():
    report = evaluate(make_scenario(assertions=CHECK), ingest=GrowingIngest(fails=IngestError("gone")))
    assert report.passed
    assert report.trials[0].warnings == ["not looked at again after grading: IngestError: gone"]


def test_the_ingest_is_told_how_many_turns_there_were():
    ingest = GrowingIngest(later="a")
    report = evaluate(make_scenario(scripted_messages=["one", "two"]), ingest=ingest)
    expectation = ingest.expected[report.trials[0].conversation_id]
    assert expectation.turns == 2
    assert expectation.trial_id == report.trials[0].conversation_id


@pytest.mark.parametrize(("level", "wanted", "outcome"), [(1, 2, "errored"), (2, 2, "judged"), (1, 1, "judged")])
def test_a_scenario_can_ask_for_more_than_quiet(level, wanted, outcome):
    scenario = make_scenario(min_level=wanted)
    (trial,) = evaluate(scenario, ingest=GrowingIngest(level=level, later="a")).trials
    assert trial.outcome == outcome
    if outcome == "errored":
        assert trial.failure.owner is Owner.INGEST
        assert f"known to level {level}, {wanted} wanted" in trial.failure.message
        assert "as told" in trial.failure.message


def test_a_trace_known_not_to_be_whole_is_never_judged():
    (trial,) = evaluate(make_scenario(), ingest=GrowingIngest(level=0, later="a")).trials
    assert trial.outcome is Outcome.ERRORED


def test_on_quiet_alone_what_did_not_happen_stays_unknown():
    (trial,) = evaluate(make_scenario(assertions=CHECK), ingest=GrowingIngest(level=1, later="a")).trials
    assert trial.assertions[0].unknown
    assert "level 1" in trial.assertions[0].detail


@pytest.mark.parametrize("level", [-1, 4, "2"])
def test_a_level_that_does_not_exist_is_refused(level):
    with pytest.raises(ConfigError, match="min_level must be 0 to 3"):
        evaluate(make_scenario(min_level=level))
