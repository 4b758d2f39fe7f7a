import json

import pytest

from sonar_eval.verdict import read_verdict, without_thinking

SAID = "The total was right."
PLAIN = json.dumps({"score": 0.8, "reasoning": SAID})


@pytest.mark.parametrize(
    "raw",
    [
        PLAIN,
        f"```json\n{PLAIN}\n```",
        f"```\n{PLAIN}\n```",
        f"Here is my verdict:\n```json\n{PLAIN}\n```\nI hope that [helps].",
        '{"score": 0.8, "reasoning": "The total was right.",}',
        "{'score': 0.8, 'reasoning': 'The total was right.'}",
        '{"Score": 0.8, "Reasoning": "The total was right."}',
        f"[{PLAIN}]",
        f'{{"result": {PLAIN}}}',
        f'{{"result": [{PLAIN},]}}',
    ],
    ids=[
        "plain",
        "json fence",
        "bare fence",
        "prose around a fence",
        "trailing comma",
        "single quotes",
        "capital keys",
        "in a list",
        "under result",
        "damaged under result",
    ],
)
def test_a_verdict_is_read_in_whatever_clothes_it_comes(raw):
    reading = read_verdict(raw)
    assert (reading.score, reading.reasoning, reading.problem) == (0.8, SAID, None)


@pytest.mark.parametrize(
    ("raw", "reasoning"),
    [
        ('{"score": 0.8, "reasoning": "The total was ri', "The total was ri"),
        ("```json\n{'score': 0.8, 'reasoning': 'The to", "The to"),
        ('{"score": 0.8, "reas', ""),
    ],
)
def test_a_verdict_cut_off_in_its_reasoning_keeps_what_there_is(raw, reasoning):
    reading = read_verdict(raw)
    assert (reading.score, reading.reasoning) == (0.8, reasoning)


def test_valid_json_is_read_as_it_is_before_anything_is_repaired():
    reading = read_verdict('{"score": 0.8, "reasoning": "it wrote [1, 2,] and {3,}"}')
    assert reading.reasoning == "it wrote [1, 2,] and {3,}"


@pytest.mark.parametrize(
    ("score", "value"),
    [
        ("0.8", 0.8),
        ('"0.8"', 0.8),
        ("8e-1", 0.8),
        ('"8/10"', 0.8),
        ('"4 / 5"', 0.8),
        ("8/10", 0.8),
        ('"80%"', 0.8),
        ('" 80 % "', 0.8),
        ("1", 1.0),
        ("0", 0.0),
        ("1.0", 1.0),
        ("1.02", 1.02),
        ("-0.01", -0.01),
    ],
)
def test_a_score_is_read_with_the_scale_it_states(score, value):
    reading = read_verdict(f'{{"score": {score}, "reasoning": "r"}}')
    assert reading.score == pytest.approx(value)
    assert reading.problem is None


@pytest.mark.parametrize(
    "score",
    [
        *("8", "85", "1.06", "-0.06", "-1", '"8"', '"12/10"', '"120%"'),
        *("NaN", '"nan"', "Infinity", '"inf"', '"8/0"'),
        *("true", "false", '"true"', "null", '""', '"high"', "[0.8]", '{"value": 0.8}'),
    ],
)
def test_a_score_that_may_mean_anything_else_is_a_problem(score):
    assert read_verdict(f'{{"score": {score}, "reasoning": "r"}}').problem


@pytest.mark.parametrize("raw", ["", "  \n", None, "The bot did well.", '{"reasoning": "fine"}', "{}", "[]", "{{{["])
def test_an_answer_without_a_score_is_a_problem(raw):
    reading = read_verdict(raw)
    assert reading.score is None
    assert reading.problem


@pytest.mark.parametrize(
    "raw",
    [
        '{"criteria": [{"name": "tone", "score": 1.0}, {"name": "facts", "score": 0.0}]}',
        '{"tone": {"score": 1.0}, "facts": {"score": 0.0}}',
        '{"reasoning": "a fair score: 0.9 would be too kind"}',
    ],
)
def test_a_part_of_an_answer_is_never_taken_for_its_verdict(raw):
    assert read_verdict(raw).problem


@pytest.mark.parametrize(
    "raw",
    [
        '<think>strict: {"score": 0.1, "reasoning": "harsh"}? no</think>{"score": 0.9, "reasoning": "good"}',
        '<think>a <think>{"score": 0.1}</think> {"score": 0.2} </think>{"score": 0.9, "reasoning": "good"}',
        'Let me see. <think>{"score": 0.1, "reasoning": "harsh"}</think>\n{"score": 0.9, "reasoning": "good"}',
        '<thinking>{"score": 0.1}</thinking>{"score": 0.9, "reasoning": "good"}',
        'strict: {"score": 0.1, "reasoning": "harsh"}? no</think>{"score": 0.9, "reasoning": "good"}',
        '{"score": 0.9, "reasoning": "good"}<think>or {"score": 0.1}',
    ],
    ids=["before", "nested", "text before", "other tag", "opened by the prompt", "never closed"],
)
def test_verdicts_inside_the_thinking_are_not_the_verdict(raw):
    reading = read_verdict(raw)
    assert (reading.score, reading.reasoning) == (0.9, "good")


def test_thinking_that_never_closes_holds_no_verdict():
    reading = read_verdict('<think>I would say {"score": 1.0}')
    assert reading.score is None
    assert "thinking" in reading.problem
    assert "1.0" in reading.reasoning


def test_only_the_thinking_is_taken_out():
    assert without_thinking("a<think>b<THINK>c</think>d</think>e<think>f") == "ae"


@pytest.mark.parametrize(
    "reasoning",
    ["line one\nline two\tafter a tab", 'it said "no" and {"left": "open', "braces } and { and ] galore"],
)
def test_reasoning_keeps_its_text(reasoning):
    escaped = json.dumps({"score": 0.9, "reasoning": reasoning})
    raw_characters = escaped.replace("\\n", "\n").replace("\\t", "\t")
    for raw in (escaped, raw_characters):
        reading = read_verdict(raw)
        assert (reading.score, reading.reasoning) == (0.9, reasoning)
