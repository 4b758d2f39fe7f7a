import json

import pytest

from fakes import run, tool_span, verdict
from sonar_eval import (
    ConversationLog,
    Form,
    FormSubmission,
    Grader,
    LLMConfig,
    ScriptedClient,
    Transcript,
    Turn,
)
from sonar_eval.errors import JudgeError, LLMTransportError
from sonar_eval.grader import _parse

LOG = ConversationLog("c", [Turn("A latte, please.", ("Done, that is 4.40.",))], terminated=True)
TRACE = Transcript(
    "c",
    runs=[{"trace_id": "t1"}],
    spans=[
        tool_span("place_order"),
        tool_span("pay", success=False, error_type="CardDeclined", error_message="no funds", span_id="2"),
        tool_span("notify", success=None, span_id="3"),
    ],
    content=[
        {"span_id": "place_order", "type": "tool_arguments", "value": {"drink": "latte"}},
        {"span_id": "place_order", "type": "tool_result", "value": "ok 17"},
    ],
)


def grade(*replies, log=LOG, transcript=TRACE, **settings):
    client = ScriptedClient(replies)
    grader = Grader(client, LLMConfig("judge"), "The total is right.", **settings)
    return run(grader.grade(transcript, log)), client


def prompt_of(client):
    (message,) = client.requests[0].messages
    assert message.role == "user"
    return message.content


def test_a_score_at_the_threshold_passes_and_one_below_does_not():
    result, client = grade(verdict(0.7, "just so"))
    assert (result.score, result.passed, result.reasoning, result.error) == (0.7, True, "just so", None)
    assert len(client.requests) == 1
    assert not grade(verdict(0.69))[0].passed
    assert grade(verdict(0.69), pass_threshold=0.5)[0].passed


@pytest.mark.parametrize(("said", "score"), [(1.02, 1.0), (-0.01, 0.0), ("8/10", 0.8), ("80%", 0.8)])
def test_a_score_a_hair_outside_is_clamped_and_a_stated_scale_is_used(said, score):
    assert grade(verdict(said))[0].score == pytest.approx(score)


@pytest.mark.parametrize("said", [8, 85, float("nan"), "nan", True, False, None, "", "high"])
def test_what_is_no_score_is_an_error_and_keeps_the_judges_words(said):
    result, _ = grade(verdict(said, "my reasons"))
    assert result.score is None
    assert not result.passed
    assert result.error
    assert "my reasons" in result.reasoning


@pytest.mark.parametrize("said", ["", "no verdict today", '<think>{"score": 1.0}'])
def test_an_unreadable_answer_is_asked_for_once_more_and_then_an_error(said):
    result, client = grade(said)
    assert (result.score, result.passed) == (None, False)
    assert len(client.requests) == 2
    assert grade(said, verdict(0.9))[0].score == 0.9


def test_a_model_that_answers_none_is_a_judge_without_a_verdict():
    class Mute:
        async def complete(self, config, system, messages):
            return None

    result = run(Grader(Mute(), LLMConfig("judge"), "r").grade(TRACE, LOG))
    assert result.score is None
    assert result.error


def test_a_model_that_cannot_be_reached_is_a_judge_error():
    with pytest.raises(JudgeError, match="503"):
        grade(LLMTransportError("503"))


@pytest.mark.parametrize("threshold", [float("nan"), -0.1, 1.1, float("inf")])
def test_a_threshold_outside_zero_and_one_is_refused_when_the_grader_is_made(threshold):
    with pytest.raises(ValueError, match="pass_threshold"):
        Grader(ScriptedClient(["x"]), LLMConfig("judge"), "r", pass_threshold=threshold)


@pytest.mark.parametrize(("curve", "score"), [(lambda raw: raw / 2, 0.4), (lambda raw: raw * 10, 1.0)])
def test_a_calibration_maps_the_raw_score_and_stays_in_bounds(curve, score):
    assert grade(verdict(0.8), calibration=curve)[0].score == pytest.approx(score)


@pytest.mark.parametrize("curve", [lambda raw: float("nan"), lambda raw: 1 / 0])
def test_a_calibration_that_gives_no_number_is_a_judge_error(curve):
    with pytest.raises(JudgeError):
        grade(verdict(0.8), calibration=curve)


def test_the_prompt_has_its_sections_in_order():
    _, client = grade(verdict(1), reference="A latte costs 4.40.")
    prompt = prompt_of(client)
    places = [
        prompt.index(title)
        for title in ("RUBRIC:", "POLICY DATA (authoritative ground truth):", "CONVERSATION", "TOOL CALLS")
    ]
    assert places == sorted(places)
    assert places[0] == 0
    assert "The total is right." in prompt
    assert "A latte costs 4.40." in prompt


def test_without_a_reference_there_is_no_policy_section():
    assert "POLICY DATA" not in prompt_of(grade(verdict(1))[1])


def test_the_judge_sees_what_the_user_saw_and_what_the_tools_did():
    prompt = prompt_of(grade(verdict(1))[1])
    assert "user: A latte, please." in prompt
    assert "bot: Done, that is 4.40." in prompt
    assert 'place_order({"drink": "latte"}) -> ok: ok 17' in prompt
    assert "pay() -> FAILED CardDeclined: no funds" in prompt
    assert "notify() -> outcome unknown" in prompt


def test_the_judge_sees_forms_and_silence():
    log = ConversationLog(
        "c",
        [
            Turn("hi", (), forms=(Form("order"),)),
            Turn("{}", (), submission=FormSubmission("order", {"size": "large"})),
        ],
    )
    prompt = prompt_of(grade(verdict(1), log=log)[1])
    assert "bot sent the form order" in prompt
    assert "user submitted form order: {'size': 'large'}" in prompt
    assert "[2] bot: (nothing)" in prompt


def test_the_judge_is_told_of_an_injected_fault_and_of_withheld_content():
    fault = {"action": "error", "rule": 0, "call_index": 0}
    trace = Transcript(
        "c",
        spans=[tool_span("pay", success=False, error_type="InjectedFault", fault=fault)],
        content=[{"span_id": "pay", "type": "tool_result", "value": None, "redaction": {"by": "collector"}}],
    )
    prompt = prompt_of(grade(verdict(1), transcript=trace)[1])
    assert "fault injected by the test" in prompt
    assert "withheld" in prompt


def test_the_judge_is_told_when_no_tool_ran_and_no_turn_took_place():
    prompt = prompt_of(grade(verdict(1), log=ConversationLog("c"), transcript=Transcript("c"))[1])
    assert "(none)" in prompt
    assert "(no turn took place)" in prompt


def test_the_judge_asks_the_configured_model():
    config = LLMConfig("strict-judge", temperature=0.0)
    client = ScriptedClient([verdict(1)])
    run(Grader(client, config, "r").grade(TRACE, LOG))
    assert client.requests[0].config is config


@pytest.mark.parametrize(
    ("raw", "pair"),
    [
        (verdict(0.8, "fine"), (0.8, "fine")),
        (verdict(1.02), (1.0, "because")),
        (verdict(-3), (0.0, "because")),
        ('{"score": 0.8, "reasoning": "cut o', (0.8, "cut o")),
    ],
)
def test_the_old_pair_form_reads_clamps_and_salvages(raw, pair):
    assert _parse(raw) == pair


@pytest.mark.parametrize("raw", ["garbage", "", json.dumps({"score": "high"})])
def test_the_old_pair_form_says_what_it_could_not_read(raw):
    score, reasoning = _parse(raw)
    assert score == 0.0
    assert reasoning.startswith("unparseable grader output: ")
    assert raw in reasoning
