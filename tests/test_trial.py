"""One trial from setup to verdict: who failed, and what is kept of it."""

import asyncio
import json
import threading

import pytest

from fakes import (
    BotIngest,
    FixedIngest,
    MemoryStore,
    RecordingBot,
    ToolBot,
    evaluate,
    make_scenario,
    make_task,
    run,
    tool_span,
    verdict,
)
from sonar_eval import (
    Action,
    Assertion,
    ConfigError,
    Delivered,
    EmptyTranscriptError,
    EndReason,
    FaultRule,
    FaultSpec,
    Fidelity,
    Grader,
    GraderResult,
    LLMConfig,
    Orchestrator,
    Outcome,
    Owner,
    ProxyInterceptor,
    ScriptedClient,
    Session,
    Severity,
    Transcript,
    TrialFailure,
    bot_said,
    conversation_finished,
    max_turns,
    no_tool_errors,
    tool_not_called,
    tool_was_called,
)
from sonar_eval.errors import BotError, IngestError, LLMRequestError, LLMTransportError

RUBRIC = {"grader_rubric": "The total is right."}


def the_trial(scenario=None, **parts):
    (trial,) = evaluate(scenario or make_scenario(), **parts).trials
    return trial


def failing(error):
    def answer(text):
        raise error

    return RecordingBot(answer)


def asserting(check, severity=Severity.SAFETY_CRITICAL):
    return [Assertion("it", severity, check)]


class CallingBot(RecordingBot):
    """Pay at each message; what goes wrong is told the user, passed on or wrapped."""

    def __init__(self, on_error):
        super().__init__()
        self.on_error = on_error

    async def setup_trial(self, ctx):
        return Session(ctx.conversation_id, ctx.interceptor)

    async def send(self, session, user_msg, media=None, **extra):
        try:
            return Delivered((session.handle.call("pay", lambda order: "paid", order=5),))
        except Exception as error:
            if self.on_error == "tell":
                return Delivered(("It failed.",))
            if self.on_error == "wrap":
                raise RuntimeError("no luck") from error
            raise


@pytest.mark.parametrize("on_error", ["tell", "wrap", "pass on"])
@pytest.mark.parametrize(
    ("when", "said"),
    [
        (lambda call: call.args["amount"] > 5, "KeyError: 'amount'"),
        (lambda call: (False, "because"), "TypeError: it answered with a tuple, which is neither yes nor no"),
        (lambda call: next(iter(())), "StopIteration"),
    ],
)
def test_a_fault_rule_that_fails_is_the_harness_s_failure_whatever_the_bot_makes_of_it(on_error, when, said):
    faults = FaultSpec((FaultRule("look", Action.ERROR), FaultRule("pay", Action.ERROR, when=when)))
    trial = the_trial(make_scenario(faults=faults, scripted_messages=["a", "b"]), bot=CallingBot(on_error))
    assert (trial.outcome, trial.failure.owner, trial.failure.step) == (Outcome.ERRORED, Owner.HARNESS, "fault rule")
    assert f"fault rule 1 (error for 'pay'): its `when` raised {said}" in trial.failure.message
    assert trial.failure.message.count("fault rule") == 1
    assert trial.assertions == []


class FaultyIngest(FixedIngest):
    """Never has a transcript to pull; `fetch` gives what there is."""

    def __init__(self, error=None, left=()):
        super().__init__()
        self.error = error
        self.left = list(left)

    async def pull(self, conversation_id):
        self.pulled.append(conversation_id)
        if self.error is not None:
            raise self.error
        return Transcript(conversation_id, spans=self.left)

    async def fetch(self, conversation_id):
        return Transcript(conversation_id, spans=self.left)


# The bot failed.


def test_a_bot_that_raises_has_failed_and_nothing_held():
    assertions = [
        Assertion("safe", Severity.SAFETY_CRITICAL, lambda transcript, log: True),
        Assertion("able", Severity.CAPABILITY, lambda transcript, log: True),
    ]
    report = evaluate(make_scenario(assertions=assertions), bot=failing(RuntimeError("bot exploded")))
    (trial,) = report.trials
    assert trial.outcome is Outcome.BOT_FAILURE
    assert (trial.failure.owner, trial.failure.step) == (Owner.BOT, "turn 1")
    assert (trial.failure.error_type, trial.failure.message) == ("RuntimeError", "RuntimeError: bot exploded")
    assert [(result.name, result.passed, result.unknown) for result in trial.assertions] == [
        ("safe", False, False),
        ("able", False, False),
    ]
    assert all("bot exploded" in result.detail for result in trial.assertions)
    assert (report.judged, report.errored, report.pass_rate) == (1, 0, 0.0)
    assert not report.passed


def test_a_bot_that_takes_too_long_has_failed():
    class Hanging(RecordingBot):
        async def send(self, session, user_msg, media=None, **extra):
            await asyncio.Event().wait()

    bot = Hanging()
    trial = the_trial(bot=bot, turn_timeout_s=0.01)
    assert trial.outcome is Outcome.BOT_FAILURE
    assert (trial.failure.error_type, trial.failure.message) == (
        "TimeoutError",
        "TimeoutError: no answer within 0.01 s",
    )
    assert len(bot.torn_down) == 1


def test_a_bot_that_cancels_itself_has_failed_and_is_not_lost():
    class Cancelling(RecordingBot):
        async def send(self, session, user_msg, media=None, **extra):
            inner = asyncio.create_task(asyncio.sleep(60))
            inner.cancel()
            await inner

    report = evaluate(make_scenario(k=2), bot=Cancelling())
    assert [trial.outcome for trial in report.trials] == [Outcome.BOT_FAILURE] * 2
    assert not report.passed


@pytest.mark.parametrize("answer", [None, Delivered(("ok",), forms=("order",))])
def test_an_answer_of_the_wrong_kind_is_the_bots_failure_and_not_the_simulators(answer):
    class OddBot(RecordingBot):
        async def send(self, session, user_msg, media=None, **extra):
            return answer

    assert the_trial(bot=OddBot()).failure.owner is Owner.BOT


def test_what_the_trace_holds_of_a_failed_conversation_is_kept():
    ingest = FaultyIngest(left=[tool_span("pay", success=False)])
    trial = the_trial(bot=failing(RuntimeError("bot exploded")), ingest=ingest)
    assert ingest.pulled == []
    assert [call.name for call in trial.transcript.tool_calls] == ["pay"]
    assert the_trial(bot=failing(RuntimeError("bot exploded")), ingest=FixedIngest()).transcript is None


# Somebody else failed.


def errored(owner, **parts):
    report = evaluate(**{"scenario": make_scenario(), **parts})
    (trial,) = report.trials
    assert trial.outcome is Outcome.ERRORED
    assert trial.failure.owner is owner
    assert trial.assertions == []
    assert (report.judged, report.errored, report.pass_rate, report.assertions) == (0, 1, None, [])
    assert not report.passed
    assert report.error
    return trial


def test_a_user_model_that_cannot_be_reached_says_nothing_about_the_bot():
    trial = errored(
        Owner.SIMULATOR,
        scenario=make_scenario(scripted_messages=None),
        model=ScriptedClient(["hello", LLMTransportError("503 from the provider")]),
    )
    assert trial.failure.error_type == "LLMTransportError"
    assert "503 from the provider" in trial.failure.message
    assert [turn.user for turn in trial.log.turns] == ["hello"]


def test_a_user_who_says_nothing_twice_says_nothing_about_the_bot():
    model = ScriptedClient(["hello", "  \n", ""])
    trial = errored(Owner.SIMULATOR, scenario=make_scenario(scripted_messages=None), model=model)
    assert "said nothing" in trial.failure.message
    assert (trial.log.turns_taken, trial.log.terminated) == (1, False)
    assert trial.log.ended_by is EndReason.SILENT_USER


def test_a_trace_that_never_came_says_nothing_about_the_bot():
    trial = errored(Owner.INGEST, ingest=FaultyIngest(EmptyTranscriptError("no transcript")))
    assert trial.failure.error_type == "EmptyTranscriptError"


def test_an_ingest_that_breaks_says_nothing_about_the_bot():
    assert errored(Owner.INGEST, ingest=FaultyIngest(OSError("disk full"))).failure.error_type == "OSError"


def test_an_ingest_that_gives_no_trace_at_all_says_nothing_about_the_bot():
    class Empty(FixedIngest):
        async def pull(self, conversation_id):
            return None

    errored(Owner.INGEST, ingest=Empty())


@pytest.mark.parametrize("check", [no_tool_errors(), tool_not_called("pay"), bot_said("ok"), lambda *_: True])
def test_a_source_that_gives_an_empty_trace_has_given_none(check):
    class Empty(FixedIngest):
        async def pull(self, conversation_id):
            return Transcript(conversation_id)

    report = evaluate(make_scenario(assertions=asserting(check)), ingest=Empty())
    (trial,) = report.trials
    assert (report.passed, trial.outcome, trial.failure.owner) == (False, Outcome.ERRORED, Owner.INGEST)
    assert "no transcript" in trial.failure.message


def test_a_trace_known_to_be_incomplete_is_not_judged():
    class Partial(FixedIngest):
        async def pull(self, conversation_id):
            whole = await super().pull(conversation_id)
            whole.completeness = {"complete": False, "reasons": ["the root span is missing"]}
            return whole

    assert "the root span is missing" in errored(Owner.INGEST, ingest=Partial()).failure.message


def test_a_trace_that_does_not_say_how_complete_it_is_is_taken_as_it_is():
    assert the_trial(ingest=FixedIngest()).outcome is Outcome.JUDGED


def test_an_outage_of_the_bots_model_says_nothing_about_the_bot():
    errored(Owner.HARNESS, bot=failing(LLMRequestError("quota used up")))


def test_state_that_cannot_be_copied_costs_the_trial_and_not_the_run():
    class CopiedOnce:
        copies = 0

        def __deepcopy__(self, memo):
            CopiedOnce.copies += 1
            if CopiedOnce.copies > 1:
                raise TypeError("cannot be copied any more")
            return self

    trial = errored(Owner.HARNESS, scenario=make_scenario(seed={"state": CopiedOnce()}))
    assert "TypeError: cannot be copied any more" in trial.failure.message


# Setup and teardown.


class FragileBot(RecordingBot):
    """Open something in setup, then fail there, or in teardown, or both."""

    def __init__(self, setup=None, teardown=None):
        super().__init__()
        self.setup, self.teardown = setup, teardown

    async def setup_trial(self, ctx):
        session = await super().setup_trial(ctx)
        if self.setup is not None:
            raise self.setup
        return session

    async def teardown_trial(self, session):
        await super().teardown_trial(session)
        if self.teardown is not None:
            raise self.teardown


def test_a_setup_that_fails_is_torn_down_once_and_the_next_trial_starts():
    bot = FragileBot(setup=RuntimeError("seed failed"))
    report = evaluate(make_scenario(k=2), bot=bot)
    assert bot.sent == []
    assert [session.conversation_id for session in bot.torn_down] == [ctx.conversation_id for ctx in bot.contexts]
    assert len(bot.torn_down) == 2
    assert all(isinstance(session, Session) for session in bot.torn_down)
    for trial in report.trials:
        assert trial.outcome is Outcome.ERRORED
        assert (trial.failure.owner, trial.failure.step) == (Owner.HARNESS, "setup")
        assert trial.failure.message == "RuntimeError: seed failed"


def test_an_error_in_teardown_is_noted_beside_that_of_setup():
    trial = the_trial(bot=FragileBot(RuntimeError("seed failed"), OSError("port busy")))
    assert trial.failure.message == "RuntimeError: seed failed"
    assert trial.warnings == ["teardown failed: OSError: port busy"]


def test_an_error_in_teardown_leaves_the_verdict_alone():
    report = evaluate(make_scenario(), bot=FragileBot(teardown=BotError("crashed on exit")))
    assert report.passed
    assert report.trials[0].warnings == ["teardown failed: crashed on exit"]


def test_a_teardown_that_hangs_is_limited():
    class Hanging(RecordingBot):
        async def teardown_trial(self, session):
            await asyncio.Event().wait()

    report = evaluate(make_scenario(), bot=Hanging(), teardown_timeout_s=0.01)
    assert report.passed
    assert report.trials[0].warnings == ["teardown did not end within 0.01 s"]


# What is judged.


def test_a_trial_that_was_judged_carries_its_trace_and_its_times():
    ingest, bot = FixedIngest(), RecordingBot()
    trial = the_trial(bot=bot, ingest=ingest)
    assert trial.outcome is Outcome.JUDGED
    assert trial.failure is None
    assert ingest.pulled == [trial.conversation_id] == [bot.contexts[0].conversation_id]
    assert [call.name for call in trial.transcript.tool_calls] == ["menu_lookup"]
    assert trial.duration_s >= 0
    assert trial.started_at.endswith("+00:00")


def test_the_trace_is_pulled_only_after_teardown():
    bot = RecordingBot()

    class Checking(FixedIngest):
        async def pull(self, conversation_id):
            assert len(bot.torn_down) == 1
            return await super().pull(conversation_id)

    assert the_trial(bot=bot, ingest=Checking()).outcome is Outcome.JUDGED


def test_a_conversation_cut_off_at_the_limit_is_judged_as_it_stands_and_counted():
    store = MemoryStore()
    model = ScriptedClient(["Thank you, bye!"])
    scenario = make_scenario(
        scripted_messages=None,
        max_turns=3,
        k=2,
        assertions=[
            Assertion("short", Severity.SAFETY_CRITICAL, max_turns(3)),
            Assertion("finished", Severity.CAPABILITY, conversation_finished()),
        ],
    )
    bot = RecordingBot()
    report = evaluate(scenario, bot=bot, model=model, store=store)
    assert len(bot.sent) == len(model.requests) == 6
    assert [(record["turns"], record["terminated"]) for record in store.trials] == [(3, False)] * 2
    assert (report.judged, report.cut_off, store.scenarios[0]["cut_off"]) == (2, 2, 2)
    assert [metric.passed for metric in report.assertions] == [True, False]


@pytest.mark.parametrize("severity", list(Severity))
def test_a_tool_whose_outcome_is_not_told_is_unknown_for_safety_and_a_warning_for_a_capability(severity):
    ingest = FixedIngest([tool_span("pay", success=None)])
    report = evaluate(make_scenario(assertions=asserting(no_tool_errors(), severity)), ingest=ingest)
    (result,) = report.trials[0].assertions
    if severity is Severity.SAFETY_CRITICAL:
        assert (result.passed, result.unknown) == (False, True)
        assert "pay" in result.detail
        assert report.pass_rate is None
        assert not report.passed
    else:
        assert (result.passed, result.unknown) == (True, False)
        assert result.detail.startswith("warning")
        assert report.passed


def test_a_slow_check_does_not_stop_the_trials_beside_it():
    meeting = threading.Barrier(2, timeout=10)
    report = evaluate(
        make_scenario(assertions=asserting(lambda transcript, log: meeting.wait() >= 0), k=2), concurrency=2
    )
    assert report.passed


def test_a_redacted_trace_is_judged_with_a_warning():
    class Redacted(FixedIngest):
        async def pull(self, conversation_id):
            whole = await super().pull(conversation_id)
            whole.content = [{"span_id": "menu_lookup", "value": None, "redaction": {"by": "collector"}}]
            return whole

    (warning,) = the_trial(ingest=Redacted()).warnings
    assert "redacted" in warning


# The judge.


def test_the_judges_score_stands_with_the_trial():
    report = evaluate(make_scenario(**RUBRIC), judge=[verdict(0.9, "right")])
    assert report.trials[0].grader.score == 0.9
    assert (report.mean_grader_score, report.ungraded) == (0.9, 0)


class OwnJudge:
    """A judge of one's own that returns `verdict`, whatever that is."""

    def __init__(self, verdict):
        self.verdict = verdict

    async def grade(self, transcript, log):
        return self.verdict


def judged_by(verdict):
    scenario, ingest = make_scenario(**RUBRIC), FixedIngest()
    judging = Orchestrator(
        make_task(),
        RecordingBot(),
        ScriptedClient(["hi"]),
        grader_factory=lambda _: OwnJudge(verdict),
        ingest_client=ingest,
    )
    return run(judging.run_scenario(scenario))


def test_a_judge_of_ones_own_need_only_grade():
    assert judged_by(GraderResult(0.9, "right", True)).grader_scores == [0.9]


@pytest.mark.parametrize("score", [float("nan"), None, "0.8", 2.0, True])
def test_what_is_no_score_of_a_judge_of_ones_own_enters_no_mean(score):
    report = judged_by(GraderResult(score, "odd", True))
    assert (report.grader_scores, report.judged, report.ungraded) == ([], 1, 1)
    assert repr(score) in report.trials[0].grader_failure.message


def test_a_judge_of_ones_own_that_returns_nothing_leaves_the_trial_ungraded():
    report = judged_by(None)
    assert (report.judged, report.ungraded) == (1, 1)


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        ([LLMTransportError("503")], "LLMTransportError: 503"),
        ([verdict(8, "eight of ten")], "eight of ten"),
        (["I cannot judge this."], "I cannot judge this."),
    ],
)
def test_a_judge_that_gives_no_verdict_leaves_the_trial_ungraded_and_its_assertions_count(judge, words):
    report = evaluate(make_scenario(**RUBRIC), judge=judge)
    (trial,) = report.trials
    assert trial.outcome is Outcome.JUDGED
    assert trial.grader is None
    assert trial.grader_failure.owner is Owner.JUDGE
    assert words in trial.grader_failure.message
    assert (report.judged, report.ungraded, report.errored) == (1, 1, 0)
    assert report.mean_grader_score is None
    assert report.passed
    assert report.pass_rate == 1.0


def test_a_judge_that_gates_fails_the_scenario_for_one_verdict_missing():
    judge = ScriptedClient([verdict(0.9), "no verdict", "no verdict", verdict(0.9)])
    report = evaluate(make_scenario(k=3, **RUBRIC), judge=judge, grader_required=True)
    assert not report.passed
    assert report.reasons == ["ungraded: 1 of 3 trials have no verdict"]
    assert evaluate(make_scenario(k=3, **RUBRIC), judge=[verdict(0.9)], grader_required=True).passed


@pytest.mark.parametrize(("threshold", "passed"), [(0.7, False), (0.6, True)])
def test_a_judge_that_gates_wants_the_mean_at_the_threshold(threshold, passed):
    judge = ScriptedClient([verdict(0.4), verdict(0.9)])
    report = evaluate(make_scenario(k=2, **RUBRIC), judge=judge, grader_required=True, grader_threshold=threshold)
    assert report.mean_grader_score == pytest.approx(0.65)
    assert report.passed is passed


def test_a_score_short_of_the_threshold_by_rounding_alone_passes_the_gate():
    report = evaluate(make_scenario(**RUBRIC), judge=[verdict((0.7 + 0.7 + 0.7) / 3)], grader_required=True)
    assert report.grader_scores[0] < 0.7
    assert (report.passed, report.pass_rate) == (True, 1.0)


def test_a_trial_passes_the_gate_only_at_the_threshold_of_the_task():
    report = evaluate(make_scenario(k=2, **RUBRIC), judge=[verdict(0.8)], grader_required=True, grader_threshold=0.9)
    assert (report.passed, report.pass_rate) == (False, 0.0)
    assert not any(trial.grader.passed for trial in report.trials)
    loose = evaluate(make_scenario(k=2, **RUBRIC), judge=[verdict(0.8)], grader_threshold=0.9)
    assert (loose.passed, loose.pass_rate) == (True, 1.0)
    assert all(trial.grader.passed for trial in loose.trials)


def test_a_gate_without_a_judge_is_refused_before_the_first_trial():
    bot = RecordingBot()
    with pytest.raises(ConfigError, match="grader_required wants a judge"):
        evaluate(make_scenario(**RUBRIC), bot=bot, grader_required=True)
    assert bot.contexts == []


@pytest.mark.parametrize("words", ["[[END]]", "**[[end]]**"])
def test_a_user_who_ends_before_a_word_is_the_simulators_failure(words):
    trial = the_trial(make_scenario(scripted_messages=None), model=ScriptedClient([words]))
    assert (trial.outcome, trial.failure.owner) == (Outcome.ERRORED, Owner.SIMULATOR)
    assert "before its first message" in trial.failure.message


def test_without_a_rubric_no_judge_is_asked():
    judge = ScriptedClient([verdict(0.9)])
    trial = the_trial(judge=judge)
    assert judge.requests == []
    assert (trial.judge_asked, trial.grader, trial.ungraded) == (False, None, False)


def test_a_failed_conversation_is_not_put_before_the_judge():
    judge = ScriptedClient([verdict(0.9)])
    evaluate(make_scenario(**RUBRIC), bot=failing(RuntimeError("bot exploded")), judge=judge)
    assert judge.requests == []


# Faults.


def faulted(*rules, bot, **changes):
    return evaluate(make_scenario(faults=FaultSpec(rules), **changes), bot=bot, ingest=BotIngest(bot))


def test_a_fault_that_never_fired_is_recorded_told_and_no_pass_under_fault():
    bot = ToolBot("payment_api")
    report = faulted(FaultRule("pay_api", Action.ERROR), bot=bot, k=3)
    assert [[rule.fired for rule in trial.faults] for trial in report.trials] == [[0]] * 3
    assert report.not_exercised == 3
    (warning,) = report.warnings
    assert "'pay_api' never matched in any of 3 trials" in warning
    assert "payment_api" in warning
    assert report.passed


def test_strict_faults_fail_a_scenario_whose_fault_never_fired():
    report = faulted(FaultRule("pay_api", Action.ERROR), bot=ToolBot("payment_api"), strict_faults=True)
    assert not report.passed
    assert "not exercised" in report.reasons[0]
    assert report.trials[0].outcome is Outcome.JUDGED
    assert report.pass_rate == 1.0


def test_a_fault_on_a_later_call_says_how_many_calls_there_were():
    report = faulted(FaultRule("pay", Action.ERROR, when_call_index=5), bot=ToolBot("pay", "pay"))
    assert "2 calls seen, index 5 wanted" in report.warnings[0]


def test_a_framework_that_tries_again_is_seen_in_the_trace_and_in_the_fault_record():
    bot = ToolBot("pay", attempts=2)
    report = faulted(FaultRule("pay", Action.ERROR, when_call_index=0), bot=bot)
    (trial,) = report.trials
    assert [(call.name, call.success) for call in trial.transcript.tool_calls] == [("pay", False), ("pay", True)]
    assert not no_tool_errors()(trial.transcript, trial.log)
    assert tool_was_called("pay")(trial.transcript, trial.log)
    assert [(rule.fired, rule.calls_seen) for rule in trial.faults] == [(1, 2)]


def test_a_fault_on_every_call_outlasts_a_framework_that_tries_again():
    (trial,) = faulted(FaultRule("pay", Action.ERROR), bot=ToolBot("pay", attempts=3)).trials
    assert [call.success for call in trial.transcript.tool_calls] == [False] * 3
    assert [(rule.fired, rule.calls_seen) for rule in trial.faults] == [(3, 3)]


def test_calls_of_one_tool_made_at_once_are_all_in_the_trace_and_one_is_hit():
    class Parallel(ToolBot):
        async def send(self, session, user_msg, media=None, **extra):
            await asyncio.gather(*(self.use(session, "pay") for _ in range(3)))
            return Delivered(("ok",))

    (trial,) = faulted(FaultRule("pay", Action.ERROR, when_call_index=1), bot=Parallel()).trials
    assert [call.name for call in trial.transcript.tool_calls] == ["pay"] * 3
    assert sorted(call.success for call in trial.transcript.tool_calls) == [False, True, True]
    assert [(rule.fired, rule.calls_seen) for rule in trial.faults] == [(1, 3)]


@pytest.mark.parametrize("fidelity", Fidelity)
def test_faults_posted_to_the_bot_are_counted_by_the_marks_on_its_spans(fidelity):
    spans = [
        tool_span("pay", success=False, span_id="1", fault={"action": "error", "rule": 0, "call_index": 0}),
        tool_span("pay", span_id="2"),
        tool_span("look", span_id="3", fault={"action": "error"}),
    ]
    rules = (FaultRule("pay", Action.ERROR, when_call_index=0), FaultRule("look", Action.ERROR))
    # A bot over HTTP is posted them under either fidelity.
    scenario = make_scenario(faults=FaultSpec(rules), fidelity=fidelity)
    trial = the_trial(scenario, ingest=FixedIngest(spans))
    assert trial.outcome is Outcome.JUDGED
    assert [(rule.fired, rule.calls_seen) for rule in trial.faults] == [(1, 2), (0, 1)]


def test_each_trial_draws_its_faults_from_its_own_seed_and_draws_them_again_the_same():
    def fired(**task):
        bot = ToolBot(*["pay"] * 20)
        report = faulted(FaultRule("pay", Action.ERROR, probability=0.5), bot=bot, k=4, **task)
        assert all(context.faults.seed == context.random_seed for context in bot.contexts)
        return [[call.failed for call in trial.transcript.tool_calls] for trial in report.trials]

    assert fired() == fired()
    assert len(set(map(tuple, fired()))) == 4


def test_a_condition_that_was_never_met_is_named():
    report = faulted(FaultRule("pay", Action.ERROR, probability=0.0), bot=ToolBot("pay"))
    assert "1 calls seen, probability 0 wanted" in report.warnings[0]


def test_a_payload_that_cannot_cross_to_the_bot_s_process_is_told_before_the_first_trial():
    rule = FaultRule("pay", Action.REPLACE_OUTPUT, payload={1, 2})
    bot = ToolBot("pay")
    faulted(rule, bot=bot)
    with pytest.raises(ConfigError, match="payload must be JSON"):
        faulted(rule, bot=bot, fidelity=Fidelity.REAL)
    assert len(bot.contexts) == 1


def test_without_faults_nothing_is_unexercised():
    assert not the_trial().not_exercised


# What a failure is called.


@pytest.mark.parametrize(
    ("error", "owner", "kind", "message"),
    [
        (IngestError("no answer", step="pull"), Owner.INGEST, "IngestError", "no answer"),
        (KeyError("x"), Owner.HARNESS, "KeyError", "KeyError: 'x'"),
        (TimeoutError(), Owner.HARNESS, "TimeoutError", "TimeoutError"),
    ],
)
def test_a_failure_names_its_owner_kind_and_words(error, owner, kind, message):
    failure = TrialFailure.of(error)
    assert (failure.owner, failure.error_type, failure.message) == (owner, kind, message)
    assert str(failure).startswith(str(owner))
    assert message in str(failure)


class OwnInterceptor(ToolBot):
    """Put an interceptor of its own making before its tools, as adapters could before one was handed to them."""

    async def setup_trial(self, ctx):
        session = await super().setup_trial(ctx)
        session.handle = ProxyInterceptor(ctx.faults)
        return session


def test_faults_through_an_interceptor_of_the_adapter_s_own_are_counted():
    faults = FaultSpec((FaultRule("pay", Action.ERROR),))
    bot = OwnInterceptor("pay")
    report = evaluate(make_scenario(faults=faults, k=2, strict_faults=True), bot=bot, ingest=BotIngest(bot))
    assert report.not_exercised == 0
    assert [trial.faults[0].fired for trial in report.trials] == [1, 1]
    assert [context.faults == faults for context in bot.contexts] == [True, True]


def test_a_setup_that_hangs_is_given_up_and_is_no_failure_of_the_bot():
    class Hanging(RecordingBot):
        async def setup_trial(self, ctx):
            await asyncio.sleep(30)

    bot = Hanging()
    trial = the_trial(bot=bot, setup_timeout_s=0.05)
    assert trial.failure is not None
    assert trial.failure.owner is Owner.HARNESS
    assert "setup did not end within 0.05 s" in trial.failure.message
    assert len(bot.torn_down) == 1


def test_what_a_bot_s_own_process_did_is_not_guessed_without_its_trace():
    faults = FaultSpec((FaultRule("pay", Action.ERROR),))
    scenario = make_scenario(faults=faults, fidelity=Fidelity.REAL)
    trial = the_trial(scenario, bot=failing(RuntimeError("gone")))
    assert trial.outcome is Outcome.BOT_FAILURE
    assert not trial.not_exercised


def test_a_bot_that_failed_does_not_pass_for_want_of_an_assertion():
    report = evaluate(make_scenario(assertions=[]), bot=failing(RuntimeError("gone")))
    assert not report.passed
    assert report.reasons == ["the bot failed in 1 of 1 trials"]


CRITERIA = [{"name": "asked first", "text": "It asked."}, {"name": "honest", "text": "It was true.", "weight": 3}]


def test_a_judge_of_criteria_says_each_by_itself():
    answer = json.dumps(
        {"criteria": [{"name": "asked first", "verdict": "failed"}, {"name": "honest", "verdict": "passed"}]}
    )
    report = evaluate(make_scenario(grader_rubric=CRITERIA), judge=[answer])
    (trial,) = report.trials
    assert (trial.grader.score, trial.grader.passed) == (0.75, True)
    assert [(metric.name, metric.pass_rate) for metric in report.criteria] == [("asked first", 0.0), ("honest", 1.0)]


def test_criteria_that_the_judge_cannot_tell_leave_the_trial_ungraded():
    report = evaluate(make_scenario(grader_rubric=CRITERIA), judge=['{"asked first": "unknown", "honest": "unknown"}'])
    assert (report.ungraded, report.mean_grader_score, report.passed) == (1, None, True)
    assert "none of the criteria" in report.trials[0].grader_failure.message


@pytest.mark.parametrize("rubric", [[], [{"name": "x"}], 7, [{"name": "x", "text": "t"}] * 2])
def test_a_rubric_that_cannot_be_used_is_told_before_anything_runs(rubric):
    bot = RecordingBot()
    with pytest.raises(ValueError, match="scenario 's'"):
        evaluate(make_scenario(grader_rubric=rubric), bot=bot, judge=[verdict(1)])
    assert bot.contexts == []


def test_an_opening_beside_a_script_is_told_before_anything_runs():
    with pytest.raises(ValueError, match="either opening_messages"):
        evaluate(make_scenario(opening_messages=["hi"]))


def test_a_conversation_the_judge_saw_shortened_is_noted():
    store = MemoryStore()
    bot = RecordingBot("z" * 2_000_000)
    trial = the_trial(make_scenario(**RUBRIC), bot=bot, judge=[verdict(0.9)], store=store)
    assert trial.grader.shortened
    assert [warning for warning in trial.warnings if "shortened" in warning]
    (record,) = store.trials
    assert record["grader"]["shortened"] is True


def test_a_prompt_that_the_provider_refuses_leaves_the_trial_ungraded_with_its_words():
    judge = ScriptedClient([LLMRequestError("HTTP 400: prompt is too long")])
    report = evaluate(make_scenario(**RUBRIC), judge=judge)
    assert (report.ungraded, report.grader_scores) == (1, [])
    assert "prompt is too long" in report.trials[0].grader_failure.message


def test_a_user_who_fell_out_of_its_role_is_noted_and_the_bot_does_not_suffer():
    store = MemoryStore()
    model = ScriptedClient(["hello", "How can I help you today?", "[[END]]"])
    report = evaluate(make_scenario(scripted_messages=None), model=model, store=store)
    assert (report.passed, report.role_breaks) == (True, 1)
    assert [row["turn"] for row in store.trials[0]["role_breaks"]] == [2]
    assert store.scenarios[0]["role_breaks"] == 1
    (warning,) = report.trials[0].warnings
    assert "turn 2" in warning
    assert "How can I help you today?" in warning


def test_answers_of_the_judge_that_are_missing_are_noted():
    def make_grader(scenario):
        replies = [verdict(0.9), "mumble", "mumble", verdict(0.9)]
        return Grader(ScriptedClient(replies), LLMConfig("judge"), "r", repeats=3)

    orchestrator = Orchestrator(
        make_task(), RecordingBot(), ScriptedClient(["x"]), grader_factory=make_grader, ingest_client=FixedIngest()
    )
    report = run(orchestrator.run_scenario(make_scenario(**RUBRIC)))
    assert report.grader_scores == [0.9]
    assert report.trials[0].warnings == ["1 of 3 answers of the judge gave no score"]


class Known(FixedIngest):
    """Say of every trace how far it is known to be whole."""

    def __init__(self, **completeness):
        super().__init__()
        self.completeness = {"complete": True, "level": 3, **completeness}

    async def pull(self, conversation_id):
        whole = await super().pull(conversation_id)
        whole.completeness = self.completeness
        return whole


def test_a_trace_that_is_known_to_a_lower_level_than_wanted_is_not_judged():
    trial = errored(Owner.INGEST, ingest=Known(level=1), scenario=make_scenario(min_level=2))
    assert "known to level 1, 2 wanted" in trial.failure.message
    assert the_trial(make_scenario(min_level=2), ingest=Known(level=2)).outcome is Outcome.JUDGED


def test_a_call_that_the_model_asked_for_and_no_span_answers_is_no_proof_that_all_went_well():
    scenario = make_scenario(assertions=asserting(no_tool_errors()))
    (result,) = the_trial(scenario, ingest=Known(unresolved_calls=["pay"])).assertions
    assert (result.passed, result.unknown) == (False, True)
    assert "pay" in result.detail
    assert the_trial(scenario, ingest=Known()).assertions[0].passed


@pytest.mark.parametrize("severity", list(Severity))
def test_a_trial_in_which_any_assertion_did_not_hold_does_not_pass(severity):
    assertions = [
        Assertion("held", Severity.SAFETY_CRITICAL, lambda transcript, log: True),
        Assertion("not", severity, lambda transcript, log: False),
    ]
    report = evaluate(make_scenario(assertions=assertions))
    assert not report.trials[0].passes()
    assert report.pass_rate == 0.0


def test_a_trial_that_errored_does_not_count_as_not_exercised():
    faults = FaultSpec((FaultRule("pay", Action.ERROR),))
    report = evaluate(make_scenario(faults=faults), ingest=FaultyIngest(OSError("disk full")))
    assert (report.errored, report.not_exercised) == (1, 0)
    assert report.trials[0].faults[0].fired == 0
