import importlib
import json
import math
import subprocess
import sys
from inspect import isfunction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from sonar_eval import stats

VECTORS = json.loads((Path(__file__).parent / "data" / "stats_vectors.json").read_text())["vectors"]


def agrees(computed, expected, tolerance):
    """Compare recursively; "not measured" equals nothing but itself."""
    if computed is None or expected is None:
        return computed is expected
    if isinstance(expected, dict):
        return computed.keys() == expected.keys() and all(
            agrees(computed[key], expected[key], tolerance) for key in expected
        )
    if isinstance(expected, list):
        return len(computed) == len(expected) and all(
            agrees(mine, theirs, tolerance) for mine, theirs in zip(computed, expected, strict=True)
        )
    if isinstance(expected, str):
        return computed == expected
    return math.isclose(computed, expected, rel_tol=0.0, abs_tol=tolerance)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_a_number_agrees_with_its_independent_computation(vector):
    computed = getattr(stats, vector["fn"])(**vector["inputs"])
    assert agrees(computed, vector["expected"], vector["abs_tol"])


def test_agreement_is_told_from_disagreement():
    assert agrees({"a": [0.1, None]}, {"a": [0.1 + 1e-12, None]}, 1e-9)
    assert not agrees({"a": [0.1, 0.0]}, {"a": [0.1, None]}, 1e-9)
    assert not agrees([0.1], [0.1, 0.2], 1e-9)
    assert not agrees({"a": 1}, {"b": 1}, 1e-9)
    assert not agrees(0.1, 0.2, 1e-9)


def test_documented_names_are_there():
    assert all(hasattr(stats, name) for name in stats.__all__)
    with pytest.raises(AttributeError, match="no attribute 'pass_at_q'"):
        stats.pass_at_q  # noqa: B018


def test_importing_the_numbers_loads_no_heavy_library():
    code = "import sys, sonar_eval.stats; print([name for name in ('scipy', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("module", sorted(path.stem for path in Path(stats.__file__).parent.glob("*.py")))
def test_every_formula_names_its_meaning(module):
    found = importlib.import_module("sonar_eval.stats" if module == "__init__" else f"sonar_eval.stats.{module}")
    public = [value for name, value in vars(found).items() if isfunction(value) and not name.startswith("_")]
    assert [value for value in public if not value.__doc__] == []


# What cannot be computed is None, and what makes no sense is refused.


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        ("pass_at_k", {"n": 0, "c": 0, "k": 1}),
        ("pass_hat_k", {"n": 4, "c": 4, "k": 5}),
        ("wilson_ci", {"c": 0, "n": 0}),
        ("clopper_pearson_ci", {"c": 0, "n": 0}),
        ("pass_hat_k_ci_wilson", {"c": 0, "n": 0, "k": 2}),
        ("suite_wilson_ci", {"passes": [3, 0], "n": [5, 0]}),
        ("suite_wilson_ci", {"passes": [], "n": 5}),
        ("clustered_standard_error", {"passes": [3], "n": 5}),
        ("population_wilson_ci", {"passes": [3], "n": 5}),
        ("population_t_ci", {"passes": [3], "n": 5}),
        ("intra_scenario_correlation", {"passes": [5, 5], "n": 5}),
        ("intra_scenario_correlation", {"passes": [1, 0], "n": 1}),
        ("macro_pass_hat_k_ci", {"passes": [5, 3], "n": [5, 3], "k": 4}),
        ("beta_binomial_mle", {"passes": [5, 5, 5], "n": 5}),
        ("beta_binomial_mle", {"passes": [5, 5, 5, 5], "n": 10}),
        ("newcombe_diff_ci", {"passes_b": 0, "n_b": 0, "passes_a": 1, "n_a": 5}),
        ("cohen_dz", {"b": [1.0, 2.0], "a": [0.0, 1.0]}),
        ("paired_t_ci", {"b": [1.0], "a": [0.0]}),
        ("median_ci_order_statistics", {"x": [1, 2, 3, 4, 5]}),
        ("n_per_arm_two_proportions", {"p_a": 0.8, "p_b": 0.8}),
        ("trials_per_scenario_needed", {"var_a": 0.1, "var_b": 0.1, "scenarios": 20, "delta": 0.0}),
        ("clean_trials_needed", {"pass_hat_k_at_least": 1.0}),
        ("rogan_gladen", {"observed": 0.7, "sensitivity": 0.5, "specificity": 0.5}),
        ("cohen_kappa", {"table": [[5, 0], [0, 0]]}),
        ("suite_mean_diff_ci", {"scores_a": [[0.5]], "scores_b": [[0.5, 0.6]]}),
        ("compare", {"passes_a": [0], "n_a": 0, "passes_b": [0], "n_b": 5}),
        ("verdict", {"passes_a": [], "n_a": [], "passes_b": [], "n_b": []}),
        (
            "rogan_gladen_se",
            {"observed": 0.5, "n": 9, "sensitivity": 1, "n_positive": 0, "specificity": 1, "n_negative": 5},
        ),
        ("population_mean_diff_ci", {"scores_a": [[0.5], []], "scores_b": [[0.6], [0.4]]}),
        ("bca_mean_ci_seeded", {"x": [0.5]}),
        ("bca_mean_ci_seeded", {"x": [0.5, 0.5, 0.5]}),
    ],
)
def test_what_was_not_measured_is_none(function, inputs):
    assert getattr(stats, function)(**inputs) is None


@pytest.mark.parametrize(
    ("function", "inputs", "value"),
    [
        ("ppi_mean", {"human": [], "judge_on_human": [], "judge_unlabelled": [1, 0]}, [None, None]),
        ("ppi_mean", {"human": [1], "judge_on_human": [0.5], "judge_unlabelled": [0.5, 0.5]}, [1.0, None]),
        ("ppi_plus_plus_mean", {"human": [1], "judge_on_human": [0.5], "judge_unlabelled": [0.5]}, [0.0, 1.0]),
        ("ppi_plus_plus_mean", {"human": [1, 0], "judge_on_human": [1, 0], "judge_unlabelled": []}, [0.0, 0.5]),
        ("repeat_judge_variance", {"scores": []}, [None, None, None]),
        ("repeat_judge_variance", {"scores": [[0.5], [0.6]]}, [None, None, None]),
        ("geometric_mean_ratio_ci", {"b": [0.0, 1.0], "a": [1.0, 1.0]}, [None, None, None]),
        ("boschloo_exact", {"groups_in_rows": [[0, 0], [3, 3]], "alternative": "greater"}, 1.0),
    ],
)
def test_of_several_values_those_not_measured_are_none(function, inputs, value):
    assert getattr(stats, function)(**inputs) == value


@pytest.mark.parametrize("array", [np.int64, lambda value: np.array([value, value])])
def test_counts_may_be_numpy_s_and_results_never_are(array):
    for function in ("suite_wilson_ci", "population_wilson_ci", "macro_pass_hat_k", "clustered_standard_error"):
        found = getattr(stats, function)(np.array([5, 2]), array(5))
        assert found == getattr(stats, function)([5, 2], 5)
        assert {type(value) for value in ([found] if isinstance(found, float) else found)} == {float}
    found = stats.compare(np.array([5, 2]), array(5), np.array([3, 2]), array(5))
    assert type(found["diff"]) is float
    assert stats.cliffs_delta(np.array([1.0, 2.0]), np.array([0.0, 1.0])) == 0.75
    assert stats.percentiles_type7(np.array([1.0, 2.0]), [0.5]) == [1.5]


def test_a_test_of_very_many_pairs_agrees_with_the_normal_approximation():
    b, c = 100_000, 100_700
    z = (c - b - 1) / math.sqrt(b + c)
    assert stats.mcnemar_exact(b, c) == pytest.approx(math.erfc(z / math.sqrt(2)), abs=1e-4)


def test_trials_that_divide_evenly_are_not_rounded_up_once_more():
    assert stats.trials_per_scenario_needed(0.0, 0.0, 20, 0.05) == [1, pytest.approx(20)]


@pytest.mark.parametrize("estimate", [stats.pass_at_k, stats.pass_hat_k])
@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_impossible_counts_are_refused(estimate, n, c, k):
    with pytest.raises(ValueError, match="must"):
        estimate(n, c, k)


def test_counts_of_a_suite_must_fit_together():
    with pytest.raises(ValueError, match="2 scenarios have passes, but 3 have trials"):
        stats.suite_wilson_ci([1, 2], [5, 5, 5])
    with pytest.raises(ValueError, match="must lie in"):
        stats.suite_wilson_ci([6], 5)


@pytest.mark.parametrize("n", [0, -1])
def test_without_a_trial_there_is_no_interval(n):
    with pytest.raises(ValueError, match="trials"):
        stats.wilson(0.5, n)


def test_a_quantile_of_nothing_is_undefined_and_the_order_of_values_does_not_matter():
    assert stats.quantile([], 0.5) is None
    assert stats.quantile([7.0], 0.95) == 7.0
    assert stats.quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert (stats.quantile([3.0, 1.0], 0.0), stats.quantile([3.0, 1.0], 1.0)) == (1.0, 3.0)


def test_one_trial_per_scenario_says_nothing_about_noise_and_the_binomial_bound_holds():
    assert stats.suite_effective_n([1, 0, 1, 1], 1) == 4
    assert stats.suite_effective_n([1, 3], [1, 5]) == 6


def test_a_single_scenario_can_be_compared_and_never_carries_over():
    found = stats.compare([5], 5, [1], 5)
    assert found["p_two_sided"] == pytest.approx(0.0476, abs=1e-4)
    assert found["population_ci"].low < 0 < found["population_ci"].high
    assert stats.verdict([5], 5, [1], 5) == "worse_on_this_suite"


@pytest.mark.parametrize(
    ("inputs", "decision"),
    [
        ({"n_b": [5, 0, 5], "passes_b": [5, 0, 0]}, "invalid"),
        ({"error_rate_a": 0.11}, "invalid"),
        ({"error_rate_a": 0.10}, "pass"),
        ({"no_worse_than": 0.05}, "fail_not_shown"),
        ({"no_worse_than": 0.30}, "pass"),
    ],
)
def test_the_gate_wants_valid_runs_and_in_strict_mode_proof(inputs, decision):
    alike = {"passes_a": [5, 3, 0], "n_a": [5, 5, 5], "passes_b": [5, 3, 0], "n_b": [5, 5, 5]}
    assert stats.gate(**{**alike, **inputs}) == decision


# Properties.


@st.composite
def two_arms(draw, most=8):
    """Draw passes and trials of two arms over the same scenarios."""
    size = draw(st.integers(1, most))
    n_a, n_b = (draw(st.lists(st.integers(1, 8), min_size=size, max_size=size)) for _ in "ab")
    return [draw(st.integers(0, n)) for n in n_a], n_a, [draw(st.integers(0, n)) for n in n_b], n_b


@given(two_arms())
def test_swapping_the_arms_mirrors_the_comparison(arms):
    passes_a, n_a, passes_b, n_b = arms
    there, back = stats.compare(*arms), stats.compare(passes_b, n_b, passes_a, n_a)
    assert there["diff"] == pytest.approx(-back["diff"], abs=1e-12)
    assert there["p_two_sided"] == pytest.approx(back["p_two_sided"], abs=1e-9)
    for ends in ("suite_ci", "suite_ci_90", "population_ci"):
        assert [*there[ends]] == pytest.approx([-back[ends].high, -back[ends].low], abs=1e-9)
    test = stats.stratified_exact_test(*arms)
    assert test["less"] == pytest.approx(stats.stratified_exact_test(passes_b, n_b, passes_a, n_a)["greater"], abs=1e-9)
    words = {"better": "worse", "better_on_this_suite": "worse_on_this_suite"}
    words |= {worse: better for better, worse in words.items()}
    mirrored = stats.verdict(passes_b, n_b, passes_a, n_a)
    assert stats.verdict(*arms) == words.get(mirrored, mirrored)


@given(two_arms())
def test_a_comparison_stays_within_its_bounds(arms):
    found = stats.compare(*arms)
    low, high = found["suite_ci"]
    assert -1 <= low <= found["diff"] <= high <= 1
    assert low < high
    assert found["population_ci"].low <= low
    assert found["population_ci"].high >= high
    assert found["suite_ci_90"].low >= low
    assert found["suite_ci_90"].high <= high
    assert all(0 <= p <= 1 for p in stats.stratified_exact_test(*arms).values())


@given(st.integers(0, 12), st.integers(1, 12), st.integers(0, 12), st.integers(1, 12))
def test_with_one_scenario_the_stratified_test_is_fisher_s(in_a, n_a, in_b, n_b):
    in_a, in_b = min(in_a, n_a), min(in_b, n_b)
    found = stats.stratified_exact_test([in_a], n_a, [in_b], n_b)
    table = [[in_b, n_b - in_b], [in_a, n_a - in_a]]
    assert found["less"] == pytest.approx(stats.fisher_exact(table, "less"), abs=1e-9)
    assert found["greater"] == pytest.approx(stats.fisher_exact(table, "greater"), abs=1e-9)


@given(st.integers(0, 40), st.integers(1, 40), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_intervals_of_one_rate_agree_with_scipy_and_mirror(c, n, confidence):
    c = min(c, n)
    whole = scipy_stats.binomtest(c, n)
    for mine, method in ((stats.wilson_ci, "wilson"), (stats.clopper_pearson_ci, "exact")):
        theirs = whole.proportion_ci(confidence, method=method)
        assert [*mine(c, n, confidence)] == pytest.approx([theirs.low, theirs.high], abs=1e-9)
        mirrored = mine(n - c, n, confidence)
        assert [*mine(c, n, confidence)] == pytest.approx([1 - mirrored.high, 1 - mirrored.low], abs=1e-9)
    low, high = stats.jeffreys_ci(c, n, confidence)
    assert 0 <= low < high <= 1


@given(st.integers(1, 30), st.data())
def test_estimates_rise_with_passes_and_stay_in_order(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    hat, at = stats.pass_hat_k(n, c, k), stats.pass_at_k(n, c, k)
    assert 0 <= hat <= c / n + 1e-12 <= at + 2e-12 <= 1 + 1e-9
    if c < n:
        assert hat <= stats.pass_hat_k(n, c + 1, k)
        assert at <= stats.pass_at_k(n, c + 1, k)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_agrees_with_the_binomial_test(b, c):
    theirs = scipy_stats.binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert stats.mcnemar_exact(b, c) == pytest.approx(theirs, abs=1e-9)
    assert 0 <= stats.mcnemar_mid_p(b, c) <= stats.mcnemar_exact(b, c)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from([-0.4, -0.2, 0.0, 0.1, 0.3]), min_size=2, max_size=10),
    st.sampled_from(["two-sided", "less", "greater"]),
)
def test_the_sign_flip_enumerates_as_scipy_does(diffs, alternative):
    found = scipy_stats.permutation_test(
        ([round(diff * 10) for diff in diffs],),
        lambda x, axis: x.sum(axis=axis),
        permutation_type="samples",
        alternative=alternative,
        n_resamples=math.inf,
        vectorized=True,
    )
    assert stats.paired_permutation_test(diffs, alternative) == pytest.approx(found.pvalue, abs=1e-9)


def test_the_sign_flip_is_exact_on_and_off_a_lattice_and_close_beyond():
    fine = [0.1234567 * (1 + i / 97.3) * (-1 if i % 3 == 0 else 1) for i in range(16)]
    coarse = [round(diff, 1) for diff in fine]
    assert stats.paired_permutation_test(fine) == pytest.approx(stats.paired_permutation_test(coarse), abs=0.2)
    many = [*fine, *fine, *fine]
    sampled, exact = (stats.paired_permutation_test(diffs) for diffs in (many, [round(diff, 3) for diff in many]))
    assert sampled == pytest.approx(exact, abs=0.02)
    assert stats.paired_permutation_test([0.0, 0.0]) == 1.0
    with pytest.raises(ValueError, match="alternative must be"):
        stats.paired_permutation_test([1.0], "more")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_adjusted_p_values_never_fall_below_the_plain_ones_and_keep_their_order(p):
    for adjust in (stats.holm, stats.benjamini_hochberg, stats.benjamini_yekutieli):
        adjusted = adjust(p)
        assert all(plain - 1e-12 <= mine <= 1 for plain, mine in zip(p, adjusted, strict=True))
        ranked = [mine for _, mine in sorted(zip(p, adjusted, strict=True))]
        assert all(one <= other + 1e-12 for one, other in pairwise(ranked))
    assert stats.benjamini_hochberg(p) == pytest.approx(list(scipy_stats.false_discovery_control(p)), abs=1e-9)
    assert all(bh <= mine + 1e-12 for bh, mine in zip(stats.benjamini_hochberg(p), stats.holm(p), strict=True))


@given(st.floats(0.01, 0.25), st.floats(0.01, 0.25), st.integers(2, 60), st.floats(0.03, 0.5))
def test_what_a_plan_asks_for_reveals_what_was_asked(var_a, var_b, scenarios, delta):
    k, total = stats.trials_per_scenario_needed(var_a, var_b, scenarios, delta)
    assert stats.detectable_difference(var_a, var_b, total) == pytest.approx(delta, abs=1e-9)
    assert stats.detectable_difference(var_a, var_b, scenarios * k) <= delta + 1e-9


@given(two_arms())
def test_a_suite_of_unequal_trials_keeps_its_intervals_in_bounds(arms):
    passes, n, _, _ = arms
    m = sum(c / k for c, k in zip(passes, n, strict=True)) / len(n)
    low, high = stats.suite_wilson_ci(passes, n)
    assert 0 <= low <= m + 1e-12
    assert m - 1e-12 <= high <= 1
    wider = stats.suite_wilson_ci(passes, n, 0.99)
    assert wider.low <= low + 1e-12
    assert wider.high >= high - 1e-12
    assert stats.suite_effective_n(passes, n) >= sum(n)


@pytest.mark.parametrize("prior", [(1, 1), (0.5, 0.5), (2, 3)])
def test_the_chances_of_either_arm_being_better_add_up_to_one(prior):
    there = stats.prob_b_beats_a(2, 5, 4, 6, prior)
    back = stats.prob_b_beats_a(4, 6, 2, 5, prior)
    assert there + back == pytest.approx(1.0, abs=1e-7)
    assert there > 0.5


@pytest.mark.parametrize(
    ("k", "p", "interval", "look"),
    [
        (5, 0.02, (-0.3, -0.1), (None, "difference")),
        (5, 0.03, (-0.3, -0.01), (10, "undecided")),
        (5, 0.9, (-0.04, 0.04), (None, "equivalent")),
        (5, 0.9, (-0.05, 0.04), (10, "undecided")),
        (10, 0.5, (-0.2, 0.2), (20, "undecided")),
        (20, 0.03, (-0.2, 0.2), (None, "exhausted")),
        (7, 0.5, (-0.2, 0.2), (10, "undecided")),
    ],
)
def test_a_look_stops_when_there_is_nothing_more_to_learn(k, p, interval, look):
    assert stats.next_look(k, p, interval) == look


# Rank intervals, and intervals of kappa.


def test_ranks_are_the_same_for_a_seed_and_sure_where_one_arm_always_leads():
    rates = [[0.9] * 10, [0.5] * 10, [0.1] * 10]
    assert stats.rank_intervals(rates) == [(1, 1, 1.0), (2, 2, 0.0), (3, 3, 0.0)]
    noisy = [[0.9, 0.1, 0.5, 0.7], [0.8, 0.3, 0.5, 0.6]]
    assert stats.rank_intervals(noisy) == stats.rank_intervals(noisy)
    assert stats.rank_intervals(noisy) != stats.rank_intervals(noisy, seed=1)


def test_arms_that_tie_share_their_ranks_and_the_chance_to_be_best():
    assert stats.rank_intervals([[0.3, 0.1, 0.2], [0.1, 0.2, 0.3], [0.0, 0.0, 0.0]], n_resamples=500)[2] == (3, 3, 0.0)
    assert stats.rank_intervals([[0.5, 0.7], [0.5, 0.7]]) == [(1, 2, 0.5), (1, 2, 0.5)]


def test_the_probability_to_be_best_is_that_of_the_bootstrap():
    # One arm leads in two of three scenarios by less than it loses in the third: it is ahead unless that is drawn.
    found = stats.rank_intervals([[0.6, 0.6, 0.0], [0.5, 0.5, 0.5]], n_resamples=20_000)
    assert found[0].p_best == pytest.approx((2 / 3) ** 3, abs=0.02)


def test_the_interval_of_kappa_holds_kappa_and_needs_one():
    table = [[45, 5], [4, 6]]
    low, high = stats.kappa_bootstrap_ci(table)
    assert low < stats.cohen_kappa(table) < high
    assert stats.kappa_bootstrap_ci([[10 * cell for cell in row] for row in table]).low > low
    assert stats.kappa_bootstrap_ci([[10, 0], [0, 0]]) is None


def test_ppi_plus_plus_is_no_worse_than_the_labels_alone():
    human = [1, 0, 1, 1, 0, 1, 1, 0]
    judge = [0.9, 0.2, 0.8, 0.6, 0.4, 0.7, 0.9, 0.3]
    rest = [0.8, 0.9, 0.4, 0.7, 0.6, 0.95, 0.3, 0.85, 0.75, 0.5, 0.65, 0.9] * 20
    labels_alone = (stats.variance(human) / len(human)) ** 0.5
    assert stats.ppi_plus_plus_se(human, judge, rest) < labels_alone


@pytest.mark.parametrize(
    ("judge", "trial", "ratio", "best"), [(0.01, 0.01, 1, 1), (0.09, 0.01, 1, 3), (0.01, 0.01, 16, 4), (0, 0, 1, 1)]
)
def test_the_number_of_judgements_that_pay(judge, trial, ratio, best):
    assert stats.optimum_repeats(judge, trial, ratio) == best
    assert stats.optimum_repeats(0.1, 0.0) is None
