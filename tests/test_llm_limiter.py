"""How many requests are under way at a time, and who waits for whom."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fakes import run
from sonar_eval.llm import AdaptiveLimiter, Waits
from sonar_eval.llm.limiter import WaitCounter


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def make(**settings):
    clock = Clock()
    counter = WaitCounter()
    return AdaptiveLimiter(sleep=clock.sleep, clock=clock, waits=counter, **settings), clock, counter


async def enter_all(limiter, count):
    return [await limiter.enter() for _ in range(count)]


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_requests_that_met_one_limit_together_halve_it_once():
    async def story():
        limiter, _, _ = make(start=8)
        tickets = await enter_all(limiter, 8)
        for ticket in tickets:
            limiter.leave(ticket, limited=True)
        assert limiter.limit == 4
        (later,) = await enter_all(limiter, 1)
        limiter.leave(later, limited=True)
        assert limiter.limit == 2

    run(story())


def test_it_never_falls_below_one():
    async def story():
        limiter, _, _ = make(start=2)
        for _ in range(5):
            limiter.leave(await limiter.enter(), limited=True)
        assert limiter.limit == 1
        limiter.leave(await limiter.enter())

    run(story())


def test_it_grows_by_about_one_for_a_round_of_answers_and_stops_at_the_most():
    async def story():
        limiter, _, _ = make(start=4, most=6)
        grown = []
        for _ in range(5):
            for ticket in await enter_all(limiter, limiter.limit):
                limiter.leave(ticket)
                await limiter.enter()
            grown.append(limiter.limit)
            limiter._under_way.clear()
        assert grown[0] <= 5
        assert grown == sorted(grown)
        assert grown[-1] == 6

    run(story())


@pytest.mark.parametrize("under_way", [1, 3])
def test_it_does_not_grow_while_it_is_not_needed(under_way):
    async def story():
        limiter, _, _ = make(start=8)
        for _ in range(50):
            for ticket in await enter_all(limiter, under_way):
                limiter.leave(ticket)
        assert limiter.limit == 8

    run(story())


def test_a_failure_without_an_answer_says_nothing_about_the_limit():
    async def story():
        limiter, _, _ = make(start=2)
        for ticket in await enter_all(limiter, 2):
            limiter.leave(ticket, answered=False)
        assert limiter._limit == 2.0

    run(story())


def test_who_comes_to_a_full_house_waits_in_line():
    async def story():
        limiter, _, counter = make(start=1)
        order = []

        async def visit(name):
            ticket = await limiter.enter()
            order.append(name)
            await settle()
            limiter.leave(ticket)

        await asyncio.gather(*(visit(name) for name in "abc"))
        assert order == ["a", "b", "c"]
        assert counter.read().queued == 2

    run(story())


def test_a_pause_holds_for_everybody_but_the_one_who_has_rested():
    async def story():
        limiter, clock, counter = make(start=8)
        until = limiter.pause(10)
        limiter.leave(await limiter.enter(until))
        assert clock.slept == []
        limiter.leave(await limiter.enter())
        assert 10 <= sum(clock.slept) <= 11
        limiter.leave(await limiter.enter())
        assert len(clock.slept) == 1
        assert (counter.read().queued, counter.read().queue_wait_s) == (1, pytest.approx(clock.slept[0]))

    run(story())


def test_a_shorter_pause_does_not_end_a_longer_one():
    async def story():
        limiter, clock, _ = make()
        limiter.pause(10)
        limiter.pause(1)
        await limiter.enter()
        assert sum(clock.slept) >= 10

    run(story())


def test_one_who_gives_up_waiting_leaves_the_place_to_the_next():
    async def story():
        limiter, _, _ = make(start=1)
        first = await limiter.enter()
        impatient, patient = (asyncio.create_task(limiter.enter()) for _ in range(2))
        await settle()
        impatient.cancel()
        await settle()
        limiter.leave(first)
        limiter.leave(await asyncio.wait_for(patient, 5))
        assert not limiter._under_way
        assert not limiter._queue

    run(story())


def test_one_who_gives_up_just_when_let_in_leaves_the_place_to_the_next():
    async def story():
        limiter, _, _ = make(start=1)
        first = await limiter.enter()
        impatient, patient = (asyncio.create_task(limiter.enter()) for _ in range(2))
        await settle()
        limiter.leave(first)
        impatient.cancel()
        limiter.leave(await asyncio.wait_for(patient, 5))
        assert not limiter._under_way

    run(story())


def test_nothing_is_bound_to_the_loop_of_an_earlier_cell():
    limiter = AdaptiveLimiter(start=1)

    async def cell():
        async def ask():
            ticket = await limiter.enter()
            await asyncio.sleep(0)
            limiter.leave(ticket)

        await asyncio.gather(*(ask() for _ in range(3)))

    for _ in range(3):
        run(cell())


def test_a_cell_that_broke_off_takes_no_place_with_it():
    limiter = AdaptiveLimiter(start=1)
    for _ in range(2):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(limiter.enter())
        loop.close()

    async def later():
        limiter.leave(await asyncio.wait_for(limiter.enter(), 5))

    run(later())


def test_threads_share_one_limit():
    limiter = AdaptiveLimiter(start=2, most=2)
    lock = threading.Lock()
    inside, most = 0, 0

    async def visit():
        nonlocal inside, most
        ticket = await limiter.enter()
        with lock:
            inside += 1
            most = max(most, inside)
        await asyncio.sleep(0.001)
        with lock:
            inside -= 1
        limiter.leave(ticket)

    async def visits():
        await asyncio.gather(*(visit() for _ in range(20)))

    threads = [threading.Thread(target=asyncio.run, args=(visits(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert (inside, most) == (0, 2)


def test_waits_are_said_in_one_line_and_can_be_taken_from_each_other():
    total = WaitCounter()
    mine = WaitCounter(total)
    total.add(requests=5)
    before = total.read()
    mine.add(requests=2, limited=1, retries=1, retry_wait_s=1.5)
    assert total.read().since(before) == mine.read() == Waits(2, 1, 1, 1.5)
    assert str(mine.read()) == (
        "2 requests to models: 1 rate limited, 1 sent again after 1.5 s of waiting, 0 held back for 0.0 s"
    )
