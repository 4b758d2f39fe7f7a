"""What repeated judgements and people's labels say about a judge."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..stats import (
    cohen_kappa,
    fisher_exact,
    kappa_bootstrap_ci,
    mcnemar_exact,
    mean,
    optimum_repeats,
    ppi_mean,
    ppi_plus_plus_mean,
    ppi_plus_plus_se,
    repeat_judge_variance,
    rogan_gladen,
    rogan_gladen_se,
    variance,
    wilson_ci,
)
from .comparison import Estimate
from .judge_check import (
    ENOUGH_LABELS,
    Agreement,
    ArmRate,
    JudgeCheck,
    Judged,
    Label,
    PeopleCheck,
    SecondJudge,
    SelfCheck,
    Share,
    Trial,
)

ALPHA = 0.05
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TOLD = ("passed", "failed")
Verdicts = Mapping[str, Judged]


def check_judge(
    judge: str,
    trials: Sequence[Trial],
    rounds: Sequence[Verdicts],
    *,
    repeats: int = 1,
    second: tuple[str, Verdicts] | None = None,
    labels: Iterable[Label] = (),
) -> JudgeCheck:
    """Put together what is known of a judge.

    `trials` are all that it judged, `rounds` its fresh verdicts on a sample of them by conversation, each verdict made
    of `repeats` answers. `second` names another judge and holds its verdicts on the same sample.
    """
    recorded = {trial.verdict.conversation_id: trial.verdict for trial in trials}
    known = [label for label in labels if label.conversation_id in recorded]
    whole = {label.conversation_id: label.passed for label in known if label.criterion is None}
    people = _people(None, [(recorded[key].passed, said) for key, said in whole.items()]) if whole else None
    arms = _arms(trials, whole, people)
    return JudgeCheck(
        judge,
        len(trials),
        len(rounds[0]),
        _against_itself(trials, rounds, recorded, repeats),
        _against_second(rounds[0], *second) if second else None,
        people,
        list(_by_criterion(recorded, known)),
        arms,
        [*_uneven_labels(recorded, whole), *_uneven_errors(arms)],
    )


def _agreement(pairs: Sequence[tuple[object, object]]) -> Agreement:
    values = sorted({value for pair in pairs for value in pair}, key=str)
    table = [[sum(pair == (one, other) for pair in pairs) for other in values] for one in values]
    alike = sum(one == other for one, other in pairs)
    if not pairs:
        return Agreement(0, 0, None)
    interval = kappa_bootstrap_ci(table)
    kappa = Estimate(cohen_kappa(table), *(interval or (None, None)))
    return Agreement(len(pairs), alike, alike / len(pairs), kappa)


def _pairs(one: Verdicts, other: Verdicts) -> list[tuple[Judged, Judged]]:
    both = [(one[key], other[key]) for key in one if key in other]
    return [(a, b) for a, b in both if a.score is not None and b.score is not None]


def _whole(pairs: Iterable[tuple[Judged, Judged]]) -> Agreement:
    return _agreement([(a.passed, b.passed) for a, b in pairs])


def _criteria(pairs: Sequence[tuple[Judged, Judged]]) -> dict[str, Agreement]:
    names = dict.fromkeys(name for a, b in pairs for name in a.criteria if name in b.criteria)
    return {
        name: _agreement(
            [(a.criteria[name], b.criteria[name]) for a, b in pairs if {name} <= a.criteria.keys() & b.criteria]
        )
        for name in names
    }


def _unread(verdicts: Verdicts) -> int:
    return sum(verdict.score is None for verdict in verdicts.values())


def _unread_reasons(*rounds: Verdicts) -> dict[str, int]:
    """Count why there was no verdict, the most frequent reason first; those that differ in a number are one."""
    reasons = [one.error for verdicts in rounds for one in verdicts.values() if one.score is None and one.error]
    first: dict[str, str] = {}
    counts = Counter(first.setdefault(_NUMBER.sub("#", reason), reason) for reason in reasons)
    return dict(counts.most_common())


def _against_itself(trials: Sequence[Trial], rounds: Sequence[Verdicts], recorded: Verdicts, repeats: int) -> SelfCheck:
    pairs = _pairs(rounds[0], rounds[1])
    found = SelfCheck(
        len(pairs),
        sum(map(_unread, rounds)),
        _whole(pairs),
        _whole(_pairs(rounds[0], recorded)),
        criteria=_criteria(pairs),
        unread_reasons=_unread_reasons(*rounds),
    )
    if len(pairs) < 2:
        return found
    scores = {a.conversation_id: [a.score or 0.0, b.score or 0.0] for a, b in pairs}
    of_judge, of_trial, icc = repeat_judge_variance(list(scores.values()))
    within = _within_cells(trials, scores, of_judge or 0.0)
    ratio = _cost_ratio(trials)
    best = None if within is None else optimum_repeats((of_judge or 0.0) * repeats, within, ratio or 1.0)
    return replace(
        found,
        judge_variance=of_judge,
        judge_sd=math.sqrt(of_judge or 0.0),
        trial_variance=of_trial if within is None else within,
        icc=icc,
        optimum_repeats=best,
        cost_ratio=ratio,
    )


def _within_cells(trials: Sequence[Trial], scores: Mapping[str, Sequence[float]], of_judge: float) -> float | None:
    """Return how much trials of one cell differ beyond the judge's own noise; scenarios differ for other reasons."""
    cells: dict[tuple[str, str], list[float]] = {}
    for trial in trials:
        if trial.verdict.conversation_id in scores:
            row = scores[trial.verdict.conversation_id]
            cells.setdefault((trial.arm, trial.cell), []).append(mean(row))
    several = [means for means in cells.values() if len(means) > 1]
    if not several:
        return None
    freedom = sum(len(means) - 1 for means in several)
    pooled = sum(variance(means) * (len(means) - 1) for means in several) / freedom
    return max(0.0, pooled - of_judge / 2)


def _cost_ratio(trials: Sequence[Trial]) -> float | None:
    talk = [trial.cost_usd for trial in trials if trial.cost_usd is not None and trial.judge_cost_usd]
    judging = [trial.judge_cost_usd for trial in trials if trial.cost_usd is not None and trial.judge_cost_usd]
    return sum(talk) / sum(filter(None, judging)) if talk else None


def _against_second(first: Verdicts, name: str, second: Verdicts) -> SecondJudge:
    pairs = _pairs(first, second)
    only_first = sum(a.passed and not b.passed for a, b in pairs)
    only_second = sum(b.passed and not a.passed for a, b in pairs)
    p = mcnemar_exact(only_first, only_second) if pairs else None
    stricter = None
    if p is not None and p <= ALPHA:
        stricter = "second" if only_first > only_second else "first"
    return SecondJudge(
        name,
        _whole(pairs),
        sum(a.passed for a, _ in pairs),
        sum(b.passed for _, b in pairs),
        p,
        stricter,
        mean([(b.score or 0.0) - (a.score or 0.0) for a, b in pairs]) if pairs else None,
        _unread(second),
        _criteria(pairs),
        _unread_reasons(second),
    )


def _people(about: str | None, pairs: Sequence[tuple[bool, bool]], untold: int = 0) -> PeopleCheck:
    """Compare verdicts, each a pair of the judge's and the person's."""
    n = len(pairs)
    enough = n >= ENOUGH_LABELS
    agreement = _agreement(pairs)
    return PeopleCheck(
        about,
        n,
        pairs.count((True, True)),
        pairs.count((True, False)),
        pairs.count((False, True)),
        pairs.count((False, False)),
        enough,
        agreement if enough else Agreement(n, agreement.alike, None),
        _sensitivity(pairs, told=enough),
        _specificity(pairs, told=enough),
        untold,
    )


def _sensitivity(pairs: Sequence[tuple[bool, bool]], *, told: bool) -> Share:
    return _share([judge for judge, person in pairs if person], told=told)


def _specificity(pairs: Sequence[tuple[bool, bool]], *, told: bool) -> Share:
    return _share([not judge for judge, person in pairs if not person], told=told)


def _share(hits: Sequence[bool], *, told: bool) -> Share:
    interval = wilson_ci(sum(hits), len(hits))
    if interval is None or not told:
        return Share(sum(hits), len(hits), None)
    return Share(sum(hits), len(hits), sum(hits) / len(hits), interval.low, interval.high)


def _by_criterion(recorded: Verdicts, labels: Sequence[Label]) -> Iterable[PeopleCheck]:
    for name in dict.fromkeys(label.criterion for label in labels if label.criterion is not None):
        said = [
            (recorded[label.conversation_id].criteria.get(name), label.passed)
            for label in labels
            if label.criterion == name
        ]
        told = [(judge == "passed", person) for judge, person in said if judge in _TOLD]
        yield _people(name, told, untold=len(said) - len(told))


def _arms(trials: Sequence[Trial], labels: Mapping[str, bool], people: PeopleCheck | None) -> list[ArmRate]:
    return [
        _arm(arm, [trial.verdict for trial in trials if trial.arm == arm], labels, people)
        for arm in dict.fromkeys(trial.arm for trial in trials)
    ]


def _arm(arm: str, verdicts: Sequence[Judged], labels: Mapping[str, bool], people: PeopleCheck | None) -> ArmRate:
    pairs = [
        (verdict.passed, labels[verdict.conversation_id]) for verdict in verdicts if verdict.conversation_id in labels
    ]
    enough = len(pairs) >= ENOUGH_LABELS
    found = ArmRate(
        arm,
        len(verdicts),
        mean([verdict.passed for verdict in verdicts]),
        len(pairs),
        _sensitivity(pairs, told=enough),
        _specificity(pairs, told=enough),
    )
    own = enough and found.sensitivity.n > 0 and found.specificity.n > 0
    if own:
        found = _corrected(replace(found, own_errors=True), found.sensitivity, found.specificity)
    elif people is not None and people.enough:
        found = _corrected(found, people.sensitivity, people.specificity)
    rest = [float(verdict.passed) for verdict in verdicts if verdict.conversation_id not in labels]
    return _with_ppi(found, pairs, rest) if enough else found


def _corrected(arm: ArmRate, sensitivity: Share, specificity: Share) -> ArmRate:
    if sensitivity.value is None or specificity.value is None:
        return arm
    return replace(
        arm,
        corrected=rogan_gladen(arm.rate, sensitivity.value, specificity.value),
        corrected_se=rogan_gladen_se(
            arm.rate, arm.judged, sensitivity.value, sensitivity.n, specificity.value, specificity.n
        ),
    )


def _with_ppi(arm: ArmRate, pairs: Sequence[tuple[bool, bool]], rest: Sequence[float]) -> ArmRate:
    """Estimate from people's labels on a part and the judge's verdicts on the rest; from labels when there is none."""
    human, judge = [float(person) for _, person in pairs], [float(verdict) for verdict, _ in pairs]
    if len(rest) < 2:
        se = math.sqrt(variance(human) / len(human))
        rate = mean(human)
        return replace(arm, ppi=rate, ppi_se=se, ppi_plus_plus=rate, ppi_plus_plus_se=se, weight=0.0)
    ppi, weighted = ppi_mean(human, judge, rest), ppi_plus_plus_mean(human, judge, rest)
    return replace(
        arm,
        ppi=ppi[0],
        ppi_se=ppi[1],
        ppi_plus_plus=weighted[1],
        ppi_plus_plus_se=ppi_plus_plus_se(human, judge, rest),
        weight=weighted[0],
    )


def _uneven_labels(recorded: Verdicts, labels: Mapping[str, bool]) -> Iterable[str]:
    """Say that the labelled trials look picked: what rests on them then holds for them alone."""
    if len(labels) < ENOUGH_LABELS or len(labels) == len(recorded):
        return
    inside = [recorded[key].passed for key in labels]
    outside = [verdict.passed for key, verdict in recorded.items() if key not in labels]
    p = fisher_exact([[sum(inside), len(inside) - sum(inside)], [sum(outside), len(outside) - sum(outside)]])
    if p <= ALPHA:
        yield (
            f"the labelled trials were no random draw: the judge passed {mean(inside):.0%} of them and "
            f"{mean(outside):.0%} of the others; sensitivity, specificity and what is corrected by them may be off"
        )


def _uneven_errors(arms: Sequence[ArmRate]) -> Iterable[str]:
    for what in ("sensitivity", "specificity"):
        shares: list[tuple[str, Share]] = [(arm.arm, getattr(arm, what)) for arm in arms]
        for place, (one, a) in enumerate(shares):
            for other, b in shares[place + 1 :]:
                if a.n and b.n and fisher_exact([[a.k, a.n - a.k], [b.k, b.n - b.k]]) <= ALPHA:
                    yield (
                        f"the judge does not treat the arms alike: {what} {a.k} of {a.n} for {one}, {b.k} of {b.n} for "
                        f"{other}; a difference between them in its scores may be its own preference"
                    )
