"""Looking at the arms after some trials, and adding more while they cannot be told apart."""

from __future__ import annotations

from collections.abc import Sequence

from ..report import Comparison, Contrast
from ..stats import LOOK_LEVEL, Look, next_look

_WHY = {
    "difference": "a difference was found",
    "equivalent": "they are equivalent within {margin:g} pts",
    "exhausted": "undecided at the last look",
}


def look(comparisons: Sequence[Comparison], k: int) -> Look:
    """Look after k trials per cell; the reason is a sentence.

    Goes on while a candidate is undecided; all cells then get more trials, also those of a decided candidate, whose
    verdict is that over all of its trials. A candidate that cannot be compared decides nothing.
    """
    found = [(contrast, _decide(contrast, k)) for one in comparisons for contrast in one.contrasts]
    open_ones = [(contrast, decided) for contrast, decided in found if decided and decided.k is not None]
    if open_ones:
        to = min(decided.k or 0 for _, decided in open_ones)
        names = ", ".join(contrast.candidate for contrast, _ in open_ones)
        return Look(to, f"undecided after {k} trials per cell ({names}); going on to {to}")
    told = [f"{contrast.candidate}: {_why(contrast, decided)}" for contrast, decided in found]
    return Look(None, f"stopped after {k} trials per cell: {'; '.join(told)}")


def _decide(contrast: Contrast, k: int) -> Look | None:
    low, high = contrast.suite_90.low, contrast.suite_90.high
    if contrast.p_holm is None or low is None or high is None:
        return None
    return next_look(k, contrast.p_holm, (low, high), level=LOOK_LEVEL, margin=contrast.margin)


def _why(contrast: Contrast, decided: Look | None) -> str:
    if decided is None:
        return f"not comparable ({contrast.reason})"
    return _WHY[decided.reason].format(margin=contrast.margin * 100)
