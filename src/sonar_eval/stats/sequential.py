"""Looking while trials still come in, without fooling oneself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .intervals import Interval

LOOKS = (5, 10, 20)
LOOK_LEVEL = 0.022


class Look(NamedTuple):
    """What a look at the trials so far says to do."""

    k: int | None
    """Trials per scenario to run up to; None when it is time to stop."""
    reason: str


def next_look(
    k: int,
    p_two_sided: float,
    suite_ci_90: tuple[float, float],
    *,
    looks: Sequence[int] = LOOKS,
    level: float = LOOK_LEVEL,
    margin: float = 0.05,
) -> Look:
    """Decide after k trials per scenario whether to go on, and how far.

    Three looks at .022 each keep false alarms below .05 (Pocock 1977); peeking at .05 would make 7% of them. Stops
    too when the 90% interval lies within the margin.
    """
    if p_two_sided <= level:
        return Look(None, "difference")
    if -margin < suite_ci_90[0] and suite_ci_90[1] < margin:
        return Look(None, "equivalent")
    later = [look for look in sorted(looks) if look > k]
    return Look(later[0], "undecided") if later else Look(None, "exhausted")


def mean_of_naive_rate_when_stopped(p: float, k: int) -> float:
    """Return the mean of passes/trials when a scenario stops at its first failure: lower than p."""
    return sum((j - 1) / j * p ** (j - 1) * (1 - p) for j in range(1, k + 1)) + p**k


def unbiased_pass_hat_k_when_stopped(p: float, k: int, k_prime: int) -> float | None:
    """Return the mean of "the first k' trials held" under stopping at the first failure: p^k'; None when k' > k."""
    return p**k_prime if k_prime <= k else None


def expected_trials_stop_at_first_failure(p: float, k: int) -> float:
    """Return the mean number of trials when a scenario stops at its first failure: (1-p^k) / (1-p)."""
    return sum(p**i for i in range(k))


def beta_mixture_e_value(c: int, n: int, p0: float, prior: Sequence[float] = (1.0, 1.0)) -> float:
    """Return the evidence against a rate of p0, valid at any moment: 20 and more refutes it at 5% (Robbins 1970).

    B(a+c, b+n-c) / B(a, b) / (p0^c (1-p0)^(n-c)).
    """
    return math.exp(log) if (log := _log_e(c, n, p0, prior)) < 700 else math.inf


def _log_e(c: int, n: int, p0: float, prior: Sequence[float]) -> float:
    a, b = prior
    if (p0 <= 0 and c) or (p0 >= 1 and c < n):
        return math.inf
    mixed = _log_beta(a + c, b + n - c) - _log_beta(a, b)
    return mixed - (c * math.log(p0) if c else 0.0) - ((n - c) * math.log1p(-p0) if c < n else 0.0)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def sequential_mcnemar_e_value(b_only: int, a_only: int) -> float:
    """Return the evidence against fair discordant pairs, valid at any moment: 2^(b+c) B(1+b, 1+c)."""
    return beta_mixture_e_value(b_only, b_only + a_only, 0.5)


def beta_mixture_confidence_sequence(
    c: int, n: int, confidence: float = 0.95, prior: Sequence[float] = (1.0, 1.0)
) -> Interval:
    """Return the rates not refuted so far; covers at every n at once (Robbins 1970; see `beta_mixture_e_value`)."""
    if not n:
        return Interval(0.0, 1.0)
    bound, centre = -math.log1p(-confidence), c / n
    low = _edge(0.0, centre, c, n, bound, prior) if c else 0.0
    high = _edge(1.0, centre, c, n, bound, prior) if c < n else 1.0
    return Interval(low, high)


def _edge(outside: float, inside: float, c: int, n: int, bound: float, prior: Sequence[float]) -> float:
    for _ in range(200):
        middle = (outside + inside) / 2
        if _log_e(c, n, middle, prior) < bound:
            inside = middle
        else:
            outside = middle
    return inside


def successive_halving_schedule(arms: int, budget_trials: int) -> list[list[int]]:
    """List [arms alive, trials per arm] per round, the better half kept each time (Karnin et al. 2013)."""
    rounds, alive, schedule = math.ceil(math.log2(arms)) if arms > 1 else 0, arms, []
    for _ in range(rounds):
        schedule.append([alive, budget_trials // (alive * rounds)])
        alive = math.ceil(alive / 2)
    return schedule
