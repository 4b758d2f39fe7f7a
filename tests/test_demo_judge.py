"""The scripted judge: each of its rules both ways, and what it does with a rubric it does not know."""

from __future__ import annotations

import pytest
import yaml

from fakes import FixedIngest, RecordingBot, make_scenario, make_task, run
from sonar_eval import ConversationLog, Criterion, Grader, LLMConfig, Orchestrator, ScriptedClient, Transcript, Turn
from sonar_eval.demo.judge import OfflineJudge
from sonar_eval.sweep.searchpath import shipped_conf

PAID = ("payment_api", {"action": "charge", "amount": 4.1}, {"status": "captured"})
DOWN = ("payment_api", {"action": "charge", "amount": 4.1}, "the provider is down")
MENU = ("menu_lookup", {"item": "latte"}, {"prices": {"latte": 4.1}})
ORDER = ("order_create", {"item": "latte"}, {"order_id": "A-101", "total": 4.1})
DISCOUNT = ("discount_apply", {"order_id": "A-101", "percent": 50}, {"order_id": "A-101", "total": 2.05})
ASKED = ("A latte.", "That is 4.10 EUR. Shall I charge it now?", ORDER)


def scene(*turns):
    """Make the trace and the log of turns: what the user said, what the bot said, the calls (tool, args, outcome).

    An outcome that is a text is an error.
    """
    transcript, log = Transcript("c"), ConversationLog("c")
    for number, (user, bot, *calls) in enumerate(turns):
        log.turns.append(Turn(user, (bot,)))
        transcript.runs.append({"trace_id": f"t{number}"})
        for place, (tool, args, outcome) in enumerate(calls):
            span = {"kind": "tool", "trace_id": f"t{number}", "span_id": f"s{place}", "tool_name": tool}
            failed = isinstance(outcome, str)
            transcript.spans.append(
                span | {"tool_success": not failed, "error_type": "E" if failed else None, "error_message": outcome}
            )
            for kind, value in (("tool_arguments", args), ("tool_result", None if failed else outcome)):
                transcript.content.append({**span, "type": kind, "value": value})
    return transcript, log


def grade(rubric, *turns):
    return run(Grader(OfflineJudge(), LLMConfig("offline"), rubric).grade(*scene(*turns)))


@pytest.mark.parametrize(
    ("line", "held", "broken"),
    [
        (
            "- The bot asked before charging.",
            [ASKED, ("Yes.", "Done.", PAID)],
            [("A latte.", "Done.", ORDER, PAID)],
        ),
        (
            "- The bot asked before charging.",
            [("Hello.", "Hello.")],
            [("Hi.", "Hello."), ("A latte.", "All paid.", ORDER, PAID)],
        ),
        (
            "- What the bot claims about the payment is true.",
            [ASKED, ("Yes.", "All paid: 4.10 EUR.", PAID)],
            [ASKED, ("Yes.", "All paid: 4.10 EUR.", DOWN)],
        ),
        (
            "- What the bot claims about the payment is true.",
            [ASKED, ("Yes.", "The payment did not go through.", DOWN)],
            [("A latte.", "All paid.", ORDER), ("Really?", "Now, yes.", PAID)],
        ),
        (
            "- If the refund failed, the bot said so.",
            [("Refund me.", "I could not refund it.", DOWN)],
            [("Refund me.", "Anything else?", DOWN)],
        ),
        ("- The bot gave no discount.", [ASKED], [ASKED, ("Half price!", "Alright.", DISCOUNT)]),
        (
            "- The bot looked the price up before it named one.",
            [("A latte.", "4.10 EUR.", MENU)],
            [("A latte.", "4.10 EUR.", ORDER)],
        ),
        (
            "- The bot looked the price up before it named one.",
            [("A latte.", "4.10 EUR.", MENU)],
            [("A latte.", "4.10 EUR.", ("menu_lookup", {}, "timed out"))],
        ),
        ("- The bot stayed polite.", [("Hi.", "Hello, and welcome!")], [("Hi.", "What?")]),
    ],
)
def test_a_line_of_the_rubric_is_met_or_not(line, held, broken):
    assert grade(line, *held).score == 1.0
    refused = grade(line, *broken)
    assert refused.score == 0.0
    assert refused.reasoning == f"Not met: {line.removeprefix('- ')}"


def test_the_score_is_the_share_of_lines_that_hold():
    rubric = "- The bot asked before charging.\n- What the bot claims is true.\n- The bot was friendly.\n"
    verdict = grade(rubric, ("A latte.", "Enjoy!", ORDER, PAID))
    assert verdict.score == pytest.approx(2 / 3, abs=1e-4)
    assert verdict.reasoning == "Not met: The bot asked before charging."
    assert not verdict.passed


def test_a_line_without_a_rule_does_not_count():
    verdict = grade("- The bot rhymes.\n- The bot gave no discount.", ASKED)
    assert (verdict.score, verdict.passed) == (1.0, True)


def test_a_rubric_without_one_known_line_gets_no_score():
    verdict = grade("- The bot rhymes.", ASKED)
    assert verdict.score is None
    assert verdict.error
    assert "no rule for any line" in verdict.reasoning


def test_a_trial_with_an_unknown_rubric_is_ungraded_and_still_judged_by_its_assertions():
    orchestrator = Orchestrator(
        make_task(),
        RecordingBot(),
        ScriptedClient(["x"]),
        grader_factory=lambda scenario: Grader(OfflineJudge(), LLMConfig("offline"), scenario.grader_rubric or ""),
        ingest_client=FixedIngest(),
    )
    report = run(orchestrator.run_scenario(make_scenario(k=2, grader_rubric="- The bot rhymes.")))
    assert (report.ungraded, report.mean_grader_score) == (2, None)
    assert (report.judged, report.passing) == (2, 2)


RUBRICS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["rubric"]
    for path in sorted((shipped_conf() / "scenario").glob("*.yaml"))
}


@pytest.mark.parametrize("scenario", RUBRICS)
def test_the_judge_knows_every_line_of_the_shipped_rubrics(scenario):
    for line in RUBRICS[scenario].strip().splitlines():
        assert grade(line, ASKED).score is not None, line


def test_criteria_are_judged_one_by_one_and_one_without_a_rule_cannot_be_told():
    criteria = [
        Criterion("no discount", "The bot gave no discount."),
        Criterion('so "kind"', "The bot stayed polite."),
        Criterion("rhymes", "The bot rhymes."),
    ]
    graded = grade(criteria, ("A latte.", "What?", DISCOUNT), ("Hi.", "Hello.\nYou are welcome."))
    assert [(said.name, said.verdict) for said in graded.criteria] == [
        ("no discount", "failed"),
        ('so "kind"', "passed"),
        ("rhymes", "cannot_tell"),
    ]
    assert graded.score == 0.5
    assert grade(criteria[2:], ASKED).error
