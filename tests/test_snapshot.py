"""The state a bot leaves behind: asked for after the last turn, kept with the trial, over HTTP too."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from fakes import MemoryStore, RecordingBot, evaluate, make_scenario, run
from sonar_eval import Assertion, Delivered, FaultSpec, Fidelity, Outcome, Seed, Severity, TrialContext, final_state
from sonar_eval.adapter import take_snapshot, wire
from sonar_eval.adapter.http import HTTPBotAdapter
from sonar_eval.appside import CountedAdapter, trial_routes
from sonar_eval.demo.bot import CafeConversation
from sonar_eval.records import read_trial


class KeepingBot(RecordingBot):
    """Count what it was sent, and show that until it is torn down."""

    def snapshot(self, session):
        return {"sent": len(self.sent), "open": not self.torn_down, "pair": (1, 2)}


class LaterBot(RecordingBot):
    """Show its state when it is awaited, by `show`."""

    def __init__(self, show):
        super().__init__()
        self.show = show

    async def snapshot(self, session):
        await asyncio.sleep(0)
        return self.show()


def fail():
    raise OSError("the books are gone")


def scenario(expected: Any = None):
    check = final_state({"sent": 1, "open": True} if expected is None else expected)
    return make_scenario(assertions=[Assertion("state", Severity.SAFETY_CRITICAL, check)])


def test_the_state_is_taken_after_the_last_turn_and_before_teardown_and_kept_in_the_record():
    store = MemoryStore()
    (trial,) = evaluate(scenario(), bot=KeepingBot(), store=store).trials
    assert trial.log.final_state == {"sent": 1, "open": True, "pair": [1, 2]}
    assert [result.passed for result in trial.assertions] == [True]
    assert read_trial(store.trials[0]) == trial
    del store.trials[0]["final_state"]
    assert read_trial(store.trials[0]).log.final_state is None


def test_a_snapshot_may_be_awaited_for():
    (trial,) = evaluate(scenario({"a": 1}), bot=LaterBot(lambda: {"a": 1})).trials
    assert trial.assertions[0].passed


@pytest.mark.parametrize(
    ("bot", "warned"),
    [
        (RecordingBot(), ""),
        (LaterBot(lambda: None), ""),
        (LaterBot(fail), "the snapshot failed: OSError: the books are gone"),
        (LaterBot(lambda: {"at": math.nan}), "a snapshot must be plain JSON values"),
        (LaterBot(lambda: {"at": object()}), "a snapshot must be plain JSON values"),
    ],
    ids=["no snapshot", "nothing", "raises", "not a number", "no JSON"],
)
def test_without_a_snapshot_the_trial_is_judged_and_its_state_unknown(bot, warned):
    (trial,) = evaluate(scenario(), bot=bot).trials
    assert trial.outcome is Outcome.JUDGED
    assert [(result.passed, result.unknown) for result in trial.assertions] == [(False, True)]
    assert len(trial.warnings) == bool(warned)
    assert warned in " ".join(trial.warnings)
    assert len(bot.torn_down) == 1


def test_a_snapshot_that_hangs_is_given_up():
    class Hanging(RecordingBot):
        async def snapshot(self, session):
            await asyncio.Event().wait()

    bot = Hanging()
    (trial,) = evaluate(scenario(), bot=bot, teardown_timeout_s=0.05).trials
    assert trial.outcome is Outcome.JUDGED
    assert trial.warnings == ["the snapshot did not end within 0.05 s"]
    assert len(bot.torn_down) == 1


def test_an_adapter_that_is_counted_shows_what_it_showed_before():
    assert run(take_snapshot(CountedAdapter(KeepingBot()), None))["sent"] == 0
    assert run(take_snapshot(CountedAdapter(RecordingBot()), None)) is None


class Mute:
    """A conversation without a snapshot."""

    async def send(self, text, submission):
        return Delivered((text,))

    async def close(self):
        pass


class Open(Mute):
    """A conversation that shows `state`."""

    def __init__(self, state, *, later=False):
        self.state, self.later = state, later

    def snapshot(self):
        return self._later() if self.later else self.state

    async def _later(self):
        return self.state


def ask(conversation):
    """Open a conversation over the routes and return what its snapshot is at the harness's end."""

    async def opened(setup):
        return conversation

    async def story():
        app = Starlette(routes=trial_routes(opened))
        adapter = HTTPBotAdapter("http://bot.test" + wire.DEFAULT_PREFIX, transport=httpx.ASGITransport(app=app))
        session = await adapter.setup_trial(TrialContext("c/1 ?", Seed(), FaultSpec(), Fidelity.REAL))
        return await take_snapshot(adapter, session)

    return run(story())


@pytest.mark.parametrize("later", [False, True])
def test_a_state_crosses_the_wire_as_it_is(later):
    state = {"orders": {"A-1": {"paid": 3.8}}, "é": [1, None, True]}
    assert ask(Open(state, later=later)) == state


def test_a_bot_that_shows_no_state_has_none():
    assert ask(Mute()) is None
    assert ask(Open(None)) is None


def test_a_state_that_is_no_json_is_the_bot_s_mistake_and_told():
    with pytest.raises(ConnectionError, match=r"answered 500.*not JSON compliant"):
        ask(Open({"at": math.nan}))


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_bot_made_before_there_were_snapshots_has_none(status):
    transport = httpx.MockTransport(lambda request: httpx.Response(status, text="<h1>no</h1>"))
    adapter = HTTPBotAdapter("http://bot.test", transport=transport)
    session = type("S", (), {"conversation_id": "c"})()
    assert run(adapter.snapshot(session)) is None


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (httpx.Response(200, json=[1]), "expected an object with the state in 'state'"),
        (httpx.Response(200, json={"orders": {}}), "expected an object with the state in 'state'"),
        (httpx.Response(200, text="<h1>hello</h1>"), "answered no JSON"),
        (httpx.Response(401, json={"error": "no key"}), "answered 401"),
    ],
)
def test_an_answer_that_is_no_snapshot_is_told(response, said):
    adapter = HTTPBotAdapter("http://bot.test", transport=httpx.MockTransport(lambda request: response))
    session = type("S", (), {"conversation_id": "c"})()
    with pytest.raises((ConnectionError, ValueError), match=said):
        run(adapter.snapshot(session))


def test_the_routes_show_nothing_without_the_key_or_of_a_conversation_that_is_not_open():
    async def opened(setup):
        return Open({"a": 1})

    async def story():
        app = Starlette(routes=trial_routes(opened, key="k"))
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://bot.test/sonar-eval")
        async with client:
            return [
                (await client.get("/trials/nobody/snapshot", headers=headers)).status_code
                for headers in ({}, {wire.KEY_HEADER: "k"})
            ]

    assert run(story()) == [401, 404]


def test_the_cafe_shows_its_books():
    from sonar_eval.adapter import Variant

    seed = {"orders": [{"id": "A-17", "item": "flat white", "total": 3.8, "paid": 3.8}]}
    conversation = CafeConversation(Variant(), random_seed=1, seed=seed)
    books = conversation.snapshot()
    assert books["orders"]["A-17"]["paid"] == 3.8
    assert books["deliveries"] == {}
    run(conversation.close())
