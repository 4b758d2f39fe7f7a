"""Simulate suites to see whether comparison and gate keep their promises: `python tests/benchmarks/verdicts.py`.

True pass rates of scenarios are Beta distributed with an intra-scenario correlation of .5; every number goes through
the product's own functions. The reference columns are those that were published with the rules (2000 suites a row).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulated import arm
from sonar_eval.report import compare_arms
from sonar_eval.stats import compare, verdict_of

TRIALS = 5
RHO = 0.5
SHOWN = 0.05
SEED = 20_240_607


@dataclass(frozen=True)
class Case:
    """One row: how many scenarios, and the true rates."""

    scenarios: int
    before: float
    after: float
    verdict: tuple[float, float, float, float, float, float] | None = None
    """Percent declared, holds across, wrong direction, suite interval covers; mean half-width; percent equivalent."""
    gate: tuple[float, float, float, float, float] | None = None
    """Percent failing at .05, at .01, confirmed; percent passing the strict gate at 5 and at 10 points."""


CASES = [
    Case(10, 0.80, 0.80, (1.9, 0.4, 0.0, 97.8, 12.3, 0.1), (2.4, 0.4, 0.1, 18.4, 51.5)),
    Case(10, 0.95, 0.95, (0.9, 0.1, 0.0, 99.3, 8.9, 1.4), (0.8, 0.1, 0.0, 20.8, 83.5)),
    Case(10, 0.80, 0.75, (7.5, 3.1, 0.0, 97.4, 12.6, 0.1), (13.2, 3.2, 1.8, 4.2, 19.1)),
    Case(10, 0.80, 0.70, (25.3, 14.5, 0.0, 97.2, 13.0, 0.0), (36.4, 15.4, 14.1, 0.9, 5.0)),
    Case(10, 0.80, 0.60, (77.8, 59.8, 0.0, 96.3, 13.3, 0.0), (85.5, 64.1, 73.7, 0.0, 0.3)),
    Case(10, 0.95, 0.90, (12.0, 1.4, 0.0, 99.3, 9.6, 1.2), (19.7, 5.5, 6.0, 2.5, 34.9)),
    Case(10, 0.95, 0.85, (42.0, 11.8, 0.0, 98.9, 10.3, 0.3), (53.4, 28.7, 37.0, 0.6, 11.8)),
    Case(20, 0.80, 0.80, (3.0, 1.9, 0.0, 95.9, 8.3, 0.2), (2.5, 0.2, 0.1, 32.9, 78.8)),
    Case(20, 0.95, 0.95, (1.4, 0.2, 0.0, 98.7, 5.4, 32.0), (1.6, 0.1, 0.0, 63.8, 98.6)),
    Case(20, 0.80, 0.75, (14.9, 11.1, 0.0, 96.1, 8.6, 0.1), (22.1, 8.5, 5.5, 5.2, 32.9)),
    Case(20, 0.80, 0.70, (54.0, 47.2, 0.0, 96.4, 8.8, 0.1), (67.3, 41.2, 45.8, 0.4, 5.9)),
    Case(20, 0.80, 0.60, (98.0, 96.6, 0.0, 96.1, 9.1, 0.0), (99.2, 96.0, 98.2, 0.0, 0.1)),
    Case(20, 0.95, 0.90, (30.3, 15.0, 0.0, 98.5, 6.1, 6.6), (42.3, 19.7, 21.3, 8.1, 50.0)),
    Case(20, 0.95, 0.85, (80.4, 60.0, 0.0, 97.4, 6.6, 0.3), (87.6, 69.0, 78.3, 0.7, 13.2)),
]
REFERENCE_SUITES = 2000


@cache
def quantiles(mean: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the quantile function of the scenarios' true rates."""
    from scipy.stats import beta

    spread = 1 / RHO - 1
    return lambda place: np.asarray(beta.ppf(place, mean * spread, (1 - mean) * spread))


def rates(case: Case, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw true rates that move together: a scenario keeps its place among the others."""
    place = rng.random(case.scenarios)
    return quantiles(case.before)(place), quantiles(case.after)(place)


def comparison(a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> dict:
    """Run k trials per scenario and arm, and compare."""
    passes_a, passes_b = rng.binomial(TRIALS, a).tolist(), rng.binomial(TRIALS, b).tolist()
    return compare(passes_a, TRIALS, passes_b, TRIALS)


def simulate(case: Case, suites: int, seed: int) -> tuple[list[float], list[float]]:
    """Return the verdict's and the gate's figures of one case."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(11)
    for _ in range(suites):
        a, b = rates(case, rng)
        found, fresh = comparison(a, b, rng), comparison(a, b, rng)
        word = verdict_of(found, found["p_two_sided"])
        low, high = found["suite_ci"]
        down = case.after < case.before
        declared = word.startswith(("better", "worse"))
        worse = found["p_worse"]
        counts += [
            declared,
            word in ("better", "worse"),
            down and word.startswith("better"),
            low <= float(b.mean() - a.mean()) <= high,
            (high - low) / 2,
            word == "equivalent",
            worse <= 0.05,
            worse <= 0.01,
            worse <= 0.05 and fresh["p_worse"] <= 0.05,
            found["suite_ci_90"][0] > -0.05,
            found["suite_ci_90"][0] > -0.10,
        ]
    shares = (100 * counts / suites).tolist()
    return shares[:6], shares[6:]


def tolerance(share: float, suites: int) -> float:
    """Return what two simulations of a share may differ by, in points: 3.3 standard errors and the rounding."""
    p = min(max(share / 100, 0.002), 0.998)
    return 100 * 3.3 * math.sqrt(p * (1 - p) * (1 / suites + 1 / REFERENCE_SUITES)) + 0.05


def off(measured: list[float], expected: tuple[float, ...], suites: int, means: tuple[int, ...] = ()) -> list[int]:
    """List the places at which a row leaves its reference; at `means` stand points rather than shares."""
    return [
        place
        for place, (mine, theirs) in enumerate(zip(measured, expected, strict=True))
        if abs(mine - theirs) > (0.4 if place in means else tolerance(theirs, suites))
    ]


def table(suites: int) -> Iterator[str]:
    """Yield the rows: measured over reference, marked where they disagree."""
    for number, case in enumerate(CASES):
        verdicts, gates = simulate(case, suites, SEED + number)
        named = f"S={case.scenarios:2d} {case.before:.0%} -> {case.after:.0%}"
        for kind, mine, theirs, means in (("verdict", verdicts, case.verdict, (4,)), ("gate", gates, case.gate, ())):
            wrong = off(mine, theirs, suites, means)
            cells = [
                f"{value:5.1f} ({reference:5.1f}){'*' if place in wrong else ' '}"
                for place, (value, reference) in enumerate(zip(mine, theirs, strict=True))
            ]
            yield f"{named}  {kind:7s}  {'  '.join(cells)}"


def same_models(sweeps: int, scenarios: int, seed: int) -> float:
    """Return the percent of A/A sweeps, as trial records through the whole comparison, that declare a difference."""
    rng, declared = np.random.default_rng(seed), 0
    for _ in range(sweeps):
        true, _ = rates(Case(scenarios, 0.8, 0.8), rng)
        one, other = (arm(name, rng.binomial(TRIALS, true).tolist(), TRIALS) for name in "AB")
        verdict = compare_arms(one, [other]).contrasts[0].verdict
        declared += verdict.startswith(("better", "worse"))
    return 100 * declared / sweeps


def report(suites: int) -> Iterator[str]:
    """Yield the lines to show."""
    started = time.perf_counter()
    yield f"{suites} suites a row, {TRIALS} trials per scenario and arm: measured (reference), * = beyond chance\n"
    yield "verdict: declared, holds across, wrong way, interval covers, half-width in points, equivalent"
    yield "gate: fails at .05, at .01, confirmed at .05; shown no worse than 5, than 10 points\n"
    yield from table(suites)
    for scenarios in (10, 20):
        share = same_models(1000, scenarios, SEED)
        yield f"1000 A/A sweeps of {scenarios} scenarios: {share:.1f}% declare a difference (at most 5%)"
    yield f"{time.perf_counter() - started:.0f} s"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", type=int, default=2000)
    for line in report(parser.parse_args().suites):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
