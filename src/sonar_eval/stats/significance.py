"""Could chance alone have made the difference?

Differences are candidate minus baseline, b - a; `alternative` is "two-sided", "less" or "greater".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from .counts import Counts, trials_of

_TIE = 1e-9
_ENUMERATED = 20
_LATTICE = 500_000
_RESAMPLES = 9999


def stratified_exact_test(
    passes_a: Sequence[int], n_a: Counts, passes_b: Sequence[int], n_b: Counts
) -> dict[str, float]:
    """Test that nothing changed in any scenario, exactly: labels can be exchanged within a scenario.

    Given its passes in both arms together, the passes of b in a scenario are hypergeometric; their sum has the
    convolution of these as its distribution (the exact conditional Cochran-Mantel-Haenszel test of Mehta, Patel and
    Gray 1985; with one scenario Fisher's). "less" is evidence that b is worse, "two_sided" counts sums at least as
    far from the mean, "mid_p" counts those equally far by half.
    """
    from numpy import abs as distance
    from numpy import arange, convolve, ones

    chances: Any = ones(1)
    expected, observed = Fraction(0), sum(passes_b)
    strata = zip(passes_a, trials_of(passes_a, n_a), passes_b, trials_of(passes_b, n_b), strict=True)
    for in_a, of_a, in_b, of_b in strata:
        total, passed = of_a + of_b, in_a + in_b
        if total:
            chances = convolve(chances, _hypergeometric(of_a, of_b, passed))
            expected += Fraction(passed * of_b, total)
    sums = arange(len(chances))
    far, mine = distance(sums - float(expected)), abs(observed - float(expected))
    beyond, level = chances[far > mine + _TIE].sum(), chances[distance(far - mine) <= _TIE].sum()
    return {
        "less": _chance(chances[: observed + 1].sum()),
        "greater": _chance(chances[observed:].sum()),
        "two_sided": _chance(beyond + level),
        "mid_p": _chance(beyond + level / 2),
    }


def _chance(value: Any) -> float:
    return min(1.0, float(value))


@cache
def _hypergeometric(of_a: int, of_b: int, passed: int) -> tuple[float, ...]:
    """List the chances of 0, 1, … passes in b, given the passes in both arms together."""
    ways = math.comb(of_a + of_b, passed)
    highest = min(of_b, passed)
    # Python's integers keep the quotient exact however large the numbers.
    return tuple(math.comb(of_b, c) * math.comb(of_a, passed - c) / ways for c in range(highest + 1))


def mcnemar_exact(b: int, c: int) -> float:
    """Test that discordant pairs fall either way by chance: the two-sided exact binomial test of b of b+c at 1/2."""
    return min(1.0, 2 * _tail(min(b, c), b + c))


def mcnemar_mid_p(b: int, c: int) -> float:
    """Test as `mcnemar_exact` does, outcomes as extreme as the one seen counted by half (Fagerland et al. 2013)."""
    level: float = math.comb(b + c, b) / 2 ** (b + c)
    return mcnemar_exact(b, c) - (level if b != c else level / 2)


def _tail(at_most: int, n: int) -> float:
    # Each coefficient from the one before: to compute them one by one takes minutes for large n.
    ways = itertools.accumulate(range(at_most), lambda way, i: way * (n - i) // (i + 1), initial=1)
    below: float = sum(ways) / 2**n
    return below


def paired_permutation_test(diffs: Sequence[float], alternative: str = "two-sided") -> float:
    """Test that paired differences are as likely negative as positive, by flipping their signs (Fisher 1935).

    Exact up to 20 pairs, and beyond when the differences lie on a coarse lattice, as marks do; otherwise over 9999
    seeded flips. Differences are rounded to 1e-9: sums that are equal must compare equal.
    """
    whole = [units for diff in diffs if (units := round(diff * 1e9))]
    if not whole:
        return 1.0
    step = math.gcd(*whole)
    steps = [units // step for units in whole]
    if sum(map(abs, steps)) <= _LATTICE:
        return _by_lattice(steps, alternative)
    return _by_flipping(steps, alternative)


def _by_lattice(steps: Sequence[int], alternative: str) -> float:
    """Walk the lattice: each pair moves the sum by as much up or down, with even chances."""
    import numpy as np

    reach = sum(map(abs, steps))
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for step in map(abs, steps):
        chances = (np.roll(chances, step) + np.roll(chances, -step)) / 2
    return _share(np.arange(-reach, reach + 1), sum(steps), alternative, chances)


def _by_flipping(steps: Sequence[int], alternative: str) -> float:
    import numpy as np

    values = np.array(steps, dtype=np.float64)
    if len(steps) <= _ENUMERATED:
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums - value, sums + value])
        return _share(sums, float(values.sum()), alternative, np.full(len(sums), 1 / len(sums)))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(_RESAMPLES, len(steps)))
    # The sum that was seen is one of those that could have been.
    sums = np.append(signs @ values, values.sum())
    return _share(sums, float(values.sum()), alternative, np.full(len(sums), 1 / len(sums)))


def _share(sums: Any, seen: float, alternative: str, chances: Any) -> float:
    up, down = chances[sums >= seen - 0.5].sum(), chances[sums <= seen + 0.5].sum()
    if alternative == "greater":
        return _chance(up)
    if alternative == "less":
        return _chance(down)
    if alternative != "two-sided":
        raise ValueError(f"alternative must be two-sided, less or greater, got {alternative!r}")
    return _chance(chances[abs(sums) >= abs(seen) - 0.5].sum())


def trial_pair_sign_flip(
    scores_a: Sequence[Sequence[float]], scores_b: Sequence[Sequence[float]], alternative: str = "two-sided"
) -> float:
    """Test scores of trials paired by index within their scenario; see `paired_permutation_test`.

    What has no partner is left out.
    """
    pairs = (pair for a, b in zip(scores_a, scores_b, strict=True) for pair in zip(a, b, strict=False))
    return paired_permutation_test([b - a for a, b in pairs], alternative)


def wilcoxon_signed_rank(diffs: Sequence[float]) -> float:
    """Test that paired differences lie symmetrically about 0 by their ranks (Wilcoxon 1945), two-sided."""
    from scipy.stats import wilcoxon

    return float(wilcoxon(diffs).pvalue) if any(diffs) else 1.0


def fisher_exact(table: Sequence[Sequence[int]], alternative: str = "two-sided") -> float:
    """Test one 2x2 table with both margins fixed (Fisher 1935)."""
    from scipy import stats

    return float(stats.fisher_exact(table, alternative=alternative).pvalue)


def boschloo_exact(groups_in_rows: Sequence[Sequence[int]], alternative: str = "two-sided") -> float:
    """Test one 2x2 table with the group sizes fixed, never weaker than Fisher's test (Boschloo 1970)."""
    if not all(map(sum, groups_in_rows)):
        return 1.0
    from scipy import stats

    # scipy wants a group a column, and with fewer points for the nuisance parameter errs in the fourth digit.
    columns = [list(column) for column in zip(*groups_in_rows, strict=True)]
    return float(stats.boschloo_exact(columns, alternative=alternative, n=1024).pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values so that any false alarm among them is as rare as one alone would be (Holm 1979)."""
    adjusted, highest = [0.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        highest = max(highest, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = highest
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Adjust p-values to bound the share of false alarms among those taken up (Benjamini and Hochberg 1995)."""
    return _step_up(p, 1.0)


def benjamini_yekutieli(p: Sequence[float]) -> list[float]:
    """Adjust as `benjamini_hochberg` does, under any dependence (Benjamini and Yekutieli 2001)."""
    return _step_up(p, sum(1 / i for i in range(1, len(p) + 1)))


def _step_up(p: Sequence[float], factor: float) -> list[float]:
    adjusted, lowest = [0.0] * len(p), 1.0
    order = sorted(range(len(p)), key=p.__getitem__)
    for rank in range(len(p), 0, -1):
        place = order[rank - 1]
        lowest = min(lowest, factor * len(p) / rank * p[place])
        adjusted[place] = lowest
    return adjusted
