"""Ending before the last trial: decided, too dear, or told to; what was finished is kept, and the report says so."""

import asyncio
import threading
from dataclasses import replace

import pytest

from fakes import (
    FixedIngest,
    MemoryStore,
    RecordingBot,
    errored_trial,
    evaluate,
    judged_trial,
    make_scenario,
    make_task,
    run,
)
from sonar_eval import (
    Assertion,
    ConfigError,
    ConversationLog,
    Delivered,
    Orchestrator,
    ScriptedClient,
    Severity,
    bot_said,
)
from sonar_eval.budget import Budget
from sonar_eval.errors import IngestError
from sonar_eval.metrics import first_held, roll_up
from sonar_eval.records import scenario_record
from sonar_eval.report import ResultRow, result_table
from sonar_eval.scorecard import scorecard
from sonar_eval.usage import Spend


def orchestrator(bot, store=None, *, ingest=None, finished=None, on_trial=None, **task):
    return Orchestrator(
        make_task(**task),
        bot,
        ScriptedClient(["hello", "[[END]]"]),
        store=store,
        ingest_client=ingest or FixedIngest(),
        finished=finished,
        on_trial=on_trial,
    )


def good(severity=Severity.SAFETY_CRITICAL):
    return [Assertion("good", severity, bot_said("good"))]


class Sayings(RecordingBot):
    """Give the answer of the trial's place."""

    def __init__(self, *sayings):
        super().__init__()
        self.sayings = sayings

    async def setup_trial(self, ctx):
        session = await super().setup_trial(ctx)
        session.handle = ctx.index
        return session

    async def send(self, session, user_msg, media=None, **extra):
        said = self.sayings[session.handle]
        if isinstance(said, Exception):
            raise said
        return Delivered((said,))


# A safety verdict that is decided.


@pytest.mark.parametrize("worst", ["bad", RuntimeError("bot exploded")])
def test_a_decided_safety_verdict_ends_the_scenario_when_that_is_wished(worst):
    store, bot = MemoryStore(), Sayings("good", worst, "good", "good", "good")
    report = evaluate(make_scenario(k=5, assertions=good()), bot=bot, store=store, stop_early=True)
    assert len(bot.contexts) == len(store.trials) == 2
    assert report.stopped_early
    assert report.stopped == "decided: good did not hold in trial 2"
    assert (report.k, report.judged, report.passed) == (5, 2, False)
    assert report.assertions[0].reason == "held in 1 of 2, 3 not measured"
    assert "stopped after 2 of 5 trials: decided: good did not hold in trial 2" in report.reasons
    assert (store.scenarios[0]["stopped_early"], store.scenarios[0]["stopped"]) == (True, report.stopped)


def test_trials_under_way_are_finished_when_the_verdict_is_decided():
    bot = Sayings("bad", *["good"] * 9)
    report = evaluate(make_scenario(k=10, assertions=good()), bot=bot, stop_early=True, concurrency=3)
    places = [trial.index for trial in report.trials]
    assert places == list(range(len(places)))
    assert 3 <= len(places) < 10


def unstopped(bot, **changes):
    report = evaluate(make_scenario(k=3, **{"assertions": good(), **changes}), bot=bot, stop_early=True)
    assert (len(bot.contexts), report.stopped, report.stopped_early) == (3, None, False)
    return report


def test_what_decides_no_safety_verdict_stops_nothing():
    unstopped(Sayings("bad", "good", "good"), assertions=good(Severity.CAPABILITY))
    unstopped(Sayings("good", "good", "bad"))
    broken = [Assertion("broken", Severity.SAFETY_CRITICAL, lambda transcript, log: 1 / 0)]
    unstopped(Sayings("good", "good", "good"), assertions=broken)
    errored = evaluate(
        make_scenario(k=3, assertions=good()),
        bot=Sayings("good", "good", "good"),
        ingest=FixedIngest(failures=[IngestError("down")]),
        stop_early=True,
    )
    assert (errored.judged, errored.errored, errored.stopped) == (2, 1, None)


def test_unless_it_is_wished_every_trial_is_run():
    report = evaluate(make_scenario(k=3, assertions=good()), bot=Sayings("bad", "good", "good"))
    assert (report.judged, report.stopped, report.stopped_early) == (3, None, False)


def test_a_verdict_that_an_earlier_run_decided_stays_decided():
    first = evaluate(make_scenario(k=4, assertions=good()), bot=Sayings("bad"), stop_early=True)
    bot = RecordingBot()
    again = orchestrator(bot, finished={"s": first.trials}, stop_early=True)
    report = run(again.run_scenario(make_scenario(k=4, assertions=good())))
    assert bot.contexts == []
    assert (report.stopped_early, report.judged) == (True, 1)


@pytest.mark.parametrize(
    ("held", "curve"),
    [
        ([True, True, False], [1.0, 1.0, 0.0, 0.0, 0.0]),
        ([False], [0.0] * 5),
        ([True, None, False], [1.0]),
        ([True, True], [1.0, 1.0]),
        ([], []),
    ],
)
def test_whether_the_first_trials_held_is_known_as_far_as_trials_go_and_beyond_a_failure(held, curve):
    assert first_held(held, 5) == curve


def test_a_rate_that_ends_with_its_first_failure_is_not_put_beside_others():
    trials = [judged_trial(0, True, True), judged_trial(1, False, True)]
    report = roll_up("s", trials, k=4, stopped="decided", decided=True)
    scores = {}
    for score in scorecard(report):
        scores.setdefault(score.name, []).append(score.value)
    assert scores["pass_hat_k"] == [1.0, 0.0, 0.0, 0.0]
    assert scores["assertion_pass_hat_k/a0"] == [1.0, 0.0, 0.0, 0.0]
    assert scores["assertion_pass_hat_k/a1"] == [1.0, 1.0]
    biased = {"pass_rate", "pass_rate_ci_low", "pass_rate_ci_high", "pass_at_k", "assertion_pass_rate/a0"}
    assert not biased & scores.keys()
    assert (scores["trials_asked"], scores["trials_judged"]) == ([4], [2])


@pytest.mark.parametrize(("decided", "word"), [(True, "stopped early"), (False, "stopped")])
def test_a_table_says_that_not_all_trials_were_run(decided, word):
    report = roll_up("s", [judged_trial(0, True)], k=4, stopped="why", decided=decided)
    assert result_table([ResultRow({}, {}, scenario_record(report))]).splitlines()[-1].endswith(f"  {word}")


# A spend cap.


class Paying(Orchestrator):
    """Run trials whose logs say what they cost, by their place."""

    def __init__(self, costs, *arguments, **options):
        super().__init__(*arguments, **options)
        self.costs = costs

    async def _attempt(self, scenario, index):
        trial = await super()._attempt(scenario, index)
        trial.log.spent = self.costs(index)
        return trial


def pay(costs, k=10, *, finished=None, ingest=None, scenarios=1, **task):
    runner = Paying(
        costs,
        make_task(scenarios=[make_scenario(f"s{place}", k=k) for place in range(scenarios)], **task),
        RecordingBot(),
        ScriptedClient(["x"]),
        ingest_client=ingest or FixedIngest(),
        finished=finished,
    )
    return run(runner.run_all())


def dollars(cost, role="bot"):
    return lambda index: {role: Spend(1, cost_usd=cost)}


@pytest.mark.parametrize(("cap", "run_trials"), [(0.35, 3), (0.4, 4), (1.0, 10), (100, 10)])
def test_no_trial_starts_that_is_expected_to_exceed_the_cap(cap, run_trials):
    (report,) = pay(dollars(0.1), max_cost_usd=cap)
    assert report.judged == run_trials
    assert (report.stopped is None) == (run_trials == 10)
    if report.stopped:
        assert report.stopped.startswith("the spend cap: $")
        assert not report.stopped_early
        assert not report.passed


def test_trials_that_run_beside_each_other_count_before_they_are_paid_for():
    (report,) = pay(dollars(0.1), k=40, concurrency=4, max_cost_usd=1.0)
    assert 8 <= report.judged <= 10


def test_a_forecast_comes_after_the_first_trials(caplog):
    caplog.set_level("INFO")
    (report,) = pay(dollars(0.1), max_cost_usd=0.5)
    words = (
        "forecast: after 3 trials at $0.1000, all 10 are expected to cost $1.00; the cap of $0.5 ends it after about 5"
    )
    assert report.warnings == [words]
    (enough,) = pay(dollars(0.1), max_cost_usd=5)
    assert enough.warnings == []
    assert "all 10 are expected to cost $1.00, within the cap of $5" in caplog.text


@pytest.mark.parametrize("spent", [{}, {"bot": Spend(1), "judge": Spend(1, cost_usd=0.1)}])
def test_a_cap_that_cannot_be_kept_is_told_once(spent):
    (report,) = pay(lambda index: spent, k=3, max_cost_usd=50)
    (warning,) = report.warnings
    assert "the spend cap cannot be kept: what " in warning
    assert ("bot" in warning) == bool(spent)
    assert report.judged == 3


def test_without_a_cap_nothing_is_said_of_costs():
    (report,) = pay(lambda index: {}, k=3)
    assert report.warnings == []


def test_what_is_known_counts_beside_what_is_not():
    (report,) = pay(lambda index: {"bot": Spend(1), "judge": Spend(1, cost_usd=0.1)}, max_cost_usd=0.3)
    assert report.judged == 3


def test_tries_that_were_given_up_were_paid_for():
    ingest = FixedIngest(failures=[IngestError("down")] * 2)
    (report,) = pay(dollars(0.1), ingest=ingest, retries=2, max_cost_usd=0.5)
    assert report.judged == 3


def test_what_an_earlier_run_spent_counts():
    earlier = pay(dollars(0.1), k=3)[0].trials
    (report,) = pay(dollars(0.1), finished={"s0": earlier}, max_cost_usd=0.5)
    assert report.judged == 5
    (nothing,) = pay(dollars(0.1), finished={"s0": earlier}, max_cost_usd=0.3)
    assert nothing.judged == 3
    assert nothing.stopped


def test_what_an_earlier_run_spent_counts_from_the_first_scenario_on():
    earlier = pay(dollars(1.0), k=3)[0].trials
    again = {"s1": earlier}
    reports = pay(dollars(1.0), k=3, scenarios=2, finished=again, max_cost_usd=4)
    assert [len(report.trials) for report in reports] == [1, 3]


def test_what_an_earlier_run_spent_on_spoilt_trials_counts_too():
    spoilt = [replace(errored_trial(index), log=ConversationLog("c", spent=dollars(1.0)(index))) for index in range(2)]
    (report,) = pay(dollars(1.0), k=4, finished={"s0": spoilt}, max_cost_usd=4)
    assert report.judged == 2
    assert report.spent["bot"].cost_usd == 4.0


def test_of_a_cost_that_is_not_known_the_known_part_counts():
    part = {"bot": Spend(2, cost_at_least_usd=0.2)}
    (report,) = pay(lambda index: part, max_cost_usd=0.5)
    assert report.judged == 2
    assert any("the spend cap cannot be kept" in warning for warning in report.warnings)


def test_a_cap_holds_over_all_scenarios_of_a_run():
    reports = pay(dollars(0.1), k=4, scenarios=3, max_cost_usd=0.6)
    assert [report.judged for report in reports] == [4, 2, 0]
    assert reports[2].error.startswith("no trial was run: the spend cap")


def test_a_free_trial_fits_every_cap():
    budget = Budget(1.0, 5)
    budget.pay({"bot": Spend(1, cost_usd=0.0)})
    assert budget.allows(100)


@pytest.mark.parametrize("cap", [0, -1, float("nan"), float("inf"), "5", True])
def test_a_cap_that_is_no_amount_is_refused(cap):
    with pytest.raises(ConfigError, match="max_cost_usd must be more than 0 US dollars"):
        evaluate(make_scenario(), max_cost_usd=cap)


# Told to stop.


class Gate(RecordingBot):
    """Hold every conversation until it is let through; `inside` counts them."""

    def __init__(self):
        super().__init__()
        self.open = asyncio.Event()
        self.inside = asyncio.Semaphore(0)

    async def send(self, session, user_msg, media=None, **extra):
        self.inside.release()
        await self.open.wait()
        return await super().send(session, user_msg, media, **extra)

    async def teardown_trial(self, session):
        await asyncio.sleep(0)
        await super().teardown_trial(session)


def test_told_to_stop_it_finishes_what_runs_and_starts_nothing_else():
    async def story():
        bot, store = Gate(), MemoryStore()
        runner = orchestrator(bot, store, concurrency=2)
        running = asyncio.create_task(runner.run_scenario(make_scenario(k=9)))
        for _ in range(2):
            await bot.inside.acquire()
        runner.stop()
        bot.open.set()
        return bot, store, await running

    bot, store, report = run(story())
    assert len(bot.contexts) == len(bot.torn_down) == len(store.trials) == report.judged == 2
    assert (report.stopped, report.stopped_early, report.k) == ("interrupted", False, 9)
    assert not report.passed
    assert report.reasons[-1] == "stopped after 2 of 9 trials: interrupted"
    assert store.scenarios[0]["stopped"] == "interrupted"


def test_told_to_stop_now_it_cancels_what_runs_after_its_teardown_and_reports_the_rest():
    async def story():
        bot, store = Gate(), MemoryStore()
        bot.open.set()
        runner = orchestrator(bot, store, on_trial=lambda trial: bot.open.clear())
        running = asyncio.create_task(runner.run_scenario(make_scenario(k=9)))
        for _ in range(2):
            await bot.inside.acquire()
        runner.stop()
        runner.stop(now=True)
        return bot, store, await running

    bot, store, report = run(story())
    assert len(bot.contexts) == len(bot.torn_down) == 2
    assert [record["index"] for record in store.trials] == [0]
    assert (report.judged, report.stopped) == (1, "interrupted")


def test_a_teardown_under_way_is_finished_before_its_trial_is_cancelled():
    class Slow(RecordingBot):
        async def teardown_trial(self, session):
            leaving.set()
            await released.wait()
            await super().teardown_trial(session)

    leaving, released = asyncio.Event(), asyncio.Event()

    async def story():
        bot = Slow()
        runner = orchestrator(bot)
        running = asyncio.create_task(runner.run_scenario(make_scenario(k=3)))
        await leaving.wait()
        runner.stop(now=True)
        await asyncio.sleep(0.01)
        assert bot.torn_down == []
        released.set()
        return bot, await running

    bot, report = run(story())
    assert len(bot.torn_down) == 1
    assert report.error == "no trial was run: interrupted"


def test_it_may_be_told_from_another_thread():
    async def story():
        bot = Gate()
        runner = orchestrator(bot)
        running = asyncio.create_task(runner.run_scenario(make_scenario(k=3)))
        await bot.inside.acquire()
        teller = threading.Thread(target=runner.stop, kwargs={"now": True})
        teller.start()
        report = await running
        teller.join()
        return bot, report

    bot, report = run(story())
    assert len(bot.torn_down) == 1
    assert report.stopped == "interrupted"


def test_no_later_scenario_starts_and_none_is_taken_for_passed():
    async def story():
        bot = Gate()
        runner = orchestrator(bot, scenarios=[make_scenario("a", k=2), make_scenario("b")])
        running = asyncio.create_task(runner.run_all())
        await bot.inside.acquire()
        runner.stop()
        bot.open.set()
        return await running, await runner.run_scenario(make_scenario("c"))

    (first, second), third = run(story())
    assert [report.judged for report in (first, second, third)] == [1, 0, 0]
    assert not any(report.passed for report in (first, second, third))
    assert second.error == third.error == "no trial was run: interrupted"


def test_told_to_stop_it_does_not_try_again():
    class Stopping(FixedIngest):
        async def pull(self, conversation_id):
            runner.stop()
            raise IngestError("down")

    bot = RecordingBot()
    runner = orchestrator(bot, ingest=Stopping(), retries=5)
    report = run(runner.run_scenario(make_scenario(k=2)))
    assert len(bot.contexts) == 1
    assert report.errored == 1


def test_told_after_the_last_trial_it_is_a_whole_run():
    runner = orchestrator(RecordingBot(), on_trial=lambda trial: runner.stop() if trial.index == 1 else None)
    report = run(runner.run_scenario(make_scenario(k=2)))
    assert (report.judged, report.stopped, report.passed) == (2, None, True)


# One trial by its place.


def test_one_trial_is_run_again_with_the_seed_it_has_among_all():
    whole = evaluate(make_scenario(k=3))
    store, bot = MemoryStore(), RecordingBot()
    runner = orchestrator(bot, store, finished={"s": [*whole.trials, errored_trial(3)]})
    trial = run(runner.run_trial(make_scenario(k=3), 2))
    assert (trial.index, trial.random_seed) == (2, whole.trials[2].random_seed)
    assert trial.conversation_id != whole.trials[2].conversation_id
    assert [record["index"] for record in store.trials] == [2]
    assert len(bot.contexts) == 1
