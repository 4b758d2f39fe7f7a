"""Whose time is whose: a provider that lets us wait does not make the bot slow."""

from __future__ import annotations

import asyncio
import time

import pytest

from fakes import RecordingBot, evaluate, make_scenario, run, verdict
from providing import Hang, Refused, Trickle, providing
from sonar_eval import (
    ConversationLog,
    Delivered,
    Grader,
    LLMConfig,
    Message,
    OpenAIClient,
    Outcome,
    Owner,
    Transcript,
    Turn,
)
from sonar_eval.errors import JudgeError, LLMTransportError
from sonar_eval.llm import RetryPolicy
from sonar_eval.patience import StepClock, begin_step, end_step, not_counted


async def in_turn(limit_s, act):
    limit = asyncio.timeout(limit_s)
    clock = StepClock(limit)
    token = begin_step(clock)
    try:
        async with limit:
            await act()
        return clock.taken_s
    finally:
        end_step(token)


def test_a_wait_does_not_count_against_the_limit_of_a_turn():
    async def act():
        with not_counted():
            await asyncio.sleep(0.8)

    assert run(in_turn(0.5, act)) < 0.8


def test_what_comes_after_the_wait_counts_again():
    async def act():
        with not_counted():
            await asyncio.sleep(0.02)
        await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        run(in_turn(0.1, act))


def test_what_is_charged_counts_after_all():
    async def act():
        with not_counted() as clock:
            await asyncio.sleep(0.2)
            clock.charge(0.15)
        await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        run(in_turn(0.1, act))


def test_waits_at_the_same_time_are_one_and_charged_once():
    async def ask():
        with not_counted() as clock:
            await asyncio.sleep(0.05)
            clock.charge(60)

    async def act():
        await asyncio.gather(*(ask() for _ in range(20)))

    assert run(in_turn(30, act)) < 30


def test_a_sign_of_life_lets_the_limit_strike_at_once():
    async def act():
        with not_counted() as clock:
            await asyncio.sleep(0.2)
            clock.hear(0.15)
            await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        run(in_turn(0.1, act))


def test_a_sign_of_life_in_time_changes_nothing():
    async def act():
        with not_counted() as clock:
            clock.hear(60)
            clock.charge(0.01)
            clock.hear(0.02)
            await asyncio.sleep(0.8)

    assert run(in_turn(0.5, act)) < 0.8


def test_a_turn_without_a_limit_is_only_timed():
    async def act():
        with not_counted():
            await asyncio.sleep(0.8)

    assert run(in_turn(None, act)) < 0.8


def test_outside_of_a_turn_nothing_is_timed():
    with not_counted() as clock:
        assert clock is None


def test_work_in_another_loop_or_after_the_turn_moves_nothing():
    async def elsewhere():
        with not_counted() as clock:
            assert clock is None

    late = []

    async def act():
        await asyncio.to_thread(asyncio.run, elsewhere())
        late.append(asyncio.create_task(wait_long()))

    async def wait_long():
        with not_counted():
            await asyncio.sleep(0.05)

    async def story():
        await in_turn(0.5, act)
        await late[0]

    run(story())


class ModelBot(RecordingBot):
    """Answer what a model says."""

    def __init__(self, client) -> None:
        super().__init__()
        self.client = client

    async def send(self, session, user_msg, media=None, **extra):
        return Delivered((await self.client.complete(LLMConfig("m"), "", [Message("user", user_msg)]),))


@pytest.mark.parametrize(
    "trouble",
    [Refused(429, retry_after_ms="1500"), Hang(), Trickle(0.01, every_s=1.2)],
    ids=["busy", "hanging", "hanging once it has begun"],
)
def test_a_provider_that_lets_a_bot_wait_beyond_its_limit_is_no_failure_of_the_bot(trouble):
    troubles = [trouble]

    def answer(body):
        if troubles:
            raise troubles.pop()
        return "hello"

    with providing(answer) as server:
        bot = ModelBot(OpenAIClient(server.url, timeout_s=1.5))
        report = evaluate(make_scenario(), bot=bot, turn_timeout_s=1.0)
    (trial,) = report.trials
    assert (trial.outcome, trial.failure) == (Outcome.JUDGED, None)
    assert trial.log.turns[0].delivered == ("hello",)
    assert trial.latencies_s[0] < 1.5


def test_the_time_of_answers_that_break_off_is_given_back():
    troubles = [Trickle(0.6), Trickle(0.6)]

    def answer(body):
        if troubles:
            raise troubles.pop()
        return "hello"

    with providing(answer) as server:
        client = OpenAIClient(server.url, retry=RetryPolicy(first_wait_s=0.01))
        report = evaluate(make_scenario(), bot=ModelBot(client), turn_timeout_s=1.0)
    (trial,) = report.trials
    assert (trial.outcome, trial.failure) == (Outcome.JUDGED, None)
    assert trial.latencies_s[0] < 1.0


def slow(body):
    time.sleep(0.6)
    return verdict(0.9)


def trickle(body):
    raise Trickle(4)


@pytest.mark.parametrize("answer", [slow, trickle])
def test_a_judge_that_works_beyond_its_limit_has_given_no_answer(answer):
    with providing(answer) as server:
        client = OpenAIClient(server.url, retry=RetryPolicy(max_retries=0))
        judge = Grader(client, LLMConfig("m"), "be kind", timeout_s=0.3)
        with pytest.raises(JudgeError, match=r"the judge gave no answer within 0\.3 s"):
            run(judge.grade(Transcript(), ConversationLog("c1", [Turn("hi", ("hello",))])))
    assert len(server.bodies) == 1


@pytest.mark.parametrize("answer", [slow, trickle])
def test_a_model_of_the_user_that_works_beyond_its_limit_has_said_nothing(answer):
    with providing(answer) as server:
        client = OpenAIClient(server.url, retry=RetryPolicy(max_retries=0))
        report = evaluate(make_scenario(scripted_messages=None), model=client, user_timeout_s=0.3)
    (trial,) = report.trials
    assert (trial.outcome, trial.failure.owner) == (Outcome.ERRORED, Owner.SIMULATOR)
    assert "said nothing within 0.3 s" in trial.failure.message


@pytest.mark.parametrize("answer", [slow, trickle])
def test_a_bot_whose_model_works_beyond_the_limit_is_too_slow(answer):
    with providing(answer) as server:
        client = OpenAIClient(server.url, retry=RetryPolicy(max_retries=0))
        report = evaluate(make_scenario(), bot=ModelBot(client), turn_timeout_s=0.3)
    (trial,) = report.trials
    assert (trial.outcome, trial.failure.owner) == (Outcome.BOT_FAILURE, Owner.BOT)
    assert "no answer within 0.3 s" in trial.failure.message


def test_one_try_ends_however_much_trickles_in():
    with providing(trickle) as server:
        client = OpenAIClient(server.url, timeout_s=0.2, retry=RetryPolicy(max_retries=0))
        with pytest.raises(LLMTransportError, match=r"had not answered in whole after 1 s, 5 times the timeout"):
            run(client.complete(LLMConfig("m"), "", [Message("user", "hi")]))


def test_a_trial_whose_time_ran_out_while_it_waited_for_a_provider_is_no_failure_of_the_bot():
    def busy(body):
        raise Refused(429, retry_after="60")

    with providing(busy) as server:
        report = evaluate(make_scenario(), bot=ModelBot(OpenAIClient(server.url)), trial_timeout_s=0.5)
    (trial,) = report.trials
    assert (trial.outcome, trial.failure.owner, trial.failure.step) == (
        Outcome.ERRORED,
        Owner.HARNESS,
        "waiting for the provider",
    )


def test_a_model_that_is_slow_to_answer_makes_its_bot_slow():
    async def slowly(config, system, messages):
        await asyncio.sleep(30)

    bot = ModelBot(type("Slow", (), {"complete": staticmethod(slowly)})())
    report = evaluate(make_scenario(), bot=bot, turn_timeout_s=0.2)
    assert report.trials[0].outcome is Outcome.BOT_FAILURE
