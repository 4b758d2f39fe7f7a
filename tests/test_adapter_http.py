"""Driving a bot over HTTP: the adapter at one end, the routes a team mounts at the other."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from fakes import run
from sonar_eval import (
    Action,
    ConfigError,
    Delivered,
    FaultRule,
    FaultSpec,
    Fidelity,
    Form,
    FormField,
    FormSubmission,
    Seed,
    Session,
    TrialContext,
    validate_bot_adapter,
)
from sonar_eval.adapter import Variant, wire
from sonar_eval.adapter.http import HTTPBotAdapter
from sonar_eval.appside import trial_routes

KEY = "key-of-the-test-deployment"
DELIVERY = Form("delivery", "Where to?", (FormField("address", required=True),))


class Echo:
    """Say back what it is told, and keep what happened."""

    def __init__(self, setup: wire.TrialSetup) -> None:
        self.setup = setup
        self.heard: list[tuple[str, FormSubmission | None]] = []
        self.closed = False

    async def send(self, text: str, submission: FormSubmission | None) -> Delivered:
        self.heard.append((text, submission))
        if text == "crash":
            raise RuntimeError("the basket is on fire")
        forms = (DELIVERY,) if text == "deliver" else ()
        return Delivered((f"you said {text}",), forms=forms)

    async def close(self) -> None:
        self.closed = True


class House:
    """A bot's app with the harness's routes, and an adapter that drives it."""

    def __init__(self, *, key: str | None = None, given: str | None = None) -> None:
        self.opened: list[Echo] = []
        app = Starlette(routes=trial_routes(self.open, key=key))
        self.transport = httpx.ASGITransport(app=app)
        self.adapter = HTTPBotAdapter(
            "http://bot.test" + wire.DEFAULT_PREFIX, key=given, transport=self.transport, name="echo"
        )

    async def open(self, setup: wire.TrialSetup) -> Echo:
        if setup.params.get("closed today"):
            raise RuntimeError("the shop is closed")
        self.opened.append(Echo(setup))
        return self.opened[-1]


def context(conversation_id: str = "conv-1", **changes: Any) -> TrialContext:
    settings: dict[str, Any] = {"seed": Seed({"stock": {"latte": 0}}), "faults": FaultSpec(), "fidelity": Fidelity.REAL}
    return TrialContext(conversation_id, **{**settings, **changes})


def answering(*answers: httpx.Response) -> HTTPBotAdapter:
    """Make an adapter whose bot gives these answers."""
    left = list(answers)
    return HTTPBotAdapter("http://bot.test", transport=httpx.MockTransport(lambda request: left.pop(0)))


@pytest.mark.parametrize("kept", [4, 12, len(KEY)])
@pytest.mark.parametrize("status", [200, 500])
def test_the_key_is_in_no_error_not_even_in_part(kept, status):
    bot = httpx.MockTransport(lambda request: httpx.Response(status, text="x" * (500 - kept) + KEY))
    adapter = HTTPBotAdapter("http://bot.test", key=KEY, transport=bot)
    with pytest.raises(ConnectionError, match="xxx") as caught:
        run(adapter.setup_trial(context()))
    assert KEY[:4] not in str(caught.value)


def test_it_is_a_valid_adapter():
    validate_bot_adapter(HTTPBotAdapter("http://bot.test"))


def test_a_trial_is_set_up_talked_to_and_torn_down():
    house = House()

    async def story() -> list[Delivered]:
        session = await house.adapter.setup_trial(context())
        said = [await house.adapter.send(session, text) for text in ("hello", "bye")]
        await house.adapter.teardown_trial(session)
        return said

    assert run(story()) == [Delivered(("you said hello",)), Delivered(("you said bye",))]
    (echo,) = house.opened
    assert echo.heard == [("hello", None), ("bye", None)]
    assert echo.closed


def test_the_bot_is_told_all_of_the_trial():
    house = House()
    faults = FaultSpec((FaultRule("pay", Action.ERROR, when_call_index=1, payload="declined"),))
    variant = Variant("gpt", "polite", "Be polite.", {"provider": "openai"})
    given = context(faults=faults, variant=variant, index=2, random_seed=7, params={"a": 1}, tenant="acme")
    session = run(house.adapter.setup_trial(given))
    assert session == Session("conv-1")
    assert house.opened[0].setup == wire.TrialSetup(
        "conv-1",
        index=2,
        random_seed=7,
        seed={"stock": {"latte": 0}},
        params={"a": 1},
        variant=variant,
        faults=faults,
        tenant="acme",
    )


def test_forms_travel_in_both_directions():
    house = House()
    submission = FormSubmission("delivery", {"address": "Main Street 1"})

    async def story() -> Delivered:
        session = await house.adapter.setup_trial(context())
        shown = await house.adapter.send(session, "deliver")
        await house.adapter.send(session, "here you are", submission=submission)
        return shown

    assert run(story()).forms == (DELIVERY,)
    assert house.opened[0].heard[1] == ("here you are", submission)


def test_conversations_are_kept_apart():
    house = House()

    async def story() -> None:
        one = await house.adapter.setup_trial(context("one"))
        two = await house.adapter.setup_trial(context("two"))
        await house.adapter.send(two, "b")
        await house.adapter.send(one, "a")
        await house.adapter.teardown_trial(one)
        await house.adapter.send(two, "c")

    run(story())
    assert [[text for text, _ in echo.heard] for echo in house.opened] == [["a"], ["b", "c"]]
    assert [echo.closed for echo in house.opened] == [True, False]


@pytest.mark.parametrize("conversation_id", ["a/b", "a/turns", "two words", "né", "a?b#c", "%2F", "x" * 300])
def test_any_conversation_id_finds_its_conversation(conversation_id):
    house = House()

    async def story() -> Delivered:
        session = await house.adapter.setup_trial(context(conversation_id))
        delivered = await house.adapter.send(session, "hello")
        await house.adapter.teardown_trial(session)
        return delivered

    assert run(story()).messages == ("you said hello",)
    assert house.opened[0].closed


@pytest.mark.parametrize("given", [None, "wrong", KEY + "x"])
def test_a_wrong_key_is_refused_at_every_step_and_not_repeated(given):
    house = House(key=KEY, given=given)
    session = Session("conv-1")
    for step in (
        house.adapter.setup_trial(context()),
        house.adapter.send(session, "hello"),
        house.adapter.teardown_trial(session),
    ):
        with pytest.raises(ConnectionError, match=r"401.*x-sonar-eval-key") as caught:
            run(step)
        assert KEY not in str(caught.value)
    assert house.opened == []


@pytest.mark.parametrize("given", [KEY, KEY + "\n"])
def test_the_right_key_opens(given):
    house = House(key=KEY, given=given)
    run(house.adapter.setup_trial(context()))
    assert len(house.opened) == 1


def test_the_key_of_the_routes_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv(wire.KEY_VARIABLE, KEY)
    with pytest.raises(ConnectionError, match="401"):
        run(House().adapter.setup_trial(context()))
    run(House(given=KEY).adapter.setup_trial(context()))


def test_a_conversation_that_is_not_open_is_a_404_in_words():
    with pytest.raises(ConnectionError, match=r"POST http://bot\.test/.*answered 404: .*no such conversation"):
        run(House().adapter.send(Session("gone"), "hello"))


def test_tearing_down_what_is_not_open_is_no_error():
    run(House().adapter.teardown_trial(Session("gone")))


def test_setting_one_conversation_up_twice_is_refused():
    house = House()
    run(house.adapter.setup_trial(context()))
    with pytest.raises(ConnectionError, match=r"409.*conv-1.*already"):
        run(house.adapter.setup_trial(context()))


def test_a_bot_that_raises_is_quoted_in_the_error_and_told_of_in_its_own_log(caplog):
    house = House()

    async def story() -> None:
        session = await house.adapter.setup_trial(context())
        await house.adapter.send(session, "crash")

    with pytest.raises(ConnectionError, match=r"answered 500: .*RuntimeError: the basket is on fire"):
        run(story())
    assert "Traceback" in caplog.text


def test_a_bot_that_cannot_open_is_quoted_and_nothing_stays_open():
    house = House()
    with pytest.raises(ConnectionError, match="the shop is closed"):
        run(house.adapter.setup_trial(context(params={"closed today": True})))
    run(house.adapter.setup_trial(context()))


def test_a_bot_that_raises_can_still_be_talked_to():
    house = House()

    async def story() -> Delivered:
        session = await house.adapter.setup_trial(context())
        with pytest.raises(ConnectionError):
            await house.adapter.send(session, "crash")
        return await house.adapter.send(session, "hello")

    assert run(story()).messages == ("you said hello",)


def test_the_error_of_a_team_that_answers_for_itself_is_quoted_too():
    answer = httpx.Response(500, text="sorry: the basket is on fire")
    with pytest.raises(ConnectionError, match="500: sorry: the basket is on fire"):
        run(answering(answer).send(Session("conv-1"), "hello"))


def test_a_fault_that_cannot_travel_is_refused_before_anything_is_posted():
    house = House()
    faults = FaultSpec((FaultRule("pay", Action.ERROR, when=lambda call: True),))
    with pytest.raises(ValueError, match="predicate"):
        run(house.adapter.setup_trial(context(faults=faults)))
    assert house.opened == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(200, text="<html>welcome</html>"), r"no JSON: <html>welcome"),
        (httpx.Response(200), "answered no turn"),
        (httpx.Response(200, json=["hi"]), "answered no turn.*hi"),
        (httpx.Response(200, json={"messages": "hi"}), "messages"),
        (httpx.Response(200, json={"messages": [], "forms": [{}]}), "forms"),
        (httpx.Response(302, headers={"location": "/login"}), "302"),
        (httpx.Response(503, text="x" * 10_000), "503: xxx"),
        (httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip")), "Decoding"),
    ],
)
def test_an_answer_that_is_no_turn_is_a_connection_error_that_shows_it(answer, said):
    with pytest.raises(ConnectionError, match=said) as caught:
        run(answering(answer).send(Session("conv-1"), "hello"))
    assert len(str(caught.value)) < 1000


def test_a_bot_that_is_not_there_is_named_with_the_step():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ConnectionError, match=rf"POST {url}/trials: ConnectError"):
        run(HTTPBotAdapter(url).setup_trial(context()))


@pytest.mark.parametrize("url", ["", "localhost:9000/x", "ftp://bot.test", "http://", "http://bot:port", "http://[::1"])
def test_an_address_that_is_none_is_told_at_once(url):
    with pytest.raises(ConfigError, match=r"expected an address such as http://localhost:9000/sonar-eval, got"):
        HTTPBotAdapter(url)


def test_a_bot_that_takes_too_long_is_a_connection_error_with_words():
    def slow(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    adapter = HTTPBotAdapter("http://bot.test", transport=httpx.MockTransport(slow))
    with pytest.raises(ConnectionError, match="ReadTimeout"):
        run(adapter.send(Session("conv-1"), "hello"))


def test_entering_an_adapter_without_a_process_changes_nothing():
    house = House()

    async def story() -> Delivered:
        async with house.adapter as adapter:
            session = await adapter.setup_trial(context())
            return await adapter.send(session, "hello")

    assert run(story()).messages == ("you said hello",)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/trials", "no json", "no trial setup"),
        ("/trials", "[]", "JSON object"),
        ("/trials", '{"conversation_id": ""}', "conversation_id"),
        ("/trials", '{"conversation_id": "c", "variant": "gpt"}', "variant"),
        ("/trials", '{"conversation_id": "c", "faults": [{}]}', "faults"),
        ("/trials/conv-1/turns", "no json", "no turn"),
        ("/trials/conv-1/turns", "{}", "text"),
        ("/trials/conv-1/turns", '{"text": "hi", "submission": {}}', "submission"),
    ],
)
def test_the_routes_refuse_a_body_of_the_wrong_form_with_its_reason(path, body, said):
    house = House()
    run(house.adapter.setup_trial(context()))

    async def post() -> httpx.Response:
        async with httpx.AsyncClient(transport=house.transport, base_url="http://bot.test") as client:
            return await client.post(wire.DEFAULT_PREFIX + path, content=body)

    answer = run(post())
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_the_routes_may_be_mounted_elsewhere():
    opened: list[wire.TrialSetup] = []

    async def open_echo(setup: wire.TrialSetup) -> Echo:
        opened.append(setup)
        return Echo(setup)

    app = Starlette(routes=trial_routes(open_echo, prefix="/internal/eval"))
    adapter = HTTPBotAdapter("http://bot.test/internal/eval/", transport=httpx.ASGITransport(app=app))
    run(adapter.setup_trial(context()))
    assert len(opened) == 1


def test_what_is_posted_is_plain_json_with_the_key_in_its_header():
    requests: list[httpx.Request] = []

    def keep(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"messages": []})

    adapter = HTTPBotAdapter("http://bot.test", key=KEY, transport=httpx.MockTransport(keep))
    run(adapter.send(Session("conv/1"), "hé", submission=FormSubmission("f", {"a": 1})))
    (request,) = requests
    assert request.url.raw_path == b"/trials/conv%2F1/turns"
    assert request.headers[wire.KEY_HEADER] == KEY
    assert json.loads(request.content) == {"text": "hé", "submission": {"form": "f", "values": {"a": 1}}}
