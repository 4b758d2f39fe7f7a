"""What repeated judgements and labels say about a judge, on judges whose errors are known."""

from __future__ import annotations

import json
import random

import pytest

from sonar_eval.report import Judged, Label, Trial, check_judge, judge_check_markdown, judge_check_text


def verdict(place, passed, *, score=None, criteria=None):
    return Judged(f"c{place}", (1.0 if passed else 0.0) if score is None else score, passed, criteria or {})


def trials(verdicts, arm="A", **changes):
    return [Trial(arm, f"s{place % 4} none", one, **changes) for place, one in enumerate(verdicts)]


def labels(truth, start=0):
    return [Label(f"c{start + place}", passed) for place, passed in enumerate(truth)]


def judged_with_errors(n, *, rate, sensitivity, specificity, seed=0, start=0):
    """Draw n trials: what is true of each, and what a judge of these errors says."""
    chance = random.Random(seed)
    truth = [chance.random() < rate for _ in range(n)]
    said = [chance.random() < sensitivity if held else chance.random() >= specificity for held in truth]
    return truth, [verdict(start + place, passed) for place, passed in enumerate(said)]


def check(verdicts, truth=(), **more):
    recorded = {one.conversation_id: one for one in verdicts}
    return check_judge("j", trials(verdicts), [recorded, recorded], labels=labels(truth), **more)


def test_a_judge_that_repeats_itself_agrees_and_has_no_variance():
    found = check([verdict(place, place % 2 == 0) for place in range(20)]).itself
    assert (found.agreement.alike, found.agreement.n, found.agreement.kappa.value) == (20, 20, 1.0)
    assert (found.judge_variance, found.icc, found.optimum_repeats) == (0.0, 1.0, 1)


def test_a_judge_that_tosses_a_coin_has_no_kappa_and_no_icc():
    chance = random.Random(1)
    rounds = [{f"c{i}": verdict(i, chance.random() < 0.5) for i in range(400)} for _ in range(2)]
    found = check_judge("j", trials(list(rounds[0].values())), rounds).itself
    assert found.agreement.share == pytest.approx(0.5, abs=0.08)
    assert found.agreement.kappa.low < 0 < found.agreement.kappa.high
    assert found.judge_variance == pytest.approx(0.25, abs=0.03)
    assert abs(found.icc) < 0.15


def test_the_variance_of_repeated_judgements_is_that_of_the_reference():
    scores = [(0.8, 0.9), (0.4, 0.5), (0.9, 0.9), (0.2, 0.3)]
    rounds = [{f"c{i}": verdict(i, True, score=row[which]) for i, row in enumerate(scores)} for which in (0, 1)]
    found = check_judge("j", trials(list(rounds[0].values())), rounds).itself
    assert found.judge_variance == pytest.approx((3 * 0.1**2 / 2) / 4)
    assert found.judge_sd == pytest.approx(found.judge_variance**0.5)


@pytest.mark.parametrize(("costs", "ratio", "repeats"), [((None, None), None, 1), ((0.9, 0.01), 90, 9)])
def test_repeats_pay_where_a_judgement_is_much_cheaper_than_a_conversation(costs, ratio, repeats):
    chance = random.Random(2)
    quality = [chance.gauss(0.5, 0.1) for _ in range(400)]
    rounds = [
        {f"c{i}": verdict(i, True, score=mean + chance.gauss(0, 0.1)) for i, mean in enumerate(quality)} for _ in "ab"
    ]
    told = trials(list(rounds[0].values()), cost_usd=costs[0], judge_cost_usd=costs[1])
    found = check_judge("j", told, rounds).itself
    assert found.cost_ratio == (ratio and pytest.approx(ratio))
    assert found.optimum_repeats == pytest.approx(repeats, abs=1 if ratio else 0)


def test_an_answer_that_is_no_verdict_is_counted_and_left_out():
    first = {f"c{i}": verdict(i, True) for i in range(3)}
    second = {**first, "c1": Judged("c1", None, False)}
    found = check_judge("j", trials(list(first.values())), [first, second]).itself
    assert (found.trials, found.unread, found.agreement.alike) == (2, 1, 2)


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (["no verdict"], "1 answer gave no verdict: no verdict (1)"),
        (["no verdict"] * 2 + ["score 85 is none", "score 70 is none", "score 9 is none"], None),
        (["a", "a", "a", "b", "b", "c"], "6 answers gave no verdict: a (3); b (2); others (1)"),
        ([None, None], "2 answers gave no verdict"),
        (["long\n" * 100], f"1 answer gave no verdict: {('long ' * 30)[:119]}… (1)"),
    ],
)
def test_answers_that_give_no_verdict_are_told_with_their_most_frequent_reasons(errors, said):
    whole = {f"c{i}": verdict(i, True) for i in range(10)}
    unread = {f"c{i}": Judged(f"c{i}", None, False, error=error) for i, error in enumerate(errors)}
    found = check_judge("j", trials(list(whole.values())), [whole, {**whole, **unread}], second=("other", unread))
    text = judge_check_text(found).splitlines()
    said = said or "5 answers gave no verdict: score 85 is none (3); no verdict (2)"
    assert text.count(f"  {said}") == 2


def test_a_judge_that_has_changed_since_the_run_is_seen():
    recorded = [verdict(place, True) for place in range(10)]
    fresh = {f"c{place}": verdict(place, place < 5) for place in range(10)}
    found = check_judge("j", trials(recorded), [fresh, fresh]).itself
    assert (found.agreement.share, found.with_record.share) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("passes_first", "passes_second", "stricter"), [(range(40), range(20), "second"), (range(20), range(40), "first")]
)
def test_the_stricter_of_two_judges_is_named(passes_first, passes_second, stricter):
    first = {f"c{i}": verdict(i, i in passes_first) for i in range(40)}
    second = {f"c{i}": verdict(i, i in passes_second) for i in range(40)}
    found = check_judge("j", trials(list(first.values())), [first, first], second=("other", second))
    assert found.second.stricter == stricter
    assert ("other is stricter" if stricter == "second" else "the judge is stricter") in judge_check_text(found)


def test_judges_that_differ_by_chance_are_not_told_apart():
    first = {f"c{i}": verdict(i, i != 0) for i in range(40)}
    second = {f"c{i}": verdict(i, i != 1) for i in range(40)}
    found = check_judge("j", trials(list(first.values())), [first, first], second=("other", second))
    assert (found.second.stricter, found.second.p) == (None, 1.0)


@pytest.mark.parametrize("n", [0, 1, 49])
def test_below_fifty_labels_there_are_counts_only(n):
    truth, verdicts = judged_with_errors(200, rate=0.6, sensitivity=0.9, specificity=0.8)
    found = check(verdicts, truth[:n])
    if not n:
        assert found.people is None
        return
    people = found.people
    assert people.both_pass + people.both_fail + people.only_judge_passes + people.only_people_pass == n
    assert (people.agreement.kappa.value, people.sensitivity.value, people.specificity.value) == (None, None, None)
    (arm,) = found.arms
    assert (arm.corrected, arm.ppi, arm.ppi_plus_plus) == (None, None, None)
    text = judge_check_text(found)
    assert f"n too small: {n} labelled" in text
    assert "kappa" not in text.partition("Against people")[2]


def test_the_corrected_rates_find_the_truth_that_a_lenient_judge_hides():
    truth, verdicts = judged_with_errors(4000, rate=0.5, sensitivity=0.98, specificity=0.6, seed=3)
    found = check(verdicts, truth[:600])
    (arm,) = found.arms
    assert arm.rate == pytest.approx(0.69, abs=0.02)
    assert found.people.sensitivity.value == pytest.approx(0.98, abs=0.02)
    assert found.people.specificity.value == pytest.approx(0.6, abs=0.07)
    for value, se in (
        (arm.corrected, arm.corrected_se),
        (arm.ppi, arm.ppi_se),
        (arm.ppi_plus_plus, arm.ppi_plus_plus_se),
    ):
        assert abs(value - 0.5) < 3 * se < 0.12
    assert found.people.agreement.kappa.low < found.people.agreement.kappa.value < found.people.agreement.kappa.high


def test_where_all_is_labelled_the_labels_are_the_estimate():
    truth, verdicts = judged_with_errors(60, rate=0.5, sensitivity=0.9, specificity=0.7)
    (arm,) = check(verdicts, truth).arms
    assert arm.ppi == arm.ppi_plus_plus == pytest.approx(sum(truth) / 60)


def two_arms(specificities, n=150):
    verdicts, said = [], []
    for place, specificity in enumerate(specificities):
        truth, judged = judged_with_errors(
            n, rate=0.5, sensitivity=0.95, specificity=specificity, seed=place, start=place * n
        )
        verdicts += trials(judged, arm="AB"[place])
        said += labels(truth, start=place * n)
    recorded = {trial.verdict.conversation_id: trial.verdict for trial in verdicts}
    return check_judge("j", verdicts, [recorded, recorded], labels=said)


def test_a_judge_that_prefers_one_arm_is_named_and_each_arm_corrected_by_its_own_errors():
    found = two_arms((0.95, 0.4))
    (warning,) = found.warnings
    assert warning.startswith("the judge does not treat the arms alike: specificity ")
    assert all(arm.own_errors for arm in found.arms)
    assert [abs(arm.corrected - 0.5) < 3 * arm.corrected_se for arm in found.arms] == [True, True]
    assert found.arms[1].rate - found.arms[0].rate > 0.15


def test_a_judge_that_errs_alike_raises_no_alarm():
    assert two_arms((0.8, 0.8)).warnings == []


def test_few_labels_in_an_arm_correct_it_by_the_errors_in_all():
    truth, judged = judged_with_errors(100, rate=0.5, sensitivity=0.9, specificity=0.8)
    more, other = judged_with_errors(40, rate=0.5, sensitivity=0.9, specificity=0.8, start=100)
    both = trials(judged, arm="A") + trials(other, arm="B")
    recorded = {trial.verdict.conversation_id: trial.verdict for trial in both}
    found = check_judge("j", both, [recorded, recorded], labels=[*labels(truth), *labels(more[:10], start=100)])
    assert [arm.own_errors for arm in found.arms] == [True, False]
    assert found.arms[1].corrected is not None
    assert found.arms[1].ppi is None
    assert "errors of all arms" in judge_check_text(found)


def test_labels_that_were_picked_by_the_verdict_are_noticed():
    truth, verdicts = judged_with_errors(300, rate=0.5, sensitivity=0.9, specificity=0.8)
    recorded = {one.conversation_id: one for one in verdicts}
    picked = [label for label, one in zip(labels(truth), verdicts, strict=True) if not one.passed]
    found = check_judge("j", trials(verdicts), [recorded, recorded], labels=picked)
    assert any("no random draw" in line for line in found.warnings)


def test_criteria_are_checked_one_by_one():
    def said(place, polite):
        return verdict(place, True, criteria={"polite": polite, "honest": "passed"})

    first = {f"c{i}": said(i, "passed" if i % 2 else "failed") for i in range(10)}
    second = {f"c{i}": said(i, "passed" if i % 2 else "cannot_tell") for i in range(10)}
    told = [Label(f"c{i}", True, "polite") for i in range(10)] + [Label("c1", True, "honest")]
    found = check_judge("j", trials(list(second.values())), [first, second], labels=told)
    assert found.itself.criteria["polite"].alike == 5
    assert found.itself.criteria["honest"].share == 1.0
    assert [(one.about, one.labelled, one.untold) for one in found.people_by_criterion] == [
        ("polite", 5, 5),
        ("honest", 1, 0),
    ]
    assert "criterion polite" in judge_check_markdown(found)


def test_all_of_it_is_written_as_json_and_markdown():
    truth, verdicts = judged_with_errors(200, rate=0.6, sensitivity=0.9, specificity=0.8)
    found = check(verdicts, truth[:80], second=("other", {one.conversation_id: one for one in verdicts}))
    assert json.loads(json.dumps(found.to_dict()))["people"]["labelled"] == 80
    markdown = judge_check_markdown(found)
    assert markdown.startswith("## Judge check: j")
    assert "| arm | judged pass rate |" in markdown
