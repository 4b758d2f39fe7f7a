"""The scripted guest: its cues, its patience, its seeds."""

from __future__ import annotations

import pytest

from fakes import run
from sonar_eval import ConfigError, LLMConfig, Message
from sonar_eval.demo.guest import OfflineGuest

OPENED = Message("user", "(The chat is open. Write your first message.)")


def say(guest, *heard, seed=0):
    """Return the guest's line after the bot's lines `heard`."""
    history = [OPENED]
    for line in heard:
        history += [Message("assistant", "…"), Message("user", line)]
    return run(guest.complete(LLMConfig("guest", seed=seed), "", history))


def guest(**settings):
    return OfflineGuest.from_settings({"opening": ["Hello."], **settings})


def test_the_guest_opens_and_answers_what_fits_a_cue():
    told = guest(cues=[{"when": "shall i charge", "say": "Yes."}, {"when": "enjoy", "say": "Bye. [[END]]"}])
    assert say(told) == "Hello."
    assert say(told, "4 EUR. Shall I charge it?") == "Yes."
    assert say(told, "4 EUR. Shall I charge it?", "ENJOY!") == "Bye. [[END]]"


def test_a_cue_is_used_up_and_the_next_that_fits_takes_over():
    told = guest(cues=[{"when": "no", "say": "Please!"}, {"when": "no", "say": "A last time, please."}])
    assert say(told, "no") == "Please!"
    assert say(told, "no", "no") == "A last time, please."
    assert say(told, "no", "no", "no") not in {"Please!", "A last time, please."}


def test_a_cue_can_be_good_for_several_times():
    told = guest(cues=[{"when": "charge", "say": "Yes.", "times": 2}], patience=0)
    assert [say(told, *["charge?"] * times) for times in (1, 2)] == ["Yes.", "Yes."]
    assert say(told, *["charge?"] * 3) == "I'll leave it then. [[END]]"


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_the_guest_leaves_when_its_patience_is_used_up(patience):
    lost = guest(patience=patience)
    assert "[[END]]" not in say(lost, *["What?"] * patience)
    assert say(lost, *["What?"] * (patience + 1)) == "I'll leave it then. [[END]]"


def test_the_guest_leaves_with_the_scenario_s_own_end_signal():
    told = OfflineGuest.from_settings({"opening": "Hi.", "patience": 0}, signal="###")
    assert say(told, "What?") == "I'll leave it then. ###"


def test_seeds_vary_the_lines_and_the_same_seed_gives_the_same_guest():
    told = guest(opening=["a", "b", "c"], cues=[{"when": "x", "say": ["d", "e"]}])
    lines = [(say(told, seed=seed), say(told, "x", seed=seed)) for seed in range(60)]
    assert {first for first, _ in lines} == {"a", "b", "c"}
    assert {second for _, second in lines} == {"d", "e"}
    assert lines == [(say(told, seed=seed), say(told, "x", seed=seed)) for seed in range(60)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "needs offline_user.opening"),
        ({"opening": []}, "needs offline_user.opening"),
        ({"opening": "Hi", "openning": "Hi"}, "unknown openning; known: opening, cues, patience"),
        ({"opening": "Hi", "patience": "much"}, "patience must be a whole number"),
        ({"opening": "Hi", "cues": ["yes"]}, "cue 0: expected when and say, got 'yes'"),
        ({"opening": "Hi", "cues": [{"when": "x", "say": "y"}, {"when": "x"}]}, "cue 1: expected when and say"),
        ({"opening": "Hi", "cues": [{"when": "x", "say": "y", "time": 2}]}, "cue 0: unknown time"),
        ({"opening": "Hi", "cues": [{"when": "(", "say": "y"}]}, "cue 0: when: '(' is no regular expression"),
        ({"opening": "Hi", "cues": [{"when": "x", "say": "y", "times": "often"}]}, "cue 0: times must be a whole"),
    ],
)
def test_a_guest_that_cannot_be_played_is_refused_with_the_reason(settings, said):
    with pytest.raises(ConfigError) as refused:
        OfflineGuest.from_settings(settings)
    assert said in str(refused.value)
