"""The model that says what it is told to."""

from __future__ import annotations

import pytest

from fakes import run
from sonar_eval import LLMConfig, Message, ScriptedClient
from sonar_eval.errors import LLMTransportError
from sonar_eval.llm import ChatClient, ChatReply, Completion, ToolRequest, ToolSchema, Usage

CONFIG = LLMConfig("m-1")
HELLO = [Message("user", "hello")]


def ask(client: ScriptedClient, *, text: str = "hello") -> Completion:
    return run(client.complete(CONFIG, "be kind", [Message("user", text)]))


def test_replies_come_in_order_and_the_last_one_for_ever():
    client = ScriptedClient(["a", "b"])
    assert [ask(client) for _ in range(4)] == ["a", "b", "b", "b"]


def test_replies_may_come_from_any_iterable():
    client = ScriptedClient(letter for letter in "xy")
    assert [ask(client), ask(client)] == ["x", "y"]


def test_a_function_computes_each_reply_from_its_request():
    client = ScriptedClient(lambda request: request.messages[-1].content.upper())
    assert [ask(client, text="a"), ask(client, text="b")] == ["A", "B"]


def test_every_call_is_kept_with_all_it_was_given():
    tool = ToolSchema("pay", "Pay.", {"type": "object"})
    client = ScriptedClient(["a"])
    messages = list(HELLO)
    run(client.chat(CONFIG, "be kind", messages, [tool]))
    messages.append(Message("assistant", "a"))
    (request,) = client.requests
    assert (request.config, request.system, request.messages, request.tools) == (
        CONFIG,
        "be kind",
        tuple(HELLO),
        (tool,),
    )


def test_a_reply_may_be_tool_calls_with_usage():
    reply = ChatReply("", (ToolRequest("c", "pay", {}),), Usage(3, 1), "tool_calls", "m-9")
    assert run(ScriptedClient([reply]).chat(CONFIG, "", HELLO, ())) == reply


def test_a_text_becomes_a_reply_of_the_model_that_was_asked():
    assert run(ScriptedClient(["hi"]).chat(CONFIG, "", HELLO, ())) == ChatReply("hi", model="m-1")


def test_completing_gives_the_text_with_what_was_said_about_it():
    answer = ask(ScriptedClient([ChatReply("hi", usage=Usage(3, 1), finish_reason="length")]))
    assert (answer, answer.usage, answer.finish_reason) == ("hi", Usage(3, 1), "length")


def test_a_reply_that_is_an_exception_is_raised_and_the_next_call_goes_on():
    client = ScriptedClient([LLMTransportError("busy"), "hi"])
    with pytest.raises(LLMTransportError, match="busy"):
        ask(client)
    assert ask(client) == "hi"
    assert len(client.requests) == 2


def test_a_client_without_replies_is_refused():
    with pytest.raises(ValueError, match="at least one reply"):
        ScriptedClient([])


def test_it_can_be_the_brain_of_a_bot():
    assert isinstance(ScriptedClient(["hi"]), ChatClient)


def test_a_completion_behaves_as_the_text_it_is():
    completion = Completion("hi", Usage(1, 2), "stop")
    assert completion == "hi"
    assert {completion: 1}["hi"] == 1
    assert type(completion + "!") is str
    assert Completion("bare").usage == Usage(None, None)
