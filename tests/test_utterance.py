import pytest

from sonar_eval.utterance import EndSignal, Utterance, is_blank, role_break, spoken

END = EndSignal("[[END]]")


@pytest.mark.parametrize(
    "written",
    [
        *("[[END]]", "[[end]]", "[[ END ]]", "[ [END] ]", "[[\nEND\n]]", r"\[\[END\]\]"),
        *("**[[END]]**", "`[[END]]`", "**`[[End]]`**", "_[[END]]_", "```\n[[END]]\n```", "```text\n[[END]]```"),
        *(
            '"[[END]]"',
            "“[[END]]”",
            "'[[END]]'",
            "([[END]])",
            "> [[END]]",
            "[[END]].",
            "  [[END]]\n\n",
            "[[END]][[END]]",
        ),
    ],
)
def test_a_bare_end_signal_is_known_in_all_its_clothes_and_nothing_is_said(written):
    assert END.cut(written) == Utterance("", ends=True)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Yes, go ahead.\n[[END]]", "Yes, go ahead."),
        ("Yes, go ahead. **[[end]]**", "Yes, go ahead."),
        ("Yes, go ahead.\n```\n[[END]]\n```", "Yes, go ahead."),
        ("Thanks!\n\n> [[END]]", "Thanks!"),
        ("[[END]] Thanks for the help!", "Thanks for the help!"),
        ("Great, [[END]] thanks a lot.", "Great, thanks a lot."),
        ('He said "no". [[END]]', 'He said "no".'),
        ("👍 [[END]]", "👍"),
        ("one [[END]] two [[END]] three", "one two three"),
        ("My code is A9*[[END]]", "My code is A9*"),
        ("Refund it (order 77)[[END]]", "Refund it (order 77)"),
        ("Refund it (order 77 )[[END]]", "Refund it (order 77 )"),
        ("Call me `Anna`[[END]]", "Call me `Anna`"),
        ("It is **urgent**[[END]]", "It is **urgent**"),
        ("It is **urgent [[END]]**", "It is **urgent**"),
        ("“Thanks.”[[END]]", "“Thanks.”"),
        ('"That\'s all. [[END]]"', '"That\'s all."'),
        ("(That is all [[END]])", "(That is all)"),
        ("(See (order 77)[[END]])", "(See (order 77))"),
        ("Thanks!**[[END]]**", "Thanks!"),
        ('"Yes."**[[END]]**', '"Yes."'),
        ("Thanks!([[END]])", "Thanks!"),
        ("Thanks! ([[END]]", "Thanks!"),
        ("Thanks! **[[END]]", "Thanks!"),
        ("Don't worry. '[[END]]", "Don't worry."),
        ("Run this:\n```\nls\n```\n[[END]]", "Run this:\n```\nls\n```"),
        ("Run this:\n```\nls\n[[END]]\n```", "Run this:\n```\nls\n```"),
        ("Bye.\n```\n[[END]]", "Bye."),
        ('[[END]]"Thanks", she said', '"Thanks", she said'),
        ("[[END]]** Thanks", "Thanks"),
    ],
)
def test_words_beside_the_signal_are_said(written, said):
    assert END.cut(written) == Utterance(said, ends=True)


@pytest.mark.parametrize("written", ["the end", "[END]", "END", "[[BEND]]", "", "a [[ b ]] END"])
def test_what_is_not_the_signal_does_not_end(written):
    assert END.cut(written) == Utterance(written, ends=False)


@pytest.mark.parametrize(
    "text", ["", " \n", "\u00a0\u3000", "\u200b\u200d", "\ufeff", '""', "“”", "``````", "```\n```"]
)
def test_what_nobody_could_see_is_blank_and_is_not_said(text):
    assert is_blank(text)
    assert END.cut(text) == Utterance("")


@pytest.mark.parametrize("text", ["?", "…", "0", "👍", "👩\u200d🚀", "\U0001fae9"])
def test_a_single_sign_is_a_message(text):
    assert not is_blank(text)


@pytest.mark.parametrize(
    ("signal", "written", "ends"),
    [
        ("over and out", "Thanks, over  and\nout", True),
        ("over and out", "Over And Out", False),
        ("over and out", "moreover and outside", False),
        ("BYE", "Thank you, bye!", False),
        ("BYE", "Thank you. BYE", True),
        ("###", "Done. ###", True),
        ("<|im_end|>", "Done.<|IM_END|>", True),
        ("/quit", "I want /QUIT", True),
        ("再见", "好的谢谢再见", True),
        ("再见", "再 见", False),
        ("さようなら", "ありがとうさようなら。", True),
        ("จบ", "ขอบคุณจบ", True),
        ("再见1", "谢谢再见1好的", True),
        ("再见1", "谢谢再见12", False),
        ("BYE", "谢谢BYE", True),
        ("안녕", "안녕하세요", False),
        ("пока", "покажите", False),
    ],
)
def test_a_signal_of_plain_words_must_stand_as_it_is(signal, written, ends):
    assert EndSignal(signal).cut(written).ends is ends


def test_a_signal_without_blanks_around_it_leaves_what_is_said_and_no_mark_of_its_own():
    assert EndSignal("再见").cut("好的谢谢再见") == Utterance("好的谢谢", ends=True)
    assert EndSignal("再见").cut("好的，谢谢。再见！") == Utterance("好的，谢谢。", ends=True)
    assert EndSignal("再见").cut("再见！") == Utterance("", ends=True)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("<think>They want [[END]]?</think>A latte.", "A latte."),
        ("<think>a<think>b</think>c</think>A latte.", "A latte."),
        ("<think>hm", ""),
        ("User: A latte.", "A latte."),
        ("**User:** A latte.", "A latte."),
        ("User: Customer: A latte.", "A latte."),
        ("<think>x</think>\nhuman: A latte.", "A latte."),
        ("The user: it is me.", "The user: it is me."),
        ("A latte.\nUser: and a tea.", "A latte.\nUser: and a tea."),
    ],
)
def test_thinking_and_the_user_s_own_name_are_not_said(written, said):
    assert spoken(written) == said


HEARD = ("What size would you like?", "We have three.")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("How can I help you today?", "How can I help you"),
        ("Hello! How may I assist you?", "How may I assist you"),
        ("Is there anything else I can help with?", "anything else I can help"),
        ("As an AI language model, I drink nothing.", "As an AI"),
        ("Assistant: Sure.", "speaks as the chatbot"),
        ("**Bot:** Sure.", "speaks as the chatbot"),
        ("A latte.\nAssistant: Sure, a latte.\nUser: Thanks.", "both sides"),
        ("what size would  you like?", "repeats"),
        ("What size would you like? We have three.", "repeats"),
    ],
)
def test_a_user_who_speaks_as_the_chatbot_is_noticed(text, reason):
    assert reason in role_break(text, HEARD)


@pytest.mark.parametrize(
    "text",
    [
        "A latte, please.",
        "Can you help me today?",
        "How can I pay?",
        "Is there anything else I can do to get my money back?",
        "What size would you like? I take a large one.",
        "I talked to your assistant: she was rude.",
        "",
    ],
)
def test_a_user_who_speaks_as_a_user_is_left_alone(text):
    assert role_break(text, HEARD) is None


def test_a_short_answer_said_back_is_no_sign():
    assert role_break("Thank you!", ("Thank you!",)) is None
    assert role_break("hello", ()) is None
