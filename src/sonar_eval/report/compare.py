"""Candidates against a baseline, from their trial records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..stats import (
    ERROR_LIMIT,
    compare,
    geometric_mean_ratio_ci,
    holm,
    mean,
    population_mean_diff_ci,
    quantile,
    scenarios_needed,
    stratified_exact_test,
    suite_mean_diff_ci,
    trial_pair_sign_flip,
    trial_variance,
    verdict_of,
)
from .arm import NO_FAULT, Arm, CellKey
from .comparison import Comparison, Contrast, Estimate, ParetoPoint, ScoreDifference, Unpaired
from .drilldown import drill_down, flips, resilience
from .judge_noise import noise_warnings, recorded_variance, with_noise
from .planning import EFFECT_SD, Noise
from .ranking import rank_arms
from .summary import bot_cost, bot_tokens, judge_score, summarise_arm, turn_latencies
from .wording import NOT_THERE

NOT_COMPARABLE = "not_comparable"
# What the words call "95% CI", whatever level the test is held to.
CONFIDENCE = 0.95
Record = Mapping[str, Any]


def compare_arms(
    baseline: Arm,
    candidates: Sequence[Arm],
    *,
    alpha: float = 0.05,
    margin: float = 0.05,
    no_fault: str = NO_FAULT,
    judge_variance: float | None = None,
) -> Comparison:
    """Compare each candidate with the baseline: cells paired by scenario and fault, trials by index.

    What has no counterpart is left out and named. p-values are Holm's over the candidates; a difference is declared at
    `alpha`, while intervals are 95% ones whatever that is. `judge_variance` is how much
    the judge's score of a trial varies when it is asked again, where a check of the judge has told; records with
    several answers of the judge tell it themselves.
    """
    arms = [baseline, *candidates]
    noise = recorded_variance(arms)
    noise = judge_variance if noise is None else noise
    pairings = [_pair(baseline, candidate) for candidate in candidates]
    contrasts = [
        with_noise(_contrast(baseline, candidate, keys, alpha, margin), (baseline, candidate), keys, noise)
        for candidate, (keys, _) in zip(candidates, pairings, strict=True)
    ]
    common = [key for key in baseline.cells if any(key in keys for keys, _ in pairings)]
    summaries = [
        summarise_arm(baseline, common or list(baseline.cells)),
        *(
            summarise_arm(candidate, keys or list(candidate.cells))
            for candidate, (keys, _) in zip(candidates, pairings, strict=True)
        ),
    ]
    pairs = [(baseline, candidate, keys) for candidate, (keys, _) in zip(candidates, pairings, strict=True)]
    return Comparison(
        baseline.name,
        summaries,
        _with_errors(_with_holm(contrasts, alpha, margin), pairs, alpha, margin),
        list(dict.fromkeys(row for _, left_out in pairings for row in left_out)),
        [delta for arm in arms for delta in resilience(arm, no_fault)],
        _pareto([ParetoPoint(row.name, row.pass_rate.value, row.cost_usd, row.latency_s, True) for row in summaries]),
        [*(line for arm in arms for line in _copies(arm)), *noise_warnings(contrasts)],
        rank_arms([baseline, *(arm for (_, arm, _), found in zip(pairs, contrasts, strict=True) if not found.reason)]),
        alpha,
    )


def _copies(arm: Arm) -> list[str]:
    return [
        f"{arm.name}: {key}: {cell.copies + 1} identical transcripts: counted as 1"
        if cell.n == 1
        else f"{arm.name}: {key}: {cell.copies} trials repeat another of the same seed word by word: left out"
        for key, cell in arm.cells.items()
        if cell.copies
    ]


def _pair(a: Arm, b: Arm) -> tuple[list[CellKey], list[Unpaired]]:
    keys, left_out = [], []
    for key in [*a.cells, *(key for key in b.cells if key not in a.cells)]:
        trouble = [(arm.name, reason) for arm in (a, b) if (reason := _unusable(arm, key))]
        left_out += [Unpaired(*key, name, reason) for name, reason in trouble]
        if trouble:
            continue
        keys.append(key)
        left_out += [
            Unpaired(*key, arm.name, arm.cells[key].why_not_measured) for arm in (a, b) if not arm.cells[key].n
        ]
    return keys, left_out


def _unusable(arm: Arm, key: CellKey) -> str | None:
    cell = arm.cells.get(key)
    if cell is None:
        return NOT_THERE
    if cell.stopped:
        return "stopped early: its rate is biased"
    if not cell.records:
        return f"failed: {cell.error}" if cell.error else "no trial was recorded"
    return None


def _contrast(a: Arm, b: Arm, keys: Sequence[CellKey], alpha: float, margin: float) -> Contrast:
    reason = _not_comparable(a, b, keys)
    measured = [key for key in keys if a.cells[key].n and b.cells[key].n]
    found = _numbers(a, b, measured, errors_fail=False) if measured else None
    if found is None or reason:
        return Contrast(a.name, b.name, NOT_COMPARABLE, reason or "no cell has measured trials in both arms")
    counts = _counts(a, b, measured)
    contrast = Contrast(
        a.name,
        b.name,
        verdict_of(found, found["p_two_sided"], alpha=alpha, margin=margin),
        rate_a=found["rate_a"],
        rate_b=found["rate_b"],
        diff=found["diff"],
        suite=Estimate(found["diff"], *found["suite_ci"]),
        suite_90=Estimate(found["diff"], *found["suite_ci_90"]),
        population=Estimate(found["diff"], *found["population_ci"]),
        p=found["p_two_sided"],
        p_mid=stratified_exact_test(*counts)["mid_p"],
        p_worse=found["p_worse"],
        cells=len(measured),
        scenarios=len({key.scenario for key in measured}),
        # Of the arm with fewer: what the other has more, cannot make up for them.
        trials_per_cell=round(min(mean(counts[1]), mean(counts[3]))),
        margin=margin,
        judge=_judge(a, b, measured),
        latency=_ratio(a, b, measured, lambda record: quantile(list(turn_latencies(record)), 0.5)),
        cost=_ratio(a, b, measured, bot_cost),
        tokens=_ratio(a, b, measured, bot_tokens),
        drill_down=drill_down(a, b, measured),
        flips=flips(a, b, measured),
    )
    return _with_movers(_with_plan(contrast, counts), a, b, measured)


def _not_comparable(a: Arm, b: Arm, keys: Sequence[CellKey]) -> str | None:
    if not keys:
        return "no common scenario"
    for arm in (a, b):
        cells = [arm.cells[key] for key in keys]
        n, missing = sum(cell.n for cell in cells), sum(cell.not_measured for cell in cells)
        whole = missing + sum(cell.n + cell.copies for cell in cells)
        if whole and missing / whole > ERROR_LIMIT:
            return (
                f"{missing} of {whole} trials of {arm.name} errored or were not measured, more than {ERROR_LIMIT:.0%}"
            )
        if n < 2:
            return f"{arm.name} has {n} measured trial{'' if n == 1 else 's'}"
    return None


Counts = tuple[list[int], list[int], list[int], list[int]]


def _counts(a: Arm, b: Arm, keys: Sequence[CellKey], *, errors_fail: bool = False) -> Counts:
    one, other = [a.cells[key] for key in keys], [b.cells[key] for key in keys]
    if errors_fail:
        return (
            [cell.passes for cell in one],
            [cell.requested for cell in one],
            [cell.passes for cell in other],
            [cell.requested for cell in other],
        )
    return [cell.passes for cell in one], [cell.n for cell in one], [c.passes for c in other], [c.n for c in other]


def _numbers(a: Arm, b: Arm, keys: Sequence[CellKey], *, errors_fail: bool) -> dict[str, Any] | None:
    counts = _counts(a, b, keys, errors_fail=errors_fail)
    return compare(*counts, confidence=CONFIDENCE, clusters=[key.scenario for key in keys])


def _with_holm(contrasts: Sequence[Contrast], alpha: float, margin: float) -> list[Contrast]:
    known = [contrast for contrast in contrasts if contrast.p is not None]
    adjusted = dict(zip(map(id, known), holm([contrast.p or 0.0 for contrast in known]), strict=True))
    return [
        replace(contrast, p_holm=adjusted[id(contrast)], verdict=_word(contrast, adjusted[id(contrast)], alpha, margin))
        if id(contrast) in adjusted
        else contrast
        for contrast in contrasts
    ]


def _with_errors(
    contrasts: Sequence[Contrast], pairs: Sequence[tuple[Arm, Arm, Sequence[CellKey]]], alpha: float, margin: float
) -> list[Contrast]:
    """Say each verdict once more with what was not measured counted as failed."""
    found = [
        _numbers(a, b, keys, errors_fail=True) if contrast.p is not None else None
        for contrast, (a, b, keys) in zip(contrasts, pairs, strict=True)
    ]
    known = [numbers for numbers in found if numbers is not None]
    adjusted = iter(holm([numbers["p_two_sided"] for numbers in known]))
    told = []
    for contrast, numbers, (a, b, keys) in zip(contrasts, found, pairs, strict=True):
        missing = sum(arm.cells[key].not_measured for arm in (a, b) for key in keys)
        word = verdict_of(numbers, next(adjusted), alpha=alpha, margin=margin) if numbers is not None else None
        hangs = missing if word is not None and word != contrast.verdict else 0
        told.append(replace(contrast, verdict_errors_fail=word, depends_on_errors=hangs))
    return told


def _word(contrast: Contrast, p: float, alpha: float, margin: float) -> str:
    ends = {
        "diff": contrast.diff,
        "population_ci": (contrast.population.low, contrast.population.high),
        "suite_ci_90": (contrast.suite_90.low, contrast.suite_90.high),
    }
    return verdict_of(ends, p, alpha=alpha, margin=margin)


def _with_plan(contrast: Contrast, counts: Counts) -> Contrast:
    """Say what so many trials could have shown, and how many would show a difference as large as the margin."""
    passes_a, n_a, passes_b, n_b = counts
    trials = min(sum(n_a), sum(n_b))
    noise = Noise(contrast.rate_a or 0.0, trial_variance(passes_a, n_a), trial_variance(passes_b, n_b))
    return replace(
        contrast,
        mde=noise.detectable(trials),
        trials_needed=noise.trials_needed(contrast.cells, contrast.margin),
        scenarios_needed=scenarios_needed(EFFECT_SD, contrast.margin),
    )


def _with_movers(contrast: Contrast, a: Arm, b: Arm, keys: Sequence[CellKey]) -> Contrast:
    """Name the scenarios that pull hardest in the direction of the difference."""
    moves: dict[str, list[float]] = {}
    for key in keys:
        one, other = a.cells[key], b.cells[key]
        moves.setdefault(key.scenario, []).append(other.passes / other.n - one.passes / one.n)
    way = 1 if (contrast.diff or 0.0) > 0 else -1
    pulls = sorted(((way * mean(diffs), name) for name, diffs in moves.items()), reverse=True)
    movers = [name for pull, name in pulls if pull > 0]
    return replace(contrast, movers=movers[:3], few_movers=2 * len(movers) < len(moves))


def _judge(a: Arm, b: Arm, keys: Sequence[CellKey]) -> ScoreDifference | None:
    """Compare the judge's scores: sign-flip of trial pairs, Welch's interval, the paired one across scenarios."""
    paired = [(key, one, other) for key in keys if (one := _scores(a, key)) and (other := _scores(b, key))]
    if not paired:
        return None
    in_a, in_b = [list(one.values()) for _, one, _ in paired], [list(other.values()) for _, _, other in paired]
    by_scenario: dict[str, tuple[list[float], list[float]]] = {}
    for key, one, other in paired:
        lists = by_scenario.setdefault(key.scenario, ([], []))
        lists[0].append(mean(list(one.values())))
        lists[1].append(mean(list(other.values())))
    across = list(by_scenario.values())
    diff = mean([mean(other) - mean(one) for one, other in zip(in_a, in_b, strict=True)])
    suite, population = (
        suite_mean_diff_ci(in_a, in_b),
        population_mean_diff_ci([one for one, _ in across], [other for _, other in across]),
    )
    indices = [sorted(one.keys() & other.keys()) for _, one, other in paired]
    p = trial_pair_sign_flip(
        [[one[i] for i in common] for (_, one, _), common in zip(paired, indices, strict=True)],
        [[other[i] for i in common] for (_, _, other), common in zip(paired, indices, strict=True)],
    )
    return ScoreDifference(
        mean([mean(one) for one in in_a]),
        mean([mean(other) for other in in_b]),
        Estimate(diff, suite[1], suite[2]) if suite else Estimate(diff),
        Estimate(diff, *population) if population else Estimate(diff),
        p,
        len(paired),
    )


def _scores(arm: Arm, key: CellKey) -> dict[int, float]:
    return {record["index"]: score for record in arm.cells[key].counted if (score := judge_score(record)) is not None}


def _ratio(a: Arm, b: Arm, keys: Sequence[CellKey], measure: Callable[[Record], float | None]) -> Estimate:
    """Compare a positive quantity by its ratio, scenario by scenario."""
    medians: dict[str, tuple[list[float], list[float]]] = {}
    for key in keys:
        one, other = _measured(a, key, measure), _measured(b, key, measure)
        if one and other:
            lists = medians.setdefault(key.scenario, ([], []))
            lists[0].append(mean(one))
            lists[1].append(mean(other))
    if not medians:
        return Estimate(None)
    ratio, low, high = geometric_mean_ratio_ci(
        [mean(other) for _, other in medians.values()], [mean(one) for one, _ in medians.values()]
    )
    return Estimate(ratio, low, high)


def _measured(arm: Arm, key: CellKey, measure: Callable[[Record], float | None]) -> list[float]:
    return [value for record in arm.cells[key].counted if (value := measure(record)) is not None and value > 0]


def _pareto(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    return [
        replace(point, on_front=point.pass_rate is not None and not any(_dominates(other, point) for other in points))
        for point in points
    ]


def _dominates(one: ParetoPoint, other: ParetoPoint) -> bool:
    """Tell whether an arm is at least as good in all that both know, and better in one."""
    if one.pass_rate is None or other.pass_rate is None:
        return False
    gains = [one.pass_rate - other.pass_rate]
    for mine, theirs in ((one.cost_usd, other.cost_usd), (one.latency_s, other.latency_s)):
        if mine is not None and theirs is not None:
            gains.append(theirs - mine)
    return all(gain >= 0 for gain in gains) and any(gain > 0 for gain in gains)
