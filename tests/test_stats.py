import json
import math
from pathlib import Path

import pytest

from sonar_eval.stats import pass_at_k, pass_hat_k, quantile, wilson

VECTORS = json.loads((Path(__file__).parent / "data" / "stats_vectors.json").read_text())["vectors"]


def expected_over_trials(estimate, n, k, p):
    """Average an estimate over all outcomes of n trials that pass with probability p."""
    chances = (math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1))
    return sum(chance * estimate(n, c, k) for c, chance in enumerate(chances))


COMPUTE = {
    "pass_at_k": lambda n, c, k: pass_at_k(n, c, k),
    "pass_hat_k": lambda n, c, k: pass_hat_k(n, c, k),
    "pass_at_k_curve": lambda n, c: [pass_at_k(n, c, k) for k in range(1, n + 1)],
    "pass_hat_k_curve": lambda n, c: [pass_hat_k(n, c, k) for k in range(1, n + 1)],
    "expected_pass_at_k": lambda n, k, p: expected_over_trials(pass_at_k, n, k, p),
    "expected_pass_hat_k": lambda n, k, p: expected_over_trials(pass_hat_k, n, k, p),
    "wilson_ci": lambda c, n, confidence: list(wilson(c / n, n, confidence=confidence)),
    "percentiles_type7": lambda x, p: [quantile(x, q) for q in p],
}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_a_number_agrees_with_its_independent_computation(vector):
    computed = COMPUTE[vector["fn"]](**vector["inputs"])
    if vector["expected"] is None:
        assert computed is None
    else:
        assert computed == pytest.approx(vector["expected"], abs=vector["abs_tol"])


def test_every_function_is_covered_by_some_vector():
    assert {vector["fn"] for vector in VECTORS} == set(COMPUTE)


@pytest.mark.parametrize("estimate", [pass_at_k, pass_hat_k])
def test_more_trials_than_were_run_are_not_measured_rather_than_one_or_zero(estimate):
    assert estimate(3, 3, 4) is None
    assert estimate(0, 0, 1) is None


@pytest.mark.parametrize("estimate", [pass_at_k, pass_hat_k])
@pytest.mark.parametrize(("n", "passed", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_impossible_counts_are_refused(estimate, n, passed, k):
    with pytest.raises(ValueError, match="must"):
        estimate(n, passed, k)


def test_an_interval_stays_within_zero_and_one():
    assert wilson(0.0, 10).low == pytest.approx(0.0, abs=1e-12)
    assert wilson(1.0, 10).high == pytest.approx(1.0, abs=1e-12)
    assert 0.0 <= wilson(0.0, 10).low <= wilson(1.0, 10).high <= 1.0


@pytest.mark.parametrize("n", [0, -1])
def test_without_a_trial_there_is_no_interval(n):
    with pytest.raises(ValueError, match="trials"):
        wilson(0.5, n)


def test_a_quantile_of_nothing_is_undefined_and_the_order_of_values_does_not_matter():
    assert quantile([], 0.5) is None
    assert quantile([7.0], 0.95) == 7.0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert (quantile([3.0, 1.0], 0.0), quantile([3.0, 1.0], 1.0)) == (1.0, 3.0)
