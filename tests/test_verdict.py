import json

import pytest

from sonar_eval import Criterion
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


def test_a_decimal_comma_is_no_score_of_zero():
    assert read_verdict("score: 0,8").score is None


@pytest.mark.parametrize("tag", ["<think>", "</think>", "<reasoning>"])
def test_a_tag_inside_of_valid_json_is_a_word_of_the_judge(tag):
    reading = read_verdict(json.dumps({"score": 0.8, "reasoning": f"the bot printed {tag} twice"}))
    assert (reading.score, reading.reasoning) == (0.8, f"the bot printed {tag} twice")


@pytest.mark.parametrize(
    ("opened", "closed"),
    [("<thinking>", "</thinking>"), ("<think >", "</think>"), ('<thought n="1">', "</thought>")]
    + [(f"<{name}>", f"</{name}>") for name in ("reasoning", "reflection")],
)
def test_thinking_under_other_names_is_thinking_too(opened, closed):
    assert read_verdict(f'{opened}strict: {{"score": 0.1}}? no{closed}{PLAIN}').score == 0.8


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
        ('"8 out of 10"', 0.8),
        ('"4 of 5"', 0.8),
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
        *("0,8", '"0,8"', "1e400", "1" + "0" * 400, '"4/5 stars"'),
        *("true", "false", '"true"', "null", '""', '"high"', "[0.8]", '{"value": 0.8}'),
    ],
)
def test_a_score_that_may_mean_anything_else_is_a_problem(score):
    assert read_verdict(f'{{"score": {score}, "reasoning": "r"}}').problem


@pytest.mark.parametrize(
    "raw",
    [
        "{{'a': 1}}",
        "[" * 50_000,
        "{'a':" * 50_000,
        "",
        "  \n",
        None,
        "The bot did well.",
        '{"reasoning": "fine"}',
        "{}",
        "[]",
        "{{{[",
    ],
)
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


CRITERIA = (Criterion("asked first", "It asked."), Criterion("honest", "It was true.", 2), Criterion("kind", "It was."))


def of(*verdicts, **more):
    """Write an answer with a verdict per criterion, in order."""
    rows = [
        {"name": criterion.name, "verdict": said, "reason": f"{criterion.name} because"}
        for criterion, said in zip(CRITERIA, verdicts, strict=False)
    ]
    return {"criteria": rows, **more}


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(of("passed", "failed", "cannot_tell")),
        f"```json\n{json.dumps(of('passed', 'failed', 'cannot_tell'))}\n```",
        f"<think>{json.dumps(of('failed', 'failed', 'failed'))}</think>{json.dumps(of('passed', 'failed', 'unknown'))}",
        json.dumps(of("PASS", "Failed.", "Cannot tell")),
        json.dumps(of(True, False, "can’t tell")),
        json.dumps({"result": of("passed", "failed", "cannot_tell")}),
        json.dumps(of("passed", "failed", "cannot_tell")["criteria"]),
        "\n".join(map(json.dumps, of("passed", "failed", "cannot_tell")["criteria"])),
        json.dumps(of("passed", "failed", "cannot_tell")).replace("}]", "},]"),
        str(of("passed", "failed", "cannot_tell")),
        json.dumps({"criteria": {"asked_first": "passed", "Honest": {"verdict": "failed"}, "kind": "cannot_tell"}}),
        json.dumps({"asked first": {"passed": True}, "honest": {"passed": False}, "KIND": "cannot-tell"}),
    ],
    ids=[
        "plain",
        "fenced",
        "after thinking",
        "other words",
        "true and false",
        "under result",
        "a bare list",
        "an object per line",
        "trailing comma",
        "single quotes",
        "by name",
        "by name at the top",
    ],
)
def test_a_verdict_per_criterion_is_read_in_whatever_clothes_it_comes(raw):
    reading = read_verdict(raw, CRITERIA)
    assert reading.problem is None
    assert [result.verdict for result in reading.criteria] == ["passed", "failed", "cannot_tell"]
    assert [result.name for result in reading.criteria] == ["asked first", "honest", "kind"]
    assert reading.score == pytest.approx(1 / 3)


def test_criteria_keep_their_reasons_and_the_whole_its_reasoning():
    reading = read_verdict(json.dumps(of("passed", "failed", "passed", reasoning="so so")), CRITERIA)
    assert reading.reasoning == "so so"
    assert [result.reason for result in reading.criteria] == [
        "asked first because",
        "honest because",
        "kind because",
    ]
    assert reading.score == pytest.approx(0.5)


def test_criteria_that_nobody_can_tell_give_no_score_and_no_zero():
    reading = read_verdict(json.dumps(of(*["cannot_tell"] * 3)), CRITERIA)
    assert (reading.score, reading.problem) == (None, None)
    assert len(reading.criteria) == 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (of("passed", "failed"), "'kind': the judge gave no verdict on it"),
        (of("passed", "partly", "passed"), "'honest': verdict 'partly' is none of passed, failed, cannot_tell"),
        (of("passed", None, "passed"), "'honest': verdict 'none' is none of"),
        ({"criteria": of("passed", "failed", "passed")["criteria"] * 2}, None),
        (
            {"criteria": [*of("passed", "failed", "passed")["criteria"], {"name": "kind", "verdict": "failed"}]},
            "'kind': the answer contradicts itself",
        ),
        (of("failed", "failed", "failed", score=0.9), "contradicts itself: score 0.9 stated, 0 by its own criteria"),
        (of("passed", "passed", "passed", score=0.1), "contradicts itself"),
        (of("passed", "failed", "passed", score=0.6), None),
        (of("passed", "passed", "passed", score=9), "contradicts itself"),
        ({"score": 0.9, "reasoning": "fine"}, "no verdict on any criterion"),
    ],
)
def test_a_criterion_that_is_missing_unknown_or_contradicted_is_a_problem(answer, said):
    problem = read_verdict(json.dumps(answer), CRITERIA).problem
    assert (problem is None) if said is None else (said in problem)


def test_an_answer_cut_off_between_criteria_is_a_problem():
    raw = json.dumps(of("passed", "failed", "passed"))
    assert read_verdict(raw[: raw.index('"kind"') + 3], CRITERIA).problem


@pytest.mark.parametrize(
    "raw",
    [
        '{"score": 0.1, "reasoning": "no"} {"score": 0.9, "reasoning": "yes"}',
        '[{"score": 0.1}, {"score": 0.9}]',
        'At first {"score": 0.1}. Then I thought again:\n```json\n{"score": 0.9, "reasoning": "good"}\n```',
        '{"score": 0.1, "score": 0.9}',
        '{"score": 0.1,} {"score": 0.9,}',
        '{"score": 0.9, "reasoning": "good", "criteria": [{"name": "a", "verdict": "failed"}]}',
        '{"score": 0.1, "criteria": {"a": "passed", "b": "passed"}}',
        '{"score": 0.9, "reasoning": "good"} and {"score": 0.1, "reasoning": cut',
    ],
)
def test_an_answer_that_contradicts_itself_is_a_problem(raw):
    reading = read_verdict(raw)
    assert reading.problem


@pytest.mark.parametrize(
    "raw",
    [
        f"{PLAIN}\n{PLAIN}",
        f"{PLAIN} as the format {{'score': <number>}} asks",
        '{"score": 0.8, "reasoning": "The total was right.", "criteria": [{"name": "a", "verdict": "passed"}]}',
    ],
)
def test_an_answer_that_says_it_twice_contradicts_nothing(raw):
    reading = read_verdict(raw)
    assert (reading.score, reading.reasoning, reading.problem) == (0.8, SAID, None)


def test_a_verdict_that_is_quoted_in_the_reasoning_is_not_the_judge_s():
    raw = json.dumps({"score": 0.1, "reasoning": 'It wrote {"score": 1.0} and "score": 1.0 into the chat.'})
    assert read_verdict(raw).score == 0.1
