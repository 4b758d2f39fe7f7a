"""Limits of a trial and of a job: who is to blame, what is torn down, and what is kept."""

import asyncio
import contextlib
import time

import pytest

from fakes import FixedIngest, MemoryStore, RecordingBot, evaluate, make_scenario, verdict
from sonar_eval import Outcome, Owner

PLAYED = {"scripted_messages": None}
RUBRIC = {"grader_rubric": "The total is right."}


async def hang(*_, **__):
    await asyncio.Event().wait()


class HangingBot(RecordingBot):
    """Hang in the step named, from the trial with that number on."""

    def __init__(self, step="send", first=0):
        super().__init__()
        self.step, self.first = step, first

    async def setup_trial(self, ctx):
        session = await super().setup_trial(ctx)
        if self.step == "setup":
            await hang()
        return session

    async def send(self, session, user_msg, media=None, **extra):
        if self.step == "send" and len(self.contexts) > self.first:
            await hang()
        return await super().send(session, user_msg, media, **extra)


class HangingModel:
    complete = staticmethod(hang)


class HangingIngest(FixedIngest):
    async def pull(self, conversation_id):
        await hang()


def only(report):
    (trial,) = report.trials
    return trial


@pytest.mark.parametrize(
    ("owner", "step", "scenario", "parts"),
    [
        (Owner.HARNESS, "setup", {}, {"bot": HangingBot("setup")}),
        (Owner.SIMULATOR, "user model", PLAYED, {"model": HangingModel()}),
        (Owner.INGEST, "pull", {}, {"ingest": HangingIngest()}),
    ],
)
def test_a_trial_whose_time_is_over_while_somebody_else_is_at_work_says_nothing_about_the_bot(
    owner, step, scenario, parts
):
    parts = {"bot": RecordingBot(), **parts}
    trial = only(evaluate(make_scenario(**scenario), trial_timeout_s=0.05, **parts))
    assert trial.outcome is Outcome.ERRORED
    assert (trial.failure.owner, trial.failure.step) == (owner, step)
    assert "the trial's time limit of 0.05 s was reached" in trial.failure.message
    assert len(parts["bot"].torn_down) == 1


def test_a_trial_whose_time_is_over_while_the_bot_answers_is_the_bot_s():
    bot = HangingBot()
    report = evaluate(make_scenario(), bot=bot, trial_timeout_s=0.05)
    trial = only(report)
    assert trial.outcome is Outcome.BOT_FAILURE
    assert (trial.failure.owner, trial.failure.step) == (Owner.BOT, "turn 1")
    assert [turn.user for turn in trial.log.turns] == ["hello"]
    assert [result.passed for result in trial.assertions] == [False]
    assert len(bot.torn_down) == 1
    assert (report.judged, report.passed) == (1, False)


def test_a_trial_whose_time_is_over_before_the_judge_has_spoken_is_ungraded():
    report = evaluate(make_scenario(**RUBRIC), judge=HangingModel(), trial_timeout_s=0.05)
    trial = only(report)
    assert trial.outcome is Outcome.JUDGED
    assert all(result.passed for result in trial.assertions)
    assert (trial.grader, trial.grader_failure.owner, report.ungraded) == (None, Owner.JUDGE, 1)
    assert "time limit" in trial.grader_failure.message


def test_a_user_model_that_hangs_costs_its_trial_and_not_the_run():
    report = evaluate(make_scenario(k=2, **PLAYED), model=HangingModel(), user_timeout_s=0.01)
    assert [trial.failure.owner for trial in report.trials] == [Owner.SIMULATOR] * 2
    assert "the model that plays the user said nothing within 0.01 s" in report.error


def test_time_enough_changes_nothing():
    limits = {"trial_timeout_s": 60, "job_timeout_s": 60, "user_timeout_s": 60}
    report = evaluate(make_scenario(k=2, **RUBRIC), judge=[verdict(0.9)], **limits)
    assert report.passed
    assert report.grader_scores == [0.9, 0.9]


@pytest.mark.parametrize("retries", [0, 5])
def test_a_job_whose_time_is_over_keeps_what_is_finished_and_tells_the_rest(retries):
    bot, store = HangingBot(first=2), MemoryStore()
    report = evaluate(make_scenario(k=5), bot=bot, store=store, job_timeout_s=0.2, retries=retries)
    outcomes = [trial.outcome for trial in report.trials]
    assert outcomes == [Outcome.JUDGED] * 2 + [Outcome.ERRORED] * 3
    running, *never = report.trials[2:]
    assert (running.failure.owner, running.failure.step) == (Owner.HARNESS, "turn 1")
    assert "the job's time limit of 0.2 s was reached" in running.failure.message
    for trial in never:
        assert (trial.failure.owner, trial.failure.step) == (Owner.HARNESS, "job")
        assert "not run" in trial.failure.message
    assert len(bot.contexts) == len(bot.torn_down) == 3
    assert [record["outcome"] for record in store.trials] == [str(outcome) for outcome in outcomes]
    assert (report.judged, report.errored, report.passed) == (2, 3, False)
    assert report.reasons == ["always (safety_critical): held in 2 of 2, 3 not measured"]


def test_a_job_whose_time_is_over_ends_all_trials_that_run_side_by_side():
    bot = HangingBot()
    report = evaluate(make_scenario(k=6), bot=bot, job_timeout_s=0.1, concurrency=3)
    assert [trial.outcome for trial in report.trials] == [Outcome.ERRORED] * 6
    assert len(bot.contexts) == len(bot.torn_down) == 3
    assert "time limit" in report.error


def test_the_next_scenario_has_a_job_s_time_of_its_own():
    slow, quick = HangingBot(), RecordingBot()
    assert evaluate(make_scenario(), bot=slow, job_timeout_s=0.05).judged == 0
    assert evaluate(make_scenario(), bot=quick, job_timeout_s=60).judged == 1


@pytest.mark.parametrize("limit", ["trial_timeout_s", "job_timeout_s", "user_timeout_s"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_that_is_none_is_refused_before_anything_runs(limit, value):
    bot = RecordingBot()
    with pytest.raises(ValueError, match=f"{limit} must be more than 0 seconds, got {value}"):
        evaluate(make_scenario(), bot=bot, **{limit: value})
    assert bot.contexts == []


class LateBot(RecordingBot):
    """Answer too late, whatever is said to its task: it blocks the loop, or swallows its cancellation."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    async def send(self, session, user_msg, media=None, **extra):
        if self.how == "blocks":
            time.sleep(0.2)  # noqa: ASYNC251
        else:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(5)
        return await super().send(session, user_msg, media, **extra)


class YieldingIngest(FixedIngest):
    async def pull(self, conversation_id):
        await asyncio.sleep(0)
        return await super().pull(conversation_id)


@pytest.mark.parametrize("how", ["blocks", "swallows"])
@pytest.mark.parametrize("ingest", [FixedIngest, YieldingIngest])
def test_a_bot_that_lets_the_trials_time_pass_unnoticed_has_failed(how, ingest):
    trial = only(evaluate(make_scenario(), bot=LateBot(how), ingest=ingest(), trial_timeout_s=0.1))
    assert (trial.outcome, trial.failure.owner, trial.failure.step) == (Outcome.BOT_FAILURE, Owner.BOT, "turn 1")
    assert "trial's time limit of 0.1 s" in trial.failure.message


def test_a_bot_that_lets_the_jobs_time_pass_unnoticed_is_not_blamed():
    trial = only(evaluate(make_scenario(), bot=LateBot("blocks"), job_timeout_s=0.1))
    assert (trial.outcome, trial.failure.owner) == (Outcome.ERRORED, Owner.HARNESS)


def test_a_model_that_lets_the_trials_time_pass_unnoticed_is_the_simulators():
    class Slow:
        async def complete(self, config, system, messages):
            time.sleep(0.2)  # noqa: ASYNC251
            return "hello"

    trial = only(evaluate(make_scenario(**PLAYED), model=Slow(), trial_timeout_s=0.1))
    assert (trial.outcome, trial.failure.owner) == (Outcome.ERRORED, Owner.SIMULATOR)


def test_a_slow_teardown_is_not_the_ingests_failure():
    class Slow(RecordingBot):
        async def teardown_trial(self, session):
            await asyncio.sleep(0.2)

    trial = only(evaluate(make_scenario(), bot=Slow(), trial_timeout_s=0.1))
    assert (trial.outcome, trial.failure.owner) == (Outcome.ERRORED, Owner.HARNESS)
