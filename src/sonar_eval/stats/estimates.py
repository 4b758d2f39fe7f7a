"""What k trials say about a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n:
        raise ValueError(f"c must lie in 0..{n}, got {c}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Estimate the chance that at least one of k trials holds; None when k > n.

    1 - C(n-c, k) / C(n, k) with c of n passed, unbiased (Chen et al. 2021, arXiv 2107.03374).
    """
    _check(n, c, k)
    return None if k > n else 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Estimate the chance that all of k trials hold; None when k > n.

    C(c, k) / C(n, k) with c of n passed, unbiased (Yao et al. 2024, arXiv 2406.12045).
    """
    _check(n, c, k)
    return None if k > n else math.comb(c, k) / math.comb(n, k)


def pass_at_k_curve(n: int, c: int) -> list[float]:
    """List pass@k' for k' = 1..n."""
    return [value for k in range(1, n + 1) if (value := pass_at_k(n, c, k)) is not None]


def pass_hat_k_curve(n: int, c: int) -> list[float]:
    """List pass^k' for k' = 1..n."""
    return [value for k in range(1, n + 1) if (value := pass_hat_k(n, c, k)) is not None]


def expected_pass_at_k(n: int, k: int, p: float) -> float | None:
    """Average the estimate of pass@k over all outcomes of n trials; unbiased means that this is 1 - (1-p)^k."""
    if k > n:
        return None
    return sum(_binomial(n, c, p) * (pass_at_k(n, c, k) or 0.0) for c in range(n + 1))


def expected_pass_hat_k(n: int, k: int, p: float) -> float | None:
    """Average the estimate of pass^k over all outcomes of n trials; unbiased means that this is p^k."""
    if k > n:
        return None
    return sum(_binomial(n, c, p) * (pass_hat_k(n, c, k) or 0.0) for c in range(n + 1))


def _binomial(n: int, c: int, p: float) -> float:
    return math.comb(n, c) * p**c * (1 - p) ** (n - c)


def posterior_mean_pass_hat_k(n: int, c: int, k: int, prior: Sequence[float] = (1.0, 1.0)) -> float:
    """Return E[p^k] under the Beta posterior: B(a+c+k, b+n-c) / B(a+c, b+n-c), a point estimate shrunk to the prior."""
    _check(n, c, k)
    return _rising(prior[0] + c, prior[0] + prior[1] + n, k)


def posterior_mean_pass_at_k(n: int, c: int, k: int, prior: Sequence[float] = (1.0, 1.0)) -> float:
    """Return 1 - E[(1-p)^k] under the Beta posterior."""
    _check(n, c, k)
    return 1.0 - _rising(prior[1] + n - c, prior[0] + prior[1] + n, k)


def _rising(top: float, bottom: float, k: int) -> float:
    return math.prod((top + i) / (bottom + i) for i in range(k))


def summarise_with_errors(passed: int, failed: int, errored: int, requested: int, k: int) -> dict[str, float | None]:
    """State a scenario's rates with its errors left out, as failures and as passes.

    The last two bound what the whole run would have said (Manski 1990).
    """
    completed = passed + failed
    return {
        "completed": completed,
        "pass_rate": passed / completed if completed else None,
        "pass_rate_errors_fail": passed / requested if requested else None,
        "pass_rate_errors_pass": (passed + errored) / requested if requested else None,
        "error_rate": errored / requested if requested else None,
        "pass_hat_k": pass_hat_k(completed, passed, k),
        "pass_hat_k_errors_fail": pass_hat_k(requested, passed, k),
    }


def quantile(values: Sequence[float], q: float) -> float | None:
    """Return the q-quantile by linear interpolation between order statistics; None without values.

    Definition 7 of Hyndman and Fan (1996), as numpy and R take it by default.
    """
    if not len(values):
        return None
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def percentiles_type7(x: Sequence[float], p: Sequence[float]) -> list[float | None]:
    """Return the quantiles `p` of `x`; see `quantile`."""
    return [quantile(x, q) for q in p]
