import asyncio
import time

import pytest

from fakes import run
from sonar_eval.errors import BotError, HarnessError, JudgeError, Owner, boundary, crossed
from sonar_eval.limits import Deadline, job_deadline, job_limit, job_over, until, within


async def hang():
    await asyncio.Event().wait()


def test_a_step_that_takes_too_long_is_told_with_its_limit():
    async def story():
        async with within(0.01, "no answer within"):
            await hang()

    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        run(story())


def test_a_step_that_blocks_the_loop_has_taken_too_long_all_the_same():
    async def story():
        async with within(0.01, "no answer within"):
            time.sleep(0.05)  # noqa: ASYNC251

    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        run(story())


def test_a_step_that_fails_too_late_keeps_its_words():
    async def story():
        async with within(0.01, "no answer within"):
            time.sleep(0.05)  # noqa: ASYNC251
            raise ValueError("the kitchen is closed")

    with pytest.raises(ValueError, match="the kitchen is closed"):
        run(story())


@pytest.mark.parametrize("limit_s", [None, 60])
def test_another_s_timeout_keeps_its_words(limit_s):
    async def story():
        async with within(limit_s, "no answer within"):
            raise TimeoutError("the kitchen is closed")

    with pytest.raises(TimeoutError, match="the kitchen is closed"):
        run(story())


def test_whoever_is_at_work_when_the_time_is_over_is_to_blame():
    async def story():
        async with until(Deadline.after(0.01, "trial's"), None):
            with boundary(Owner.SIMULATOR, "conversation"), boundary(Owner.BOT, "turn 3"):
                await hang()

    with pytest.raises(BotError, match=r"the trial's time limit of 0\.01 s was reached") as caught:
        run(story())
    assert caught.value.step == "turn 3"


def test_outside_every_border_it_is_the_harness():
    async def story():
        async with until(Deadline.after(0.01, "trial's")):
            await hang()

    with pytest.raises(HarnessError):
        run(story())


def test_a_deadline_may_name_who_is_to_blame_and_the_first_counts():
    async def story():
        async with until(Deadline.after(60, "trial's"), Deadline.after(0.01, "job's", Owner.HARNESS)):
            with boundary(Owner.BOT, "turn 1"):
                await hang()

    with pytest.raises(HarnessError, match="the job's time limit") as caught:
        run(story())
    assert caught.value.step == "turn 1"


def test_what_fails_before_the_deadline_fails_in_its_own_name():
    async def story():
        async with until(Deadline.after(60, "trial's")):
            with boundary(Owner.JUDGE, "grader"):
                raise TimeoutError("mine")

    with pytest.raises(JudgeError, match="mine"):
        run(story())


def test_without_a_deadline_there_is_no_limit():
    async def story():
        async with until(None, Deadline.after(None, "trial's")):
            await asyncio.sleep(0)
        return "done"

    assert run(story()) == "done"


def test_a_job_s_deadline_holds_for_the_tasks_started_in_it_and_no_longer():
    async def look():
        return job_over()

    async def story():
        async with job_limit(0.01):
            await asyncio.sleep(0.02)
            inside = await asyncio.create_task(look())
        async with job_limit(None):
            unlimited = job_deadline()
        return inside, unlimited, job_over()

    assert run(story()) == (True, None, False)


def test_an_error_that_crossed_no_border_says_so():
    assert crossed(None) is None
    assert crossed(asyncio.CancelledError()) is None
