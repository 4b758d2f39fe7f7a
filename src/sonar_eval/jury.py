"""Several answers of a judge to one question become one verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from .rubric import Criterion
from .threshold import mean
from .verdict import CriterionResult, CriterionVerdict, Reading, share_passed


def mean_score(
    criteria: Sequence[Criterion], readings: Sequence[Reading], elected: Sequence[CriterionResult]
) -> float | None:
    """Return the mean of the scores; None when no answer has one.

    The mean and not the median: a dissent of one in three is to be seen, and means of trials are taken too. A
    criterion that the answers together could not tell, by majority or by a tie, counts in none of them.
    """
    if not criteria:
        return mean(scores_of(readings)) if readings else None
    told = [place for place, result in enumerate(elected) if result.verdict is not CriterionVerdict.CANNOT_TELL]
    weighed = [criteria[place] for place in told]
    shares = [share_passed(weighed, [reading.criteria[place] for place in told]) for reading in readings]
    known = [share for share in shares if share is not None]
    return mean(known) if known else None


def scores_of(readings: Sequence[Reading]) -> tuple[float, ...]:
    """List the scores, each within 0..1."""
    return tuple(min(1.0, max(0.0, reading.score)) for reading in readings if reading.score is not None)


def majority(criteria: Sequence[Criterion], readings: Sequence[Reading]) -> tuple[CriterionResult, ...]:
    """Take for each criterion the verdict given most often; a tie is one that nobody can tell."""
    return tuple(_elected([reading.criteria[place] for reading in readings]) for place, _ in enumerate(criteria))


def _elected(results: Sequence[CriterionResult]) -> CriterionResult:
    votes = Counter(result.verdict for result in results).most_common()
    if len(votes) > 1 and votes[0][1] == votes[1][1]:
        said = ", ".join(f"{count} x {verdict}" for verdict, count in votes)
        return CriterionResult(results[0].name, CriterionVerdict.CANNOT_TELL, f"the judge was of several minds: {said}")
    return next(result for result in results if result.verdict is votes[0][0])


def agreement(readings: Sequence[Reading]) -> float | None:
    """Return how far the answers agree, from 0 to 1; None for fewer than two.

    With criteria: the share of pairs of answers with the same verdict, over all criteria. Without: 1 minus the
    distance between the highest and the lowest score.
    """
    if len(readings) < 2:
        return None
    if not readings[0].criteria:
        scores = scores_of(readings)
        return 1 - (max(scores) - min(scores))
    same = [
        one.verdict is other.verdict
        for first, second in combinations(readings, 2)
        for one, other in zip(first.criteria, second.criteria, strict=True)
    ]
    return sum(same) / len(same)


def nearest(readings: Sequence[Reading], score: float) -> Reading:
    """Return the answer whose score lies nearest to the mean: its words stand for all."""
    told = [reading for reading in readings if reading.score is not None]
    return min(told, key=lambda reading: abs((reading.score or 0.0) - score))
