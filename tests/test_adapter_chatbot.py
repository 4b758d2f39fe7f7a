"""A chat model and Python functions as a bot, made in Python."""

from __future__ import annotations

import json

import pytest
import sonar_tracing

from fakes import run
from sonar_eval import (
    Action,
    ConfigError,
    FaultRule,
    FaultSpec,
    Fidelity,
    LLMConfig,
    ProxyInterceptor,
    ScriptedClient,
    Seed,
    Session,
    TrialContext,
    Variant,
    validate_bot_adapter,
)
from sonar_eval.adapter.chat import tool
from sonar_eval.adapter.chatbot import ChatBot
from sonar_eval.errors import LLMTransportError
from sonar_eval.llm import ChatReply, ToolRequest

VARIANT = Variant("m", "p", "Be kind.", {"provider": "openai", "model": "m-1", "base_url": "http://127.0.0.1:9/v1"})


def look_up(item: str, ctx: TrialContext) -> str:
    """Look something up."""
    ctx.seed.data["asked"] = [*ctx.seed.data.get("asked", ()), item]
    return f"{item}: {len(ctx.seed.data['asked'])}"


async def reserve(item: str, trial: TrialContext) -> str:
    """Put something aside."""
    return f"{item} for {trial.conversation_id}"


def plain(item: str) -> str:
    """Do something."""
    return item


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    """Have tracing started by somebody else, who does not export."""
    monkeypatch.setattr(sonar_tracing, "current_state", lambda: object())


def context(conversation_id="c1", *rules, variant=VARIANT):
    spec = FaultSpec(rules)
    return TrialContext(
        conversation_id,
        Seed({}),
        spec,
        Fidelity.MOCKED,
        random_seed=7,
        variant=variant,
        interceptor=ProxyInterceptor(spec),
    )


def wants(name, /, **arguments):
    return ChatReply("", (ToolRequest("call_1", name, arguments),))


def talk(bot, ctx, *messages):
    async def story():
        session = await bot.setup_trial(ctx)
        delivered = [(await bot.send(session, message)).messages for message in messages]
        await bot.teardown_trial(session)
        return delivered

    return run(story())


def told(client):
    return [message.content for message in client.requests[-1].messages if message.role == "tool"]


def test_it_is_a_bot():
    validate_bot_adapter(ChatBot())


def test_model_and_prompt_come_from_the_variant_and_the_seed_from_the_trial():
    client = ScriptedClient(["Hello."])
    assert talk(ChatBot(client), context(), "hi") == [("Hello.",)]
    (request,) = client.requests
    assert (request.config, request.system) == (LLMConfig("m-1", seed=7), "Be kind.")


def test_what_is_given_goes_before_the_variant():
    client = ScriptedClient(["Hello."])
    talk(ChatBot(client, prompt="", config=LLMConfig("mine", 0.1, seed=3)), context(), "hi")
    (request,) = client.requests
    assert (request.config, request.system) == (LLMConfig("mine", 0.1, seed=3), "")


def test_without_any_model_it_says_what_is_missing():
    with pytest.raises(ConfigError, match="bot 'shop': no model"):
        talk(ChatBot(name="shop"), context(variant=Variant()), "hi")


@pytest.mark.parametrize(("function", "result"), [(look_up, "tea: 1"), (reserve, "tea for c1"), (plain, "tea")])
def test_a_tool_is_called_with_the_trials_own_context_where_it_asks_for_it(function, result):
    client = ScriptedClient([wants(function.__name__, item="tea"), "Done."])
    assert talk(ChatBot(client, tools=[function]), context(), "hi") == [("Done.",)]
    assert told(client) == [result]
    (schema,) = client.requests[0].tools
    assert list(schema.parameters["properties"]) == schema.parameters["required"] == ["item"]


@pytest.mark.parametrize("function", [look_up, reserve])
def test_a_model_cannot_fill_in_what_is_the_trials(function):
    client = ScriptedClient([wants(function.__name__, item="tea", ctx="mine", trial="mine"), "Sorry."])
    talk(ChatBot(client, tools=[function]), context(), "hi")
    assert "TypeError" in json.loads(told(client)[0])["error"]


def test_trials_of_one_bot_share_no_state():
    client = ScriptedClient(lambda request: "ok" if request.messages[-1].role == "tool" else wants("look_up", item="x"))
    bot = ChatBot(client, tools=[look_up])
    first, second = context("c1"), context("c2")
    talk(bot, first, "a", "b")
    talk(bot, second, "a")
    assert (first.seed.data, second.seed.data) == ({"asked": ["x", "x"]}, {"asked": ["x"]})


def test_tools_may_be_made_for_each_trial():
    def shop(ctx):
        def name() -> str:
            return ctx.conversation_id

        return [tool(name, name="whose"), plain]

    client = ScriptedClient([wants("whose"), "Done."])
    talk(ChatBot(client, tools=shop), context("c9"), "hi")
    assert told(client) == ["c9"]
    assert [schema.name for schema in client.requests[0].tools] == ["whose", "plain"]


def test_a_fault_of_the_trial_hits_its_tools():
    ctx = context("c1", FaultRule("plain", Action.ERROR, payload="broken"))
    client = ScriptedClient([wants("plain", item="tea"), "Sorry."])
    talk(ChatBot(client, tools=[plain]), ctx, "hi")
    assert "broken" in told(client)[0]
    assert len(ctx.interceptor.firings) == 1


def test_a_loop_of_tool_calls_is_bounded_and_ends_in_silence():
    client = ScriptedClient([wants("plain", item="tea")])
    assert talk(ChatBot(client, tools=[plain], max_steps=3), context(), "hi") == [()]
    assert len(client.requests) == 3


def test_a_provider_s_failure_is_handed_on_as_it_is():
    with pytest.raises(LLMTransportError):
        talk(ChatBot(ScriptedClient([LLMTransportError("down")])), context(), "hi")


def odd(item: set) -> str:
    return ""


def lost(item: Nowhere) -> str:  # noqa: F821
    return ""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tools": [odd]}, "odd is no tool: .*'item'"),
        ({"tools": [lost]}, "lost is no tool: .*Nowhere"),
        ({"tools": ["plain"]}, "'plain' is no tool: expected a function"),
        ({"tools": [plain, tool(plain)]}, "two tools are named 'plain'"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": True}, "max_steps"),
    ],
)
def test_a_mistake_is_told_when_the_bot_is_made(settings, message):
    with pytest.raises(ConfigError, match=message):
        ChatBot(**settings)


def test_it_can_be_torn_down_after_a_setup_that_failed():
    bot = ChatBot(ScriptedClient(["x"]), tools=lambda ctx: [odd])

    async def story():
        with pytest.raises(ConfigError):
            await bot.setup_trial(context())
        await bot.teardown_trial(Session("c1"))

    run(story())
