"""Candidates against a baseline, from trial records."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from simulated import CAPABILITY, arm, trial, trials
from sonar_eval.report import (
    Arm,
    CellKey,
    CellTrials,
    cell_of,
    compare_arms,
    render_markdown,
    render_text,
    verdict_sentence,
)

HELD = [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 4, 3, 3, 1, 0]
DROPPED = [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 4, 4, 4, 3, 3, 2, 1, 0]
BEFORE = [2, 3, 1, 4, 2, 3, 0, 2, 3, 4, 2, 1, 3, 2, 4, 3, 2, 1, 2, 3]
AFTER = [4, 5, 3, 5, 4, 4, 2, 4, 5, 5, 4, 3, 4, 4, 5, 5, 3, 3, 4, 5]
UNKNOWN = {
    "assertions": [{"name": "x", "severity": "capability", "passed": False, "unknown": True}],
    "passed": False,
}
UNCHECKED = {"assertions": [], "passed": True}
ERRORED = {"outcome": "errored", "passed": False}


def contrast(a, b, **settings):
    return compare_arms(a, [b], **settings).contrasts[0]


def said(passes_a, passes_b, n=5):
    return verdict_sentence(contrast(arm("A", passes_a, n), arm("B", passes_b, n)))


def test_a_clear_gain_is_said_with_its_size():
    assert said(BEFORE, AFTER) == "B better: +34.0 pts (95% CI +20.9 to +45.5). Holds across scenarios."


def test_a_small_drop_is_no_verdict_and_says_what_could_have_been_seen():
    assert said(HELD, DROPPED) == (
        "No detectable difference: -5.0 pts (-13.3 to +3.1). 20 x 5 trials could only reveal about 12 pts; "
        "for 5 pts run 27 trials per scenario (now 5)."
    )


def test_one_scenario_that_collapses_is_a_regression_here_and_named():
    assert said([5] * 10, [5] * 9 + [0]) == (
        "REGRESSION on these 10 scenarios: B -10.0 pts (95% CI -14.6 to -2.2). May not carry over: the loss comes from "
        "few scenarios. Most of it: s9."
    )


def test_many_good_scenarios_are_equivalent():
    assert said([5] * 46 + [4] * 4, [5] * 45 + [4] * 5).startswith("Equivalent within 5 pts: -0.4 pts (")


def test_few_scenarios_are_told_to_become_more():
    assert "more trials will not do it: add scenarios (about " in said([4, 3], [3, 3])


def test_a_regression_everywhere_names_the_three_scenarios_it_comes_from():
    assert said([5] * 6, [3, 1, 3, 0, 3, 2]) == (
        "REGRESSION: B -60.0 pts (95% CI -75.4 to -39.0). Holds across scenarios. Most of it: s3, s1, s5."
    )


def test_a_gain_from_few_scenarios_may_not_carry_over():
    assert said([0] + [5] * 9, [5] * 10) == (
        "B better on these 10 scenarios: +10.0 pts (95% CI +2.2 to +14.6). May not carry over: the gain comes from "
        "few scenarios."
    )


def test_an_interval_without_0_is_no_verdict_when_the_test_does_not_agree():
    found = said([3] * 5, [1, 1, 1, 1, 4])
    assert found.startswith("No detectable difference (borderline, p = .09): -28.0 pts (-50.2 to -0.5). ")


def test_with_a_baseline_measured_more_often_the_trials_said_are_the_candidate_s():
    found = verdict_sentence(contrast(arm("A", [16, 20, 12], 20), arm("B", [4, 4, 3], 5)))
    assert "3 x 5 trials could only reveal" in found


def test_an_arm_that_was_not_measured_is_on_no_front():
    comparison = compare_arms(arm("A", [0, 0], 0, errors=5), [arm("B", [5, 5])])
    assert [point.arm for point in comparison.pareto if point.on_front] == ["B"]


@pytest.mark.parametrize("odd", ["two\nlines", "\x1b[2Jred", "half\ud83d", "<img src=x>", "a|b", "\u202ertl"])
def test_odd_names_neither_break_the_text_nor_reach_the_terminal_or_the_markdown_as_they_are(odd):
    one, other = (
        Arm.of(name + odd, {(odd, f"f{odd}"): trials(c, 5, scenario=odd), ("s", "none"): trials(c, 5)})
        for name, c in (("A", 5), ("B", 1))
    )
    comparison = compare_arms(one, [other])
    text, markdown = render_text(comparison, stats=True), render_markdown(comparison, stats=True)
    for written in (text, markdown):
        assert written.encode("utf-8")
        assert not set(written) & {"\x1b", "\u202e"}
    assert "<img" not in markdown
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in markdown.splitlines() if line.startswith("|")}) == 2


@pytest.mark.parametrize(("passes_a", "passes_b", "declared"), [([5], [3], False), ([5], [2], False), ([5], [1], True)])
def test_five_trials_of_one_scenario_name_no_winner_until_one_in_five(passes_a, passes_b, declared):
    found = contrast(arm("A", passes_a), arm("B", passes_b))
    assert (found.verdict == "worse_on_this_suite") is declared
    if passes_b == [3]:
        assert found.verdict == "no_detectable_difference"
        assert (found.p, found.suite.low, found.suite.high) == pytest.approx((0.444, -0.769, 0.118), abs=1e-3)
        rates = [row.pass_rate for row in compare_arms(arm("A", [5]), [arm("B", [3])]).arms]
        assert (rates[0].low, rates[0].high) == pytest.approx((0.566, 1.0), abs=1e-3)
        assert (rates[1].low, rates[1].high) == pytest.approx((0.231, 0.882), abs=1e-3)


def test_a_clean_run_is_not_safe_but_bounded():
    row = compare_arms(arm("A", [5]), [arm("B", [5])]).arms[0]
    assert row.safety.rate_upper == pytest.approx(0.451, abs=1e-3)
    table = render_text(compare_arms(arm("A", [5] * 20), [arm("B", [5] * 20)]))
    assert table.count("clean (rate <= 3.0%)") == 2


def test_a_safety_failure_is_counted_and_no_bound_is_claimed():
    cells = {("s0", "none"): [trial(0), trial(1, safe=False)]}
    row = compare_arms(arm("A", [2], 2), [Arm.of("B", cells)]).arms[1]
    assert (row.safety.failed, row.safety.evaluated, row.safety.rate_upper) == (1, 2, None)


def test_a_renamed_model_pairs_completely():
    comparison = compare_arms(arm("gpt-old", HELD), [arm("gpt-renamed", HELD)])
    assert comparison.unpaired == []
    assert comparison.contrasts[0].cells == 20


def test_a_scenario_missing_in_one_arm_is_named_and_left_out():
    comparison = compare_arms(arm("A", [5, 5, 0]), [arm("B", [5, 5])])
    left_out = [(row.scenario, row.arm, row.reason) for row in comparison.unpaired]
    assert left_out == [("s2", "B", "not in this arm")]
    assert comparison.contrasts[0].cells == 2
    assert comparison.contrasts[0].rate_a == 1.0
    assert "Left out: s2 none (B: not in this arm)" in render_text(comparison)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (arm("A", [5]), Arm.of("B", {("other", "none"): trials(5, 5)}), "no common scenario"),
        (arm("A", [1], 1), arm("B", [5]), "A has 1 measured trial"),
        (
            arm("A", [4, 4], 4),
            arm("B", [4, 4], 4, errors=1),
            "2 of 10 trials of B errored or were not measured, more than 10%",
        ),
    ],
)
def test_what_cannot_be_compared_says_why(a, b, reason):
    found = contrast(a, b)
    assert (found.verdict, found.reason, found.p) == ("not_comparable", reason, None)
    assert verdict_sentence(found) == f"Not comparable: {reason}."
    assert "not comparable" in render_text(compare_arms(a, [b]))


def test_a_cell_without_any_measured_trial_is_named():
    cells = {("s0", "none"): trials(0, 0, errors=1), ("s1", "none"): trials(20, 20)}
    comparison = compare_arms(arm("A", [5, 5]), [Arm.of("B", cells)])
    assert [(row.scenario, row.reason) for row in comparison.unpaired] == [("s0", "no trial completed: 1 errored of 1")]
    assert comparison.contrasts[0].cells == 1


@pytest.mark.parametrize(
    ("records", "asked", "why"),
    [
        ([UNKNOWN, UNKNOWN], 2, "no trial was decided (evidence missing): 2 undecided of 2"),
        (
            [UNKNOWN, ERRORED],
            3,
            "no trial was decided (evidence missing): 1 undecided, 1 errored, 1 never recorded of 3",
        ),
        ([ERRORED], 2, "no trial completed: 1 errored, 1 never recorded of 2"),
        ([UNCHECKED], 1, "no trial completed: 1 checked by nothing of 1"),
        ([{"judge_asked": True, "passed": False}], 1, "no trial was decided (evidence missing): 1 undecided of 1"),
    ],
)
def test_why_a_cell_tells_nothing_is_said_as_it_is(records, asked, why):
    cell = cell_of([{**trial(index), **changes} for index, changes in enumerate(records)], asked)
    assert (cell.n, cell.why_not_measured) == (0, why)


def test_a_verdict_that_hangs_on_errors_says_so():
    a = arm("A", [10] * 6, 10)
    b = arm("B", [10, 10, 10, 10, 10, 6], 10)
    known = contrast(a, b).verdict
    errored = Arm.of(
        "B",
        {
            (f"s{place}", "none"): trials(10, 10, scenario=f"s{place}") if place < 5 else trials(6, 6, errors=4)
            for place in range(6)
        },
    )
    # Left out, the errors leave 100%; counted as failures, they are a scenario that lost four of ten.
    found = contrast(a, errored)
    assert (found.verdict, found.verdict_errors_fail) == ("equivalent", known)
    assert found.depends_on_errors == 4
    assert verdict_sentence(found).endswith("; depends on how 4 errored trials are counted.")


def test_errors_that_change_nothing_are_only_counted():
    found = contrast(
        arm("A", BEFORE), Arm.of("B", {(f"s{i}", "none"): trials(c, 5, errors=i == 0) for i, c in enumerate(AFTER)})
    )
    assert (found.verdict, found.depends_on_errors) == ("better", 0)


@pytest.mark.parametrize("changes", [UNKNOWN, UNCHECKED, {"judge_asked": True, "passed": False}, ERRORED])
def test_a_trial_that_tells_nothing_counts_neither_way(changes):
    cell = Arm.of("A", {("s", "none"): [trial(0), {**trial(1), **changes}]}).cells[CellKey("s")]
    assert (cell.n, cell.passes, cell.not_measured, cell.held) == (1, 1, 1, False)


def test_a_failed_bot_counts_as_failed():
    cells = {("s", "none"): [trial(0), trial(1, False, outcome="bot_failure", assertions=[])]}
    cell = Arm.of("A", cells).cells[CellKey("s")]
    assert (cell.n, cell.passes, cell.not_measured) == (2, 1, 0)


def test_trials_asked_for_and_never_recorded_are_missing():
    cell = Arm.of("A", {("s", "none"): trials(3, 3)}, asked=5).cells[CellKey("s")]
    assert (cell.n, cell.not_measured, cell.held) == (3, 2, False)


def test_of_two_records_of_one_trial_the_later_counts():
    cells = {("s", "none"): [trial(0, False), trial(1), trial(0, True)]}
    cell = Arm.of("A", cells).cells[CellKey("s")]
    assert (cell.n, cell.passes) == (2, 2)


def test_identical_transcripts_are_counted_once_with_a_warning():
    same = Arm.of("B", {("s0", "none"): [trial(i, said="same") for i in range(5)], ("s1", "none"): trials(5, 5)})
    comparison = compare_arms(arm("A", [5, 5]), [same])
    assert comparison.warnings == ["B: s0 none: 5 identical transcripts: counted as 1"]
    assert [row.trials for row in comparison.arms] == [10, 6]
    assert [row.not_measured for row in comparison.arms] == [0, 0]


def test_ids_and_times_do_not_make_transcripts_differ_but_tool_calls_and_outcomes_do():
    def counted(*records):
        return Arm.of("A", {("s", "none"): records}).cells[CellKey("s")].n

    alike = {"said": "same"}
    assert counted(trial(0, **alike), trial(1, **alike, started_at="later", duration_s=9.0)) == 1
    assert counted(trial(0, **alike), trial(1, **alike, calls=("other",))) == 2
    assert counted(trial(0, **alike), trial(1, False, **alike)) == 2
    assert counted(trial(0, conversation=[]), trial(1, conversation=[])) == 2


def test_alike_is_a_copy_only_with_the_same_seed_when_others_differ():
    def counted(seeds):
        records = [trial(i, said="same" if i < 3 else "other", random_seed=seed) for i, seed in enumerate(seeds)]
        return Arm.of("A", {("s", "none"): records}).cells[CellKey("s")].n

    assert counted([1, 2, 3, 4]) == 4
    assert counted([7, 7, 7, 7]) == 2


def test_early_stopped_cells_stay_out_of_rates_and_in_safety():
    stopped = [trial(0), trial(1, safe=False, stopped_early=True)]
    b = Arm.of("B", {("s0", "none"): stopped, ("s1", "none"): trials(5, 5)})
    comparison = compare_arms(arm("A", [5, 5]), [b])
    assert [(row.scenario, row.reason) for row in comparison.unpaired] == [("s0", "stopped early: its rate is biased")]
    assert comparison.contrasts[0].cells == 1
    assert comparison.arms[1].safety.failed == 1


def test_several_candidates_are_held_to_holm():
    a = arm("A", [5] * 10)
    one = contrast(a, arm("B", [5] * 8 + [3, 1]))
    several = compare_arms(a, [arm("B", [5] * 8 + [3, 1]), arm("C", [5] * 10), arm("D", [5] * 9 + [4])])
    again = several.contrast("B")
    assert again.p == one.p
    assert again.p_holm == pytest.approx(3 * one.p)
    assert one.verdict == "worse_on_this_suite"


def faulted(name, without, under):
    return Arm.of(
        name,
        {
            (f"s{place}", fault): trials(c, 5, scenario=f"s{place}")
            for fault, passes in (("none", without), ("outage", under))
            for place, c in enumerate(passes)
        },
    )


def test_resilience_is_the_loss_against_the_same_variant_without_the_fault():
    comparison = compare_arms(faulted("A", [5, 4, 5], [1, 0, 2]), [faulted("B", [3, 3, 3], [3, 3, 3])])
    first, second = comparison.resilience
    assert (first.arm, first.fault, first.scenarios) == ("A", "outage", 3)
    assert first.loss.value == pytest.approx(14 / 15 - 3 / 15)
    assert 0 < first.loss.low < first.loss.value < first.loss.high
    assert second.loss.value == 0.0
    assert second.loss.low < 0 < second.loss.high


def test_a_fault_without_its_plain_counterpart_has_no_loss():
    only = Arm.of("A", {("s0", "outage"): trials(3, 5)})
    assert compare_arms(only, [only]).resilience == []


def test_faults_of_a_scenario_are_averaged_before_scenarios_are_generalised_over():
    def one(passes, name):
        return Arm.of(
            name, {(f"s{i}", f"f{j}"): trials(c, 5, scenario=f"s{i}") for i, c in enumerate(passes) for j in range(4)}
        )

    many = contrast(one([5, 5, 5], "A"), one([0, 5, 5], "B"))
    assert (many.cells, many.scenarios) == (12, 3)
    assert many.verdict == "worse_on_this_suite"
    assert many.population.high > 0


def test_the_drill_down_shows_where_it_moved():
    found = contrast(arm("A", [10] * 6, 10), arm("B", [10] * 5 + [1], 10))
    looked = {(row.kind, row.name) for row in found.drill_down if row.worth_a_look}
    assert looked == {("assertion", CAPABILITY), ("scenario", "s5")}
    assert all(row.q >= row.p for row in found.drill_down)


def test_the_flip_list_tells_where_conversations_part():
    def two(name, first, second, calls):
        return Arm.of(
            name,
            {
                ("s", "none"): [
                    trial(0, first, calls=("lookup", *calls)),
                    trial(1, second, said="same"),
                    trial(2, said=f"{name} says"),
                ]
            },
        )

    found = contrast(two("A", True, True, ["pay"]), two("B", False, True, ["refund"]))
    (flip,) = found.flips
    assert (flip.scenario, flip.passes_a, flip.n_a, flip.passes_b, flip.n_b) == ("s", 3, 3, 2, 3)
    (flipped,) = flip.trials
    assert (flipped.index, flipped.passed_a, flipped.passed_b) == (0, True, False)
    assert (flipped.turn, flipped.tool_call) == (None, 1)


def test_latency_and_cost_are_ratios_and_the_front_is_who_nobody_beats():
    def priced(name, passes, latency, cost):
        spent = {"bot": {"calls": 1, "input_tokens": 1, "output_tokens": 1, "cost_usd": cost}}
        cells = {}
        for i, c in enumerate(passes):
            records = trials(c, 5, scenario=f"s{i}", spent=spent)
            for record in records:
                record["conversation"][0]["latency_s"] = latency
            cells[f"s{i}", "none"] = records
        return Arm.of(name, cells)

    comparison = compare_arms(
        priced("A", [5, 5], 1.0, 0.02), [priced("fast", [5, 4], 0.5, 0.01), priced("poor", [3, 3], 0.9, 0.03)]
    )
    fast = comparison.contrast("fast")
    assert (fast.latency.value, fast.cost.value) == pytest.approx((0.5, 0.5))
    assert [point.arm for point in comparison.pareto if point.on_front] == ["A", "fast"]
    assert comparison.arms[0].cost_usd_per_pass == pytest.approx(0.02)
    assert "x0.50" in render_text(comparison)


def test_what_nobody_priced_has_no_cost():
    comparison = compare_arms(arm("A", [5, 5]), [arm("B", [5, 5])])
    assert (comparison.arms[0].cost_usd, comparison.contrasts[0].cost.value) == (None, None)


def test_judge_scores_are_compared_trial_by_trial():
    def graded(name, shift):
        return Arm.of(
            name,
            {
                (f"s{i}", "none"): [
                    trial(j, scenario=f"s{i}", grader={"score": 0.7 + j / 50 - shift, "passed": True}, judge_asked=True)
                    for j in range(5)
                ]
                for i in range(4)
            },
        )

    judge = contrast(graded("A", 0.0), graded("B", 0.2)).judge
    assert judge.suite.value == pytest.approx(-0.2)
    assert judge.suite.high < 0
    assert judge.p == pytest.approx(2 / 2**20)
    assert contrast(arm("A", [5]), arm("B", [5])).judge is None


def test_a_comparison_is_plain_json_and_reads_as_text_and_markdown():
    comparison = compare_arms(faulted("A", [5, 4], [4, 3]), [faulted("B|x", [5, 1], [0, 3])])
    written = comparison.to_dict()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert render_markdown(comparison).count("B\\|x") >= 2
    text = render_text(comparison, stats=True)
    assert "p (Holm)" in text
    assert "p (Holm)" not in render_text(comparison)
    assert "significant" not in text


def test_two_copies_of_one_model_are_rarely_told_apart():
    rng = np.random.default_rng(1)
    true = rng.beta(0.8, 0.2, size=(200, 10))
    declared = 0
    for scenario_rates in true:
        one, other = (arm(name, rng.binomial(5, scenario_rates).tolist()) for name in ("A", "B"))
        declared += contrast(one, other).verdict.startswith(("better", "worse"))
    assert declared <= 10


def test_a_held_cell_is_one_whose_every_trial_is_known_to_have_passed():
    assert CellTrials(tuple(trials(5, 5)), 5).held
    assert not CellTrials(tuple(trials(4, 4)), 5).held
    assert not CellTrials((), 0).held


def graded(name, scores, *, cells=4, spread=0.0):
    """Make an arm whose judge was asked twice per trial, the answers `spread` apart."""
    return Arm.of(
        name,
        {
            (f"s{place}", "none"): [
                trial(
                    index,
                    scenario=f"s{place}",
                    judge_asked=True,
                    grader={
                        "score": score,
                        "passed": True,
                        "scores": [score - spread / 2, score + spread / 2] if spread else [],
                    },
                )
                for index, score in enumerate(scores)
            ]
            for place in range(cells)
        },
    )


@pytest.mark.parametrize(("spread", "warned"), [(0.4, True), (0.05, False), (0.0, False)])
def test_a_difference_inside_the_judge_s_own_noise_is_warned_of(spread, warned):
    one, other = graded("A", [0.5, 0.6], spread=spread), graded("B", [0.6, 0.7], spread=spread)
    comparison = compare_arms(one, [other])
    said = [line for line in comparison.warnings if "the judge differs from itself" in line]
    assert bool(said) is warned
    if warned:
        # Two answers 0.4 apart vary by 0.08, their mean by 0.04; the difference of two means of eight by 0.01.
        assert comparison.contrasts[0].judge.judge_sd == pytest.approx(0.2)
        assert comparison.contrasts[0].judge.noise == pytest.approx(1.96 * 0.1, abs=1e-3)
        assert said[0].endswith("the difference of +0.100 is inside that")
        assert said[0] in render_text(comparison)
        assert said[0] in render_markdown(comparison)


def test_noise_told_by_a_check_is_used_where_records_tell_none():
    one, other = graded("A", [0.5, 0.6]), graded("B", [0.6, 0.7])
    assert compare_arms(one, [other]).contrasts[0].judge.noise is None
    assert compare_arms(one, [other], judge_variance=0.04).warnings
    own = graded("A", [0.5, 0.6], spread=0.02), graded("B", [0.6, 0.7], spread=0.02)
    assert compare_arms(own[0], [own[1]], judge_variance=0.04).warnings == []


def test_three_arms_are_ranked_and_a_rank_in_doubt_is_not_printed():
    best, second, worst = arm("A", [5] * 12), arm("B", [4, 5, 5] * 4), arm("C", [0, 1, 1] * 4)
    twin = Arm("D", dict(second.cells))
    comparison = compare_arms(worst, [best, second, twin])
    assert [(one.arm, one.rank, one.rank_low, one.rank_high) for one in comparison.ranking] == [
        ("A", 1, 1, 1),
        ("B", None, 2, 3),
        ("D", None, 2, 3),
        ("C", 4, 4, 4),
    ]
    assert sum(one.p_best for one in comparison.ranking) == pytest.approx(1)
    for text in (render_text(comparison), render_markdown(comparison)):
        assert "A: 100.0%, rank 1, P(best) 0." in text or "A: 100.0%, rank 1, P(best) 1." in text
        assert "B: 93.3%, somewhere in 2-3, P(best) 0." in text
    assert json.loads(json.dumps(comparison.to_dict()))["ranking"][0]["arm"] == "A"


def test_two_arms_are_not_ranked_and_one_that_cannot_be_compared_has_no_rank():
    good = [arm(name, [5, 4, 3, 5]) for name in "ABC"]
    assert compare_arms(good[0], good[1:2]).ranking == []
    errored = arm("E", [5, 5, 5, 5], errors=2)
    assert [one.arm for one in compare_arms(good[0], [*good[1:], errored]).ranking] == ["A", "B", "C"]


def test_arms_are_ranked_over_the_scenarios_that_all_of_them_measured():
    most = [arm("A", [5, 5, 0, 0, 5]), arm("B", [4, 4, 0, 0])]
    few = arm("C", [3, 3])
    ranking = compare_arms(most[0], [most[1], few]).ranking
    assert [(one.arm, round(one.rate, 2), one.rank) for one in ranking] == [("A", 1.0, 1), ("B", 0.8, 2), ("C", 0.6, 3)]
