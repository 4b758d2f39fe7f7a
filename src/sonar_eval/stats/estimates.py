"""What k trials say about a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence


def _check(n: int, passed: int, k: int) -> None:
    if not 0 <= passed <= n:
        raise ValueError(f"passed must lie in 0..{n}, got {passed}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")


def pass_at_k(n: int, passed: int, k: int) -> float | None:
    """Estimate the chance that at least one of k trials holds; None when k > n.

    1 - C(n-c, k) / C(n, k), unbiased (Chen et al. 2021, arXiv 2107.03374).
    """
    _check(n, passed, k)
    return None if k > n else 1.0 - math.comb(n - passed, k) / math.comb(n, k)


def pass_hat_k(n: int, passed: int, k: int) -> float | None:
    """Estimate the chance that all of k trials hold; None when k > n.

    C(c, k) / C(n, k), unbiased (Yao et al. 2024, arXiv 2406.12045).
    """
    _check(n, passed, k)
    return None if k > n else math.comb(passed, k) / math.comb(n, k)


def quantile(values: Sequence[float], q: float) -> float | None:
    """Return the q-quantile by linear interpolation between order statistics; None without values.

    Definition 7 of Hyndman and Fan (1996), as numpy and R take it by default.
    """
    if not values:
        return None
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
