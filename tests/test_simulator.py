import asyncio
import contextlib
import re
from itertools import pairwise

import pytest

from fakes import RecordingBot, make_scenario, make_task, run
from sonar_eval import (
    ConversationLog,
    Delivered,
    EndReason,
    Form,
    FormField,
    FormSubmission,
    LLMConfig,
    Message,
    Persona,
    ScriptedClient,
    Session,
    UserSimulator,
)
from sonar_eval.errors import BotError, HarnessError, LLMRequestError, LLMSilenceError, SimulatorError

ORDER = Form("order", "Your order", (FormField("size", "choice", True, ("small", "large")), FormField("note")))


def converse(*replies, bot=None, client=None, log=None, turn_timeout_s=None, **scenario):
    """Let a model that gives `replies`, or the script of the scenario, talk to a bot."""
    bot = bot or RecordingBot()
    client = client or ScriptedClient(replies or ["unused"])
    scenario = make_scenario(**{"scripted_messages": None, **scenario})
    simulator = UserSimulator(client, LLMConfig("user"), scenario, turn_timeout_s=turn_timeout_s)
    log = run(simulator.run(bot, Session("c1"), log))
    return log, bot, client


def test_last_words_before_the_end_signal_are_still_said():
    log, bot, client = converse("I want to cancel order 77.", "Yes, go ahead and cancel it.\n[[END]]")
    assert bot.sent == ["I want to cancel order 77.", "Yes, go ahead and cancel it."]
    assert log.turns_taken == 2
    assert log.terminated is True
    assert log.ended_by is EndReason.USER
    assert len(client.requests) == 2
    assert not any("[[END]]" in text for text in [*bot.sent, *(turn.user for turn in log.turns)])


def test_a_script_ends_at_its_signal_and_its_last_words_are_said():
    log, bot, client = converse(scripted_messages=["a", "b [[END]]", "c"])
    assert bot.sent == ["a", "b"]
    assert (log.terminated, log.ended_by) == (True, EndReason.USER)
    assert client.requests == []


def test_the_bare_end_signal_is_not_sent():
    log, bot, _ = converse("hi", "[[END]]")
    assert bot.sent == ["hi"]
    assert log.terminated


def test_the_end_signal_is_the_scenarios_own():
    log, bot, _ = converse("hi [[END]]", "over and out", termination_signal="over and out")
    assert bot.sent == ["hi [[END]]"]
    assert log.terminated


def test_a_user_who_says_nothing_is_asked_once_more():
    log, bot, client = converse("hi", "", "[[END]]")
    assert bot.sent == ["hi"]
    assert (log.turns_taken, log.terminated) == (1, True)
    reminder = client.requests[2].messages[-1]
    assert reminder.role == "user"
    assert "[[END]]" in reminder.content
    assert "empty" in reminder.content


def test_a_user_who_says_nothing_twice_ends_the_conversation():
    log, bot, client = converse("hi", "  \n", "", max_turns=6)
    assert bot.sent == ["hi"]
    assert (log.terminated, log.ended_by) == (False, EndReason.SILENT_USER)
    assert len(client.requests) == 3


@pytest.mark.parametrize("silence", [None, LLMSilenceError("nothing said")])
def test_a_model_without_an_answer_is_a_silent_user(silence):
    class Mute:
        calls = 0

        async def complete(self, config, system, messages):
            self.calls += 1
            if silence is not None:
                raise silence

    client = Mute()
    log, bot, _ = converse(client=client)
    assert bot.sent == []
    assert log.ended_by is EndReason.SILENT_USER
    assert client.calls == 2


def test_a_blank_message_in_a_script_is_not_sent():
    log, bot, _ = converse(scripted_messages=["a", "", " \n", "\u200b", "b"])
    assert bot.sent == ["a", "b"]
    assert log.ended_by is EndReason.SCRIPT


def test_every_message_list_is_one_that_providers_accept():
    _, bot, client = converse("a", "b", "c", "[[END]]", bot=RecordingBot(lambda text: f"you said {text}"))
    lists = [request.messages for request in client.requests]
    assert bot.sent == ["a", "b", "c"]
    assert len(lists) == 4
    for messages in lists:
        roles = [message.role for message in messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    for earlier, later in pairwise(lists):
        assert later[: len(earlier)] == earlier
        assert len(later) == len(earlier) + 2
    assert lists[1][1:] == (Message("assistant", "a"), Message("user", "you said a"))


def test_a_conversation_without_an_end_is_cut_off_at_the_turn_limit():
    log, bot, client = converse("Thank you, bye!", max_turns=3)
    assert len(bot.sent) == 3
    assert len(client.requests) == 3
    assert (log.turns_taken, log.terminated, log.cut_off) == (3, False, True)


def test_a_script_that_is_used_up_ends_the_conversation():
    log, bot, _ = converse(scripted_messages=["a", "b"])
    assert bot.sent == ["a", "b"]
    assert (log.terminated, log.ended_by) == (True, EndReason.SCRIPT)


@pytest.mark.parametrize(
    ("limit", "ended_by", "terminated"), [(3, EndReason.SCRIPT, True), (2, EndReason.TURN_LIMIT, False)]
)
def test_a_script_is_cut_off_only_when_something_of_it_is_left(limit, ended_by, terminated):
    log, bot, _ = converse(scripted_messages=["a", "b", "c"], max_turns=limit)
    assert len(bot.sent) == limit
    assert (log.ended_by, log.terminated) == (ended_by, terminated)


def test_the_user_model_is_told_who_it_is_what_it_wants_and_how_to_end():
    _, _, client = converse("[[BYE]]", persona=Persona("grumpy", "You are in a hurry."), termination_signal="[[BYE]]")
    system = client.requests[0].system
    for words in ("You are in a hurry.", "say hello", "[[BYE]]"):
        assert words in system


def test_the_user_model_sees_what_was_delivered_and_nothing_else():
    answer = Delivered(("Sure.", "Fill this in."), media=("menu.png",), forms=(ORDER,))
    _, _, client = converse("hi", "[[END]]", bot=RecordingBot(lambda text: answer))
    shown = client.requests[1].messages[-1].content
    for words in (
        "Sure.\nFill this in.",
        "menu.png",
        "form order",
        "Your order",
        "size (choice, required, one of: sm",
    ):
        assert words in shown


@pytest.mark.parametrize("messages", [(), ("",), (" \n", "\u200b")])
def test_a_bot_that_delivers_nothing_is_shown_as_silent(messages):
    _, _, client = converse("hi", "[[END]]", bot=RecordingBot(lambda text: Delivered(messages)))
    assert client.requests[1].messages[-1].content == "(The chatbot sent nothing.)"


def test_a_form_that_is_filled_in_comes_with_its_submission():
    bot = RecordingBot(lambda text: Delivered(("Please fill in.",), forms=(ORDER,)))
    filled = 'Here: {"form": "order", "values": {"size": "large"}}'
    log, bot, _ = converse("hi", filled, "[[END]]", bot=bot)
    wanted = FormSubmission("order", {"size": "large"})
    assert bot.extras == [{}, {"submission": wanted}]
    assert [turn.submission for turn in log.turns] == [None, wanted]
    assert log.turns[0].forms == (ORDER,)


@pytest.mark.parametrize(
    "text",
    [
        '{"form": "refund", "values": {}}',
        '{"values": {}}',
        '{"form": "order", "values": 3}',
        '{"form": ["order"], "values": {}}',
        '{"form": "order"',
        "{no json}",
        "} {",
        "just words",
    ],
)
def test_anything_that_submits_no_open_form_is_just_a_message(text):
    bot = RecordingBot(lambda message: Delivered(forms=(ORDER, Form("address"))))
    log, bot, _ = converse("hi", text, "[[END]]", bot=bot)
    assert bot.sent == ["hi", text]
    assert bot.extras == [{}, {}]
    assert log.terminated


@pytest.mark.parametrize(
    "text", ['{"values": {"size": "large"}}', '{"form": "Your order", "values": {"size": "large"}}']
)
def test_values_belong_to_the_only_form_that_is_open_whatever_it_is_called(text):
    bot = RecordingBot(lambda message: Delivered(forms=(ORDER,)))
    _, bot, _ = converse("hi", text, "[[END]]", bot=bot)
    assert bot.extras[1] == {"submission": FormSubmission("order", {"size": "large"})}


@pytest.mark.parametrize(
    "text",
    [
        '{"form": "order", "values": {"size": "large"}} [[END]]',
        '{"form": "order", "values": {"size": "large [[END]]"}}',
        '```json\n{"form": "order", "values": {"size": "large"}, "end": "[[END]]"}\n```',
    ],
)
def test_an_end_signal_in_or_beside_a_form_that_is_handed_in_spoils_nothing(text):
    bot = RecordingBot(lambda message: Delivered(forms=(ORDER,)))
    log, bot, _ = converse("hi", text, bot=bot)
    assert bot.extras[1] == {"submission": FormSubmission("order", {"size": "large"})}
    assert "[[END]]" not in bot.sent[1]
    assert log.ended_by is EndReason.USER


def test_without_a_form_nothing_is_a_submission():
    _, bot, _ = converse('{"form": "order", "values": {}}', "[[END]]")
    assert bot.extras == [{}]


def test_a_bot_that_raises_leaves_the_turns_so_far():
    def answer(text):
        if text == "b":
            raise RuntimeError("bot exploded")
        return "ok"

    log = ConversationLog("c1")
    with pytest.raises(BotError, match="RuntimeError: bot exploded") as caught:
        converse(bot=RecordingBot(answer), log=log, scripted_messages=["a", "b", "c"])
    assert caught.value.step == "turn 2"
    assert [(turn.user, turn.delivered) for turn in log.turns] == [("a", ("ok",)), ("b", ())]
    assert log.turns[1].latency_s is not None
    assert not log.terminated


class HangingBot(RecordingBot):
    async def send(self, session, user_msg, media=None, **extra):
        await asyncio.Event().wait()


def test_a_bot_that_takes_too_long_has_failed():
    with pytest.raises(BotError, match=r"TimeoutError: no answer within 0\.01 s"):
        converse(bot=HangingBot(), scripted_messages=["a"], turn_timeout_s=0.01)


def test_a_bot_that_answers_in_spite_of_its_limit_has_failed_too():
    class Stubborn(RecordingBot):
        async def send(self, session, user_msg, media=None, **extra):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return Delivered(("too late",))

    log = ConversationLog("c")
    with pytest.raises(BotError, match=r"TimeoutError: no answer within 0\.01 s"):
        converse(bot=Stubborn(), log=log, scripted_messages=["a"], turn_timeout_s=0.01)
    assert log.turns[0].delivered == ()


def test_a_timeout_of_the_bots_own_is_told_in_its_own_words():
    def answer(text):
        raise TimeoutError("the kitchen did not answer")

    with pytest.raises(BotError, match="the kitchen did not answer"):
        converse(bot=RecordingBot(answer), scripted_messages=["a"], turn_timeout_s=5)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(None, r"send() must return Delivered(...), got None", id="nothing"),
        pytest.param("hi", r"send() must return Delivered(...), got 'hi'", id="a text"),
        pytest.param(Delivered, r"send() must return Delivered(...), got <class", id="the class"),
        pytest.param(Delivered("hi"), "its messages as a tuple of texts, got 'hi'", id="messages as one text"),
        pytest.param(Delivered(None), "its messages as a tuple of texts, got None", id="messages of no kind"),
        pytest.param(Delivered((None,)), "its messages as a tuple of texts, got (None,)", id="no text"),
        pytest.param(Delivered(iter([3])), "its messages as a tuple of texts, got (3,)", id="no text in an iterator"),
        pytest.param(Delivered((), "a.png"), "its media as a tuple of names or addresses, got 'a.png'", id="media"),
        pytest.param(Delivered(forms=("order",)), "its forms as a tuple of Form, got ('order',)", id="no form"),
    ],
)
def test_an_answer_of_the_wrong_kind_is_the_bots_failure(answer, words):
    class OddBot(RecordingBot):
        async def send(self, session, user_msg, media=None, **extra):
            return answer

    with pytest.raises(BotError, match=re.escape(words)):
        converse(bot=OddBot(), scripted_messages=["a"])


def test_what_comes_out_of_an_iterator_is_delivered_shown_and_kept():
    answer = Delivered(map(str, [1, 2]), iter(["menu.png"]), (form for form in [ORDER]))
    log, _, client = converse("hi", "[[END]]", bot=RecordingBot(lambda text: answer))
    (turn,) = log.turns
    assert (turn.delivered, turn.media, turn.forms) == (("1", "2"), ("menu.png",), (ORDER,))
    shown = client.requests[1].messages[-1].content
    assert shown.startswith("1\n2\n[The chatbot sent the form order")
    assert shown.endswith("menu.png]")


def test_media_of_any_kind_are_kept_as_texts():
    media = ("menu.png", {"url": "http://a/b"}, b"\x89PNG")
    log, _, _ = converse(scripted_messages=["a"], bot=RecordingBot(lambda text: Delivered((), media)))
    assert log.turns[0].media == ("menu.png", "{'url': 'http://a/b'}", "4 bytes")


def test_a_user_model_that_fails_is_the_simulators_failure():
    with pytest.raises(SimulatorError, match="unknown model"):
        converse(LLMRequestError("unknown model"))


def test_an_outage_of_the_bots_model_is_neither_the_bots_nor_the_simulators_failure():
    def answer(text):
        raise LLMRequestError("quota")

    with pytest.raises(HarnessError, match="quota"):
        converse(bot=RecordingBot(answer), scripted_messages=["a"])


def test_each_turn_says_how_long_the_bot_took():
    log, _, _ = converse(scripted_messages=["a", "b"])
    assert all(turn.latency_s >= 0 for turn in log.turns)


def test_the_log_of_a_conversation_joins_what_the_bot_said():
    log, _, _ = converse(scripted_messages=["a", "b"], bot=RecordingBot(lambda text: Delivered((text, "!"))))
    assert log.conversation_id == "c1"
    assert log.bot_said() == "a\n!\nb\n!"


def test_a_simulator_can_be_used_again_from_the_start():
    scenario = make_scenario(scripted_messages=["a", "b"])
    simulator = UserSimulator(ScriptedClient(["x"]), make_task().user_llm, scenario)
    bot = RecordingBot()
    for _ in range(2):
        run(simulator.run(bot, Session("c1")))
    assert bot.sent == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("last", "sent"),
    [
        ("**[[END]]**", ["hi"]),
        ("```\n[[end]]\n```", ["hi"]),
        ("[[END]] Thanks for the help!", ["hi", "Thanks for the help!"]),
        ("Great, [[ END ]] thanks.", ["hi", "Great, thanks."]),
        ("<think>done: [[END]]</think>Thanks! [[END]]", ["hi", "Thanks!"]),
    ],
)
def test_the_end_signal_ends_it_in_all_its_clothes_and_last_words_are_said(last, sent):
    log, bot, client = converse("hi", last, "more")
    assert bot.sent == sent
    assert (log.terminated, log.ended_by) == (True, EndReason.USER)
    assert len(client.requests) == 2


def test_thinking_reaches_neither_the_bot_nor_the_user_s_own_memory():
    thought = "<think>I want [[END]] <think>or not</think> it.</think>\nUser: A latte."
    log, bot, client = converse(thought, "[[END]]")
    assert bot.sent == ["A latte."]
    assert [turn.user for turn in log.turns] == ["A latte."]
    assert client.requests[1].messages[1] == Message("assistant", "A latte.")


def test_thinking_that_never_ends_is_silence():
    log, bot, client = converse("hi", "<think>what now [[END]]", "<think>hm")
    assert bot.sent == ["hi"]
    assert log.ended_by is EndReason.SILENT_USER
    assert len(client.requests) == 3
    assert not log.terminated


def test_a_scripted_opening_is_said_word_for_word_and_then_the_model_goes_on():
    log, bot, client = converse("a large one", "[[END]]", opening_messages=["<think>a latte</think>", " ", "now"])
    assert bot.sent == ["<think>a latte</think>", "now", "a large one"]
    assert (log.terminated, log.ended_by) == (True, EndReason.USER)
    first, second = (request.messages for request in client.requests)
    assert [message.role for message in first] == ["user", "assistant", "user", "assistant", "user"]
    assert [message.content for message in first[1:]] == ["<think>a latte</think>", "ok", "now", "ok"]
    assert second[: len(first)] == first


@pytest.mark.parametrize(
    ("opening", "limit", "sent", "ended_by"),
    [
        (["a", "b [[END]]", "c"], 9, ["a", "b"], EndReason.USER),
        (["a", "b"], 2, ["a", "b"], EndReason.TURN_LIMIT),
        ([], 9, ["hello"], EndReason.USER),
    ],
)
def test_an_opening_may_end_it_all_or_be_cut_off(opening, limit, sent, ended_by):
    log, bot, _ = converse("hello", "[[END]]", opening_messages=opening, max_turns=limit)
    assert bot.sent == sent
    assert log.ended_by is ended_by


def test_a_user_who_speaks_as_the_chatbot_is_noted_with_turn_and_words():
    bot = RecordingBot(lambda text: "What size would you like?")
    log, bot, _ = converse("A latte.", "What size would you like?", "How can I help you today? [[END]]", bot=bot)
    assert len(bot.sent) == 3
    assert [(broken.turn, broken.text) for broken in log.role_breaks] == [
        (2, "What size would you like?"),
        (3, "How can I help you today?"),
    ]
    assert "turn 2" in str(log.role_breaks[0])


def test_what_is_scripted_is_never_taken_for_the_chatbot_s():
    log, _, _ = converse(scripted_messages=["Assistant: hi", "How can I help you?"])
    assert log.role_breaks == []
    log, _, _ = converse("[[END]]", opening_messages=["How can I help you?"])
    assert log.role_breaks == []


def test_a_user_model_that_hangs_is_the_simulators_failure():
    class Hanging:
        async def complete(self, config, system, messages):
            await asyncio.Event().wait()

    scenario = make_scenario(scripted_messages=None)
    simulator = UserSimulator(Hanging(), LLMConfig("user"), scenario, user_timeout_s=0.01)
    with pytest.raises(SimulatorError, match=r"said nothing within 0\.01 s"):
        run(simulator.run(RecordingBot(), Session("c1")))


def test_a_form_handed_in_without_what_it_requires_is_noted():
    bot = RecordingBot(lambda text: Delivered(("Please fill in.",), forms=(ORDER,)))
    filled = ['{"form": "order", "values": {"note": "x"}}', '{"form": "order", "values": {"size": "large"}}']
    log, _, _ = converse("hi", *filled, "[[END]]", bot=bot)
    assert log.unfilled() == ["turn 2: form order was handed in without size"]
