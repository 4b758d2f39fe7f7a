"""k trials of a scenario: how many at a time, kept when, rolled up how."""

import asyncio
import threading
import time
from dataclasses import replace

import anyio
import pytest

from fakes import (
    BotIngest,
    FixedIngest,
    MemoryStore,
    RecordingBot,
    ToolBot,
    errored_trial,
    evaluate,
    judged_trial,
    make_scenario,
    make_task,
    run,
    tool_span,
)
from sonar_eval import (
    Action,
    Assertion,
    ConfigError,
    ConversationLog,
    Delivered,
    EmptyTranscriptError,
    FaultRule,
    FaultSpec,
    Orchestrator,
    Outcome,
    Owner,
    ScriptedClient,
    Session,
    Severity,
    Transcript,
    Variant,
    bot_said,
)
from sonar_eval.errors import IngestError
from sonar_eval.orchestrator import trial_seed
from sonar_eval.records import read_trial
from sonar_eval.scheduler import run_once
from sonar_eval.usage import Spend


def orchestrator(*scenarios, bot=None, ingest=None, store=None, on_trial=None, finished=None, **task):
    return Orchestrator(
        make_task(scenarios=list(scenarios), **task),
        bot or RecordingBot(),
        ScriptedClient(["hello", "[[END]]"]),
        store=store,
        ingest_client=ingest or FixedIngest(),
        on_trial=on_trial,
        finished=finished,
    )


class Answers:
    """Answer the first message of all with the first text, and so on; raise what is an exception."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __call__(self, text):
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class PickyIngest(FixedIngest):
    """Have no transcript for the pulls whose numbers are given."""

    def __init__(self, *missing):
        super().__init__()
        self.missing = missing

    async def pull(self, conversation_id):
        whole = await super().pull(conversation_id)
        if len(self.pulled) - 1 in self.missing:
            raise EmptyTranscriptError("no transcript")
        return whole


def saying_good(severity=Severity.SAFETY_CRITICAL):
    return [Assertion("good", severity, bot_said("good"))]


def test_a_scenario_runs_and_passes():
    bot = RecordingBot()
    report = evaluate(make_scenario(), bot=bot)
    assert report.passed
    assert bot.sent == ["hello"]


def test_what_is_no_adapter_is_refused_by_what_it_lacks():
    with pytest.raises(TypeError, match="send"):
        orchestrator(bot=object())


def test_an_adapter_needs_no_name_to_be_run():
    class Nameless:
        async def setup_trial(self, ctx):
            return Session(ctx.conversation_id)

        async def send(self, session, user_msg, media=None):
            return Delivered(("ok",))

        async def teardown_trial(self, session):
            pass

    assert evaluate(make_scenario(), bot=Nameless()).passed


# Trials that could not be judged.


def test_one_missing_transcript_costs_one_trial():
    store = MemoryStore()
    bot = RecordingBot(Answers("good", "good", "good", "bad", "good"))
    report = evaluate(make_scenario(k=5, assertions=saying_good()), bot=bot, ingest=PickyIngest(4), store=store)
    assert (report.k, report.judged, report.errored, report.pass_rate) == (5, 4, 1, 0.75)
    assert report.assertions[0].pass_hat_k == 0.0
    assert not report.passed
    assert [record["outcome"] for record in store.trials] == ["judged"] * 4 + ["errored"]


@pytest.mark.parametrize("severity", list(Severity))
def test_one_trial_of_five_carries_a_capability_and_no_safety(severity):
    store = MemoryStore()
    scenario = make_scenario(k=5, assertions=saying_good(severity))
    report = evaluate(scenario, bot=RecordingBot("good"), ingest=PickyIngest(1, 2, 3, 4), store=store)
    assert (report.k, report.judged, report.errored) == (5, 1, 4)
    assert report.passed is (severity is Severity.CAPABILITY)
    assert report.assertions[0].reason == "held in 1 of 1, 4 not measured"
    assert len(store.trials) == 5


def test_without_a_single_transcript_there_is_an_error_and_every_trial_is_kept():
    store = MemoryStore()
    report = evaluate(make_scenario(k=5), ingest=PickyIngest(*range(5)), store=store)
    assert (report.passed, report.assertions, report.judged, report.errored) == (False, [], 0, 5)
    assert "none of 5 trials could be judged" in report.error
    assert len(store.trials) == 5
    assert store.scenarios[0]["error"] == report.error


# Trying again.


def test_a_trial_that_is_tried_again_is_one_trial_of_the_same_seed():
    store, bot = MemoryStore(), RecordingBot()
    ingest = FixedIngest(failures=[IngestError("down for a moment", step="pull")])
    report = evaluate(make_scenario(k=2), bot=bot, ingest=ingest, store=store, retries=1)
    assert (report.k, report.judged, report.errored) == (2, 2, 0)
    assert [trial.index for trial in report.trials] == [0, 1]
    (failure,) = report.trials[0].earlier_failures
    assert (failure.owner, failure.message) == (Owner.INGEST, "down for a moment")
    assert report.trials[1].earlier_failures == []
    assert len(store.trials) == 2
    assert read_trial(store.trials[0]).earlier_failures == [failure]
    first, again, _ = bot.contexts
    assert (first.index, first.random_seed) == (again.index, again.random_seed)
    assert first.conversation_id != again.conversation_id


def test_the_budget_of_a_trial_is_its_own_and_ends():
    ingest = FixedIngest(failures=[IngestError("down")] * 4)
    report = evaluate(make_scenario(k=2), ingest=ingest, retries=2)
    assert [trial.outcome for trial in report.trials] == [Outcome.ERRORED, Outcome.JUDGED]
    assert [len(trial.earlier_failures) for trial in report.trials] == [2, 1]
    assert len(ingest.pulled) == 5


def test_the_log_counts_trials_from_one(caplog):
    evaluate(make_scenario(k=1), ingest=FixedIngest(failures=[IngestError("down")]), retries=1)
    assert "s trial 1: tried again after ingest" in caplog.text


def test_without_a_budget_nothing_is_tried_again():
    ingest = FixedIngest(failures=[IngestError("down")])
    assert evaluate(make_scenario(), ingest=ingest).errored == 1
    assert len(ingest.pulled) == 1


def test_a_bot_that_failed_is_not_given_another_chance():
    bot = RecordingBot(Answers(RuntimeError("bot exploded"), "good"))
    report = evaluate(make_scenario(), bot=bot, retries=3)
    assert report.trials[0].outcome is Outcome.BOT_FAILURE
    assert len(bot.contexts) == 1


# One trial must not cost another.


def test_a_bot_that_raises_once_costs_neither_its_own_scenario_nor_the_next():
    store = MemoryStore()
    bot = RecordingBot(Answers("ok", "ok", "ok", RuntimeError("bot exploded"), "ok", "ok", "ok"))
    first = make_scenario("a", k=3, scripted_messages=["hi", "more"])
    reports = run(orchestrator(first, make_scenario("b"), bot=bot, store=store).run_all())
    assert [(report.scenario, report.k, report.judged) for report in reports] == [("a", 3, 3), ("b", 1, 1)]
    assert [report.passed for report in reports] == [False, True]
    assert [(record["scenario"], record["index"]) for record in store.trials] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
    ]
    broken = read_trial(store.trials[1])
    assert (broken.failure.error_type, broken.failure.message) == ("RuntimeError", "RuntimeError: bot exploded")
    assert [(turn.user, turn.delivered) for turn in broken.log.turns] == [("hi", ("ok",)), ("more", ())]
    assert [record["scenario"] for record in store.scenarios] == ["a", "b"]


def test_an_interrupt_ends_the_run():
    bot = RecordingBot(Answers("ok", KeyboardInterrupt()))
    store = MemoryStore()
    with pytest.raises(KeyboardInterrupt):
        evaluate(make_scenario(k=3), bot=bot, store=store)
    assert len(store.trials) == 1
    assert len(bot.torn_down) == 2


def test_a_cancelled_run_tears_its_trials_down_and_ends_as_cancelled():
    class Waiting(RecordingBot):
        async def send(self, session, user_msg, media=None, **extra):
            reached.set()
            await asyncio.Event().wait()

        async def teardown_trial(self, session):
            await asyncio.sleep(0)
            await super().teardown_trial(session)

    bot, store, reached = Waiting(), MemoryStore(), asyncio.Event()

    async def main():
        task = asyncio.create_task(orchestrator(bot=bot, store=store).run_scenario(make_scenario(k=3)))
        await reached.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    assert run(main())
    assert len(bot.contexts) == len(bot.torn_down) == 1
    assert store.trials == []


# Mistakes are told before the first trial.


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True])
def test_an_odd_k_anywhere_is_told_before_anything_runs(k):
    bot = RecordingBot()
    with pytest.raises(ValueError, match="'second'"):
        run(orchestrator(make_scenario("first"), make_scenario("second", k=k), bot=bot).run_all())
    with pytest.raises(ValueError, match="'second'"):
        run(orchestrator(bot=bot).run_scenario(make_scenario("second", k=k)))
    assert bot.contexts == []


def test_a_scenario_without_a_k_takes_the_default_of_the_task():
    assert evaluate(make_scenario(k=None), default_k=4).judged == 4


def test_two_assertions_of_one_name_are_told_before_anything_runs():
    bot = RecordingBot()
    gate = Assertion("gate", Severity.SAFETY_CRITICAL, lambda transcript, log: True)
    with pytest.raises(ConfigError, match="'gate'"):
        evaluate(make_scenario(assertions=[gate, gate], k=2), bot=bot)
    assert bot.contexts == []


# How many at a time.


class GaugedBot(RecordingBot):
    """Note how many conversations are open at once; the later a trial, the sooner it is done."""

    def __init__(self):
        super().__init__()
        self.open = 0
        self.peak = 0

    async def setup_trial(self, ctx):
        self.open += 1
        self.peak = max(self.peak, self.open)
        session = await super().setup_trial(ctx)
        session.handle = ctx
        return session

    async def send(self, session, user_msg, media=None, **extra):
        await asyncio.sleep(0.02 / (1 + session.handle.index))
        return await super().send(session, user_msg, media, **extra)

    async def teardown_trial(self, session):
        self.open -= 1
        await super().teardown_trial(session)


@pytest.mark.parametrize(("concurrency", "k", "peak"), [(1, 3, 1), (3, 9, 3), (8, 2, 2)])
def test_as_many_trials_run_at_a_time_as_were_allowed(concurrency, k, peak):
    bot = GaugedBot()
    report = evaluate(make_scenario(k=k), bot=bot, concurrency=concurrency)
    assert bot.peak == peak
    assert len(bot.contexts) == report.judged == k


def test_reports_and_scenarios_stand_in_order_however_trials_finish():
    store, told = MemoryStore(), []
    scenarios = [make_scenario("a", k=4), make_scenario("b", k=4)]
    runner = orchestrator(*scenarios, bot=GaugedBot(), store=store, on_trial=told.append, concurrency=4)
    reports = run(runner.run_all())
    assert [report.scenario for report in reports] == ["a", "b"]
    for report in reports:
        assert [trial.index for trial in report.trials] == [0, 1, 2, 3]
    finished = [record["index"] for record in store.trials[:4]]
    assert finished[0] != 0
    assert [trial.index for trial in told[:4]] == finished


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_finished_trial_is_kept_before_the_next_starts_in_its_place(concurrency):
    store = MemoryStore()

    class SlowStore(MemoryStore):
        def save_trial(self, record):
            time.sleep(0.005)
            store.save_trial(record)

    class Counting(RecordingBot):
        async def setup_trial(self, ctx):
            session = await super().setup_trial(ctx)
            assert len(self.contexts) - len(store.trials) <= concurrency
            return session

    report = evaluate(make_scenario(k=6), bot=Counting(), store=SlowStore(), concurrency=concurrency)
    assert (report.judged, len(store.trials)) == (6, 6)


def test_whoever_listens_is_told_of_a_trial_once_it_is_kept():
    store, kept = MemoryStore(), []
    runner = orchestrator(store=store, on_trial=lambda trial: kept.append((trial.index, len(store.trials))))
    run(runner.run_scenario(make_scenario(k=3)))
    assert kept == [(0, 1), (1, 2), (2, 3)]


# A bot that cancels the task it runs in.


class SelfCancelling(RecordingBot):
    """End the task of its trial in the second one, at once or at its next wait."""

    def __init__(self, how):
        super().__init__()
        self.how, self.scopes = how, []

    async def send(self, session, user_msg, media=None, **extra):
        if len(self.contexts) == 2:
            if self.how == "leaks a scope":
                # As leaking clients do: whatever the task awaits from here on is cancelled again.
                self.scopes.append(anyio.CancelScope().__enter__())
                self.scopes[0].cancel()
            else:
                asyncio.current_task().cancel()
            if self.how != "goes on":
                await asyncio.sleep(0.05)
        return await super().send(session, user_msg, media, **extra)


@pytest.mark.parametrize("how", ["waits", "goes on", "leaks a scope"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_bot_that_cancels_its_task_fails_its_trial_and_ends_no_other(how, concurrency):
    store, bot = MemoryStore(), SelfCancelling(how)
    report = evaluate(make_scenario(k=5), bot=bot, store=store, concurrency=concurrency)
    assert [trial.outcome for trial in report.trials].count(Outcome.BOT_FAILURE) == 1
    assert (report.judged, report.bot_failures, report.stopped, len(store.trials)) == (5, 1, None, 5)
    (failure,) = [trial.failure for trial in report.trials if trial.failure]
    assert (failure.owner, failure.step) == (Owner.BOT, "turn 1")
    assert "cancelled" in failure.message
    assert len(bot.torn_down) == 5


def test_a_part_that_cancels_its_task_after_the_conversation_is_not_the_bots_failure():
    class Cancelling(FixedIngest):
        async def pull(self, conversation_id):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)

    (trial,) = evaluate(make_scenario(), ingest=Cancelling()).trials
    assert (trial.outcome, trial.failure.owner) == (Outcome.ERRORED, Owner.INGEST)


@pytest.mark.parametrize("again", [1, 2])
def test_a_teardown_under_way_is_finished_when_the_run_is_cancelled(again):
    done, begun = [], asyncio.Event()

    class Slow(RecordingBot):
        async def teardown_trial(self, session):
            begun.set()
            await asyncio.sleep(0.1)
            done.append("finished")

    async def story():
        task = asyncio.create_task(orchestrator(bot=Slow()).run_scenario(make_scenario()))
        await begun.wait()
        for _ in range(again):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])
        return task.cancelled()

    assert run(story())
    assert done == ["finished"]


# A store that fails.


class FullStore(MemoryStore):
    def __init__(self, *, trials, scenarios=True):
        super().__init__()
        self.room, self.room_for_scenario = trials, scenarios

    def save_trial(self, record):
        if len(self.trials) == self.room:
            raise OSError("disk full")
        super().save_trial(record)

    def save_scenario(self, record):
        if not self.room_for_scenario:
            raise OSError("disk full")


@pytest.mark.parametrize("room", [{"trials": 1}, {"trials": 3, "scenarios": False}])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_store_that_fails_ends_the_run_with_its_own_error(room, concurrency):
    with pytest.raises(OSError, match="disk full"):
        evaluate(make_scenario(k=3), store=FullStore(**room), concurrency=concurrency)


def test_a_store_that_raises_what_no_future_takes_ends_the_run_all_the_same():
    class Iterating(MemoryStore):
        def save_trial(self, record):
            next(iter(()))

    with pytest.raises(RuntimeError, match="the store raised StopIteration"):
        evaluate(make_scenario(), store=Iterating())


def test_what_would_never_be_awaited_is_refused():
    class Async(MemoryStore):
        async def save_trial(self, record):
            pass

    async def listener(trial):
        pass

    with pytest.raises(TypeError, match=r"store\.save_trial must be a plain function"):
        orchestrator(store=Async())
    with pytest.raises(TypeError, match="on_trial must be a plain function"):
        orchestrator(on_trial=listener)


def test_an_empty_store_is_a_store():
    class ListStore(list):
        def save_trial(self, record):
            self.append(record)

        def save_scenario(self, record):
            self.append(record)

    store = ListStore()
    evaluate(make_scenario(k=2), store=store)
    assert len(store) == 3


# Loops.


def test_awaiting_works_again_and_again_in_one_loop_and_in_the_next():
    runner = orchestrator(concurrency=2)

    async def notebook():
        return [(await runner.run_scenario(make_scenario(k=2))).passed for _ in range(3)]

    assert run(notebook()) == [True] * 3
    assert run(notebook()) == [True] * 3


def test_run_once_is_awaited_like_everything_else():
    (report,) = run(run_once(orchestrator(make_scenario("cron"))))
    assert (report.scenario, report.passed) == ("cron", True)


# Trials share nothing.


@pytest.mark.parametrize("concurrency", [1, 3])
def test_every_trial_starts_from_the_same_state(concurrency):
    class Spending(RecordingBot):
        async def setup_trial(self, ctx):
            seen.append((ctx.seed.data, ctx.params, ctx.variant.model_params))
            session = await super().setup_trial(ctx)
            session.handle = ctx
            return session

        async def send(self, session, user_msg, media=None, **extra):
            ctx = session.handle
            assert ctx.seed.data == {"balance": 100, "items": []}
            assert ctx.params == {"rows": [1]}
            assert ctx.variant.model_params == {"stop": ["x"]}
            ctx.seed.data["balance"] -= 10
            ctx.seed.data["items"].append("latte")
            ctx.params["rows"].append(2)
            ctx.variant.model_params["stop"].append("y")
            await asyncio.sleep(0)
            return await super().send(session, user_msg, media, **extra)

    seen = []
    scenario = make_scenario(k=3, seed={"balance": 100, "items": []}, params={"rows": [1]})
    variant = Variant("a", model_params={"stop": ["x"]})
    report = evaluate(scenario, bot=Spending(), concurrency=concurrency, variant=variant)
    assert [trial.outcome for trial in report.trials] == [Outcome.JUDGED] * 3
    assert [data["balance"] for data, _, _ in seen] == [90] * 3
    assert (scenario.seed, scenario.params) == ({"balance": 100, "items": []}, {"rows": [1]})
    assert variant.model_params == {"stop": ["x"]}


def test_every_trial_has_a_conversation_a_place_and_faults_of_its_own():
    bot = ToolBot("pay")
    faults = FaultSpec((FaultRule("pay", Action.ERROR, when_call_index=0),))
    report = evaluate(make_scenario(k=3, faults=faults), bot=bot, ingest=BotIngest(bot))
    assert len({ctx.conversation_id for ctx in bot.contexts}) == 3
    assert [ctx.index for ctx in bot.contexts] == [0, 1, 2]
    assert all(ctx.faults == faults and ctx.tenant == "acme" for ctx in bot.contexts)
    assert [trial.faults[0].fired for trial in report.trials] == [1, 1, 1]


# Whom a trial meets.


def seeds_of(scenario, **task):
    bot = RecordingBot()
    report = evaluate(scenario, bot=bot, **task)
    seeds = [ctx.random_seed for ctx in bot.contexts]
    assert [trial.random_seed for trial in report.trials] == seeds
    return seeds


def test_the_same_trial_meets_the_same_user_whatever_is_compared():
    scenario = make_scenario(k=3)
    seeds = seeds_of(scenario)
    faulted = replace(scenario, faults=FaultSpec((FaultRule("pay", Action.ERROR),)))
    assert len(set(seeds)) == 3
    assert seeds_of(scenario, variant=Variant("b", "terse", "Be brief.")) == seeds
    assert seeds_of(faulted) == seeds
    assert seeds_of(replace(scenario, k=5))[:3] == seeds


def test_another_run_or_scenario_meets_other_users():
    scenario = make_scenario(k=1)
    assert len({*seeds_of(scenario), *seeds_of(scenario, seed=1), *seeds_of(make_scenario("other"))}) == 3


def test_a_name_that_no_encoding_has_bytes_for_has_seeds_too():
    assert trial_seed(0, "half a \ud83d", 0) != trial_seed(0, "half a \ud83e", 0)


def test_a_trials_seed_stays_the_same_from_version_to_version_and_fits_a_signed_integer():
    assert trial_seed(0, "order", 0) == 2537739582326302707
    assert all(0 <= trial_seed(0, "order", index) < 2**63 for index in range(100))


def test_the_user_model_gets_the_trials_seed_unless_it_has_one():
    model = ScriptedClient(["[[END]]"])
    report = evaluate(make_scenario(k=2, scripted_messages=None), model=model)
    assert [request.config.seed for request in model.requests] == [trial.random_seed for trial in report.trials]
    own = ScriptedClient(["[[END]]"])
    user = replace(make_task().user_llm, seed=7)
    evaluate(make_scenario(scripted_messages=None, user_llm=user), model=own)
    assert own.requests[0].config.seed == 7


def test_two_scenarios_of_one_name_are_refused_before_the_first_trial():
    bot = RecordingBot()
    task = make_task(scenarios=[make_scenario("same"), make_scenario("same")])
    with pytest.raises(ConfigError, match="two scenarios are named 'same'"):
        run(Orchestrator(task, bot, ScriptedClient(["x"]), ingest_client=FixedIngest()).run_all())
    assert not bot.sent


def test_trials_of_an_earlier_run_are_taken_over_and_the_rest_made_up():
    first = evaluate(make_scenario(k=2))
    kept = [*first.trials, errored_trial(2)]
    bot = RecordingBot()
    orchestrator = Orchestrator(
        make_task(), bot, ScriptedClient(["x"]), ingest_client=FixedIngest(), finished={"s": kept}
    )
    report = run(orchestrator.run_scenario(make_scenario(k=4)))
    assert [trial.index for trial in report.trials] == [0, 1, 2, 3]
    assert [trial.conversation_id for trial in report.trials[:2]] == [trial.conversation_id for trial in first.trials]
    assert len(bot.contexts) == 2
    assert report.judged == 4


@pytest.mark.parametrize("names", [["always", "no leak"], ["another"], []])
def test_trials_that_were_judged_by_other_assertions_are_not_taken_over(names):
    first, bot = evaluate(make_scenario(k=2)), RecordingBot()
    other = [Assertion(name, Severity.CAPABILITY, lambda transcript, log: False) for name in names]
    again = orchestrator(bot=bot, finished={"s": first.trials})
    with pytest.raises(ConfigError, match=r"trial 1 was finished under other assertions .*rejudge"):
        run(again.run_scenario(make_scenario(k=3, assertions=other)))
    assert bot.contexts == []


def test_what_an_earlier_run_paid_for_a_spoilt_trial_is_not_forgotten():
    spoilt = replace(errored_trial(0), log=ConversationLog("c", spent={"simulator": Spend(1, 10, 1, 1.0)}))
    again = orchestrator(finished={"s": [spoilt]})
    (trial,) = run(again.run_scenario(make_scenario())).trials
    assert trial.outcome is Outcome.JUDGED
    assert trial.earlier_failures == [spoilt.failure]
    assert trial.spent["simulator"].cost_usd == 1.0


def test_a_spoilt_trial_of_an_earlier_run_has_all_its_retries_again():
    ingest = FixedIngest(failures=[IngestError("down")])
    again = orchestrator(finished={"s": [errored_trial(0)]}, ingest=ingest, retries=1)
    (trial,) = run(again.run_scenario(make_scenario())).trials
    assert trial.outcome is Outcome.JUDGED
    assert len(trial.earlier_failures) == 2


def test_a_smaller_k_leaves_earlier_trials_out():
    first = evaluate(make_scenario(k=3))
    orchestrator = Orchestrator(
        make_task(), RecordingBot(), ScriptedClient(["x"]), ingest_client=FixedIngest(), finished={"s": first.trials}
    )
    assert len(run(orchestrator.run_scenario(make_scenario(k=2))).trials) == 2


def test_what_a_trial_saw_is_read_back_whole_after_it_was_packed():
    spans = [tool_span("pay", success=False), tool_span("pay \ud83d")]
    report = evaluate(make_scenario(), ingest=FixedIngest(spans))
    (trial,) = report.trials
    assert "transcript" not in vars(trial)
    assert trial.transcript.spans == spans
    assert [call.failed for call in trial.transcript.tool_calls] == [True, False]
    assert replace(trial, index=5).transcript == trial.transcript


def test_what_cannot_be_packed_is_kept_as_it_is():
    lock = threading.Lock()
    trial = replace(judged_trial(0, True), transcript=Transcript("c", [{"trace_id": "t", "lock": lock}]))
    trial.pack()
    trial.pack()
    assert trial.transcript.runs[0]["lock"] is lock


def test_the_repr_of_a_report_does_not_grow_with_its_trials():
    short, long = (repr(evaluate(make_scenario(k=k))) for k in (2, 20))
    assert len(long) < len(short) + 20


def test_a_trial_without_a_transcript_stays_without_one_when_packed():
    trial = errored_trial()
    trial.pack()
    trial.pack()
    assert trial.transcript is None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = trial.nonsense
